"""The guard: elastic jobs must not cost the others.

Over-subscribed ranks do less in a processor-second than a job in its own shape. So what they take from a job that could
use it makes the whole cluster slower, even where it is right for their own. So they only borrow. As soon as a waiting
job would fit into what a job holds over-subscribed, or for a while only, that one is checkpointed and gives it back
(:func:`give_back`). No job takes any room meanwhile. Which jobs give back is asked before any room is offered: else
what comes free for the head of the queue is borrowed again, and the head waits for a checkpoint.

Until it is back, the waiting job has waited for the checkpoint. How much that is depends on how long work lasts on this
cluster: ten minutes are little beside runs of a day, and much beside runs of an hour. So room is borrowed while a move
takes a small part of that at most, the smaller the higher the degree and its Delta are (:func:`longest_move_s`); and at
full width for a while only where it makes the work of several moves, the more the longer they are beside that
(:func:`worth_suspending_s`). What is over soon is borrowed at any price, the sooner it has to be over the longer they
are (:func:`short_s`). None of this has a step in lambda, start-up or Delta.

Where moves are longer than that part of how long runs last, there is next to nothing to gain, and whatever is done all
the same changes what starts when for all that come later. So there all three end together, and all is as under EASY.

Kernels for both worlds.
"""

from __future__ import annotations

import math

from ejbd.core.bundling.parameters import Rules
from ejbd.core.bundling.rungs import narrowing, stretch_at
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import degree

LONGEST_MOVE_S = 300.0  # that a checkpoint may take at least until promised room has to be there, if twice as long
PART_OF_RUNS = 0.045  # how long a move may take at degree 2 and Delta 1, start-up and all, of how long runs last here:
# with longer ones nothing is borrowed, no run is begun that is to be suspended, and none for being short
UNKNOWN_RUNS_S = 9000.0  # how long they are thought to last before any has ended: real logs have 30,000 and more
DEAREST = 1.8  # Delta at a degree, measured by the pace at full width, from which on nothing is borrowed at it
SHORT_S = 300.0  # with moves of no time, what is over by then may be borrowed at any price
PART_FOR_PLANS = 0.003  # of that: what room costs another job beside the move, by walltimes that end later
WORTH_MOVES_AT_MOST = 6.0  # what a suspended run makes, of a short move: its two are at most a quarter of it all
WORTH_ONE_S = 50.0  # with moves of so long, and shorter ones, it makes one; with longer ones so many times as many
WORTH_MOVES = 2.0  # what is over within so many moves is not given back
FOLDS_UP_TO = 0.8  # Delta at degree 2: folding pays where a job takes less than 1.6 times as long (docs/malleable.md)
COMPUTES_S = 1.0  # at least, after a start or a move: what gets the room may not start in it, and it is taken again
LOOKED_AT = 100  # those that wait, from the head of the queue on


@kernel
def dearness(processes: int, rung: int, rules: Rules) -> float:
    """Processor-seconds for the same work, at a rung by those at full width: Delta at a degree, under Eq. 2."""
    full = stretch_at(processes, 1, rules)
    return stretch_at(processes, rung, rules) / (narrowing(processes, rung, rules) * full)


@kernel
def lasting(rules: Rules) -> float:
    """How long runs last here, in seconds, as far as that is known."""
    return rules.runs_s if rules.runs_s > 0.0 else UNKNOWN_RUNS_S


@kernel
def longest_move_s(processes: int, rung: int, rules: Rules) -> float:
    """With how long moves room is borrowed at a rung; at none where it is negative."""
    left = max(0.0, DEAREST - dearness(processes, rung, rules)) / (DEAREST - 1.0)
    narrow = narrowing(processes, rung, rules)
    return (PART_OF_RUNS * left / math.sqrt(narrow / 2.0) - PART_FOR_PLANS) * lasting(rules)


@kernel
def left_of_runs(rules: Rules) -> float:
    """1 with moves of no time, 0 or less with those that are too long beside how long runs last here."""
    return 1.0 - (rules.lambda_s + rules.start_up_s) / (PART_OF_RUNS * lasting(rules))


@kernel
def short_s(rules: Rules) -> float:
    """What is over by then may be borrowed at any price."""
    return SHORT_S * max(0.0, left_of_runs(rules))


def longest_coming_s(lambda_s: float, start_up_s: float) -> float:
    """How long room that was promised to a job may be on its way at most: a checkpoint, twice as long as thought."""
    return 2.0 * max(LONGEST_MOVE_S, lambda_s + start_up_s)


@kernel
def comes_late(processes: int, rung: int, seconds: float, rules: Rules) -> bool:
    """Whether room that is taken at this rung for so long could not be given back in time."""
    if rules.guard == 0 or rung <= 1 or seconds <= short_s(rules):
        return False
    return rules.lambda_s + rules.start_up_s > longest_move_s(processes, rung, rules)


@kernel
def is_dear(processes: int, rung: int, seconds: float, rules: Rules) -> bool:
    """Whether this rung costs too much to borrow room for so long, whatever a move takes."""
    if rules.guard == 0 or rung <= 1 or seconds <= short_s(rules):
        return False
    return dearness(processes, rung, rules) >= DEAREST


@kernel
def worth_suspending_s(rules: Rules) -> float:
    """How much work at full speed a run that is to be suspended has to make at least, in seconds."""
    move_s = rules.lambda_s + rules.start_up_s
    if rules.guard == 0:
        return move_s
    left = left_of_runs(rules)
    if left <= 0.0:
        return math.inf
    return min(WORTH_MOVES_AT_MOST, max(1.0, move_s / WORTH_ONE_S)) * move_s / left


@kernel
def may_give_back(processes: int, held: int, done_s: float, room_s: float, rules: Rules) -> bool:
    """Whether a job may be made to give back what it holds: over-subscribed, or for a while only, for longer than that
    is worth.

    `done_s`, `room_s`: in how many seconds it will be done (infinite: not on what it holds), and its last subjob ends.
    """
    if rules.guard == 0 or held <= 0 or (held >= processes and done_s < math.inf):
        return False
    return min(done_s, room_s) > WORTH_MOVES * rules.lambda_s


@kernel
def may_fold(processes: int, held: int, gain: int, done_s: float, room_s: float, omax: int, rules: Rules) -> bool:
    """Whether a job may be made to give back so many (`gain`) of the processors that it holds by folding in place.

    The other arguments are those of :func:`may_give_back`, and up to which degree its ranks may share processors.
    """
    if gain <= 0 or gain >= held or not may_give_back(processes, held, done_s, room_s, rules):
        return False
    then = degree(processes, held - gain)
    return then <= omax and not is_dear(processes, then, room_s, rules)


def folding_pays(delta: float | None) -> bool:
    """Whether jobs of an application are folded, by its measured Delta at degree 2; None: it was not measured."""
    return delta is not None and delta <= FOLDS_UP_TO


@kernel
def give_back(
    wanted: Ints,
    walltimes: Floats,
    served: Ints,
    waiting: int,
    available: int,
    coming: int,
    held: Ints,
    room_s: Floats,
    move_s: Floats,
    count: int,
    gives: Ints,
) -> int:
    """Which jobs give back what they hold, and which waiting one each is for: how many do.

    The first `waiting` entries of `wanted` (processors), `walltimes` (seconds) and `served` are the queue, in its
    order; `served` flags J0s of jobs that run elsewhere. `available`: processors that are free, and those that are
    being given back already (`coming`). The first `count` entries of `held` (processors), `room_s` (until its last
    subjob ends) and `move_s` (its lambda) are the jobs that may give back. `gives` becomes, for each of these, the
    place in the queue of the one it gives back for, or -1.

    The head of the queue gets what it needs from as many as it takes, the widest first, if all of them together have
    it. Any other gets it from one, the narrowest that has it, and only if it would end before that room does.
    """
    might = 0
    for index in range(count):
        gives[index] = -1
        might += held[index]
    found = 0
    for at in range(min(waiting, LOOKED_AT)):
        need = wanted[at] - available
        if need <= 0:
            if at == 0 or coming > 0:
                available -= wanted[at]
            if available <= 0:
                break
            continue
        if need > might or (at > 0 and served[at] != 0):
            continue
        one = _narrowest(need, walltimes[at] if at > 0 else -1.0, held, room_s, move_s, count, gives)
        if one < 0 and at > 0:
            continue
        while need > 0:
            if one < 0:
                one = _widest(held, count, gives)
            gives[one] = at
            found += 1
            need -= held[one]
            might -= held[one]
            available += held[one]
            coming += held[one]
            one = -1
        available -= wanted[at]
        if might <= 0:
            break
    return found


@kernel
def _narrowest(
    need: int, walltime_s: float, held: Ints, room_s: Floats, move_s: Floats, count: int, gives: Ints
) -> int:
    """Of those that hold as much for so long (negative: however long), once it is given back, the one with the least
    processors; -1 where there is none."""
    best = -1
    for index in range(count):
        if gives[index] >= 0 or held[index] < need:
            continue
        if walltime_s >= 0.0 and room_s[index] < walltime_s + move_s[index]:
            continue
        if best < 0 or held[index] < held[best]:
            best = index
    return best


@kernel
def _widest(held: Ints, count: int, gives: Ints) -> int:
    best = -1
    for index in range(count):
        if gives[index] < 0 and (best < 0 or held[index] > held[best]):
            best = index
    return best
