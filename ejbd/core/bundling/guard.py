"""The guard: elastic jobs must not cost the others.

Over-subscribed ranks do less in a processor-second than a job in its own shape, so that what they take from somebody
who could use it makes the whole cluster slower, even where it is right for their own job. So they only borrow: as soon
as a waiting job would fit into what an over-subscribed job holds, the job is checkpointed and gives it back
(:func:`give_back`), and nobody takes any room meanwhile. Where a move is so long that giving back would come too late
to be of use to anybody, room is not taken over-subscribed in the first place (:func:`comes_late`), nor at full width
for a while only, if much of that while would go into moves (:func:`worth_suspending_s`). And where over-subscribed
ranks do too little in a processor-second, even borrowing harms (:func:`is_dear`): a subjob that takes longer has a
walltime that ends later, by which the batch system plans later starts for who waits, and lets others pass.

Kernels for both worlds.
"""

from __future__ import annotations

from ejbd.core.bundling.parameters import Rules
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import stretch_by

LONGEST_MOVE_S = 300.0  # start-up and all: with longer moves what is borrowed comes back too late
DEAREST = 1.6  # Delta at a degree, measured by the pace at full width, from which on nothing is borrowed at it
WORTH_LONG_MOVES = 12.0  # what a suspended run makes, of a move: the two that it takes are at most a seventh of it all
WORTH_MOVES = 2.0  # what is over within so many moves is not given back
COMPUTES_S = 1.0  # at least, after a start or a move: who gets the room may not start in it, and it is taken again
LOOKED_AT = 100  # those who wait, from the head of the queue on


@kernel
def comes_late(degree: int, seconds: float, rules: Rules) -> bool:
    """Whether room that is taken at this degree for so long could not be given back in time."""
    return rules.guard != 0 and degree > 1 and min(seconds, rules.lambda_s + rules.start_up_s) > LONGEST_MOVE_S


@kernel
def is_dear(degree: int, seconds: float, rules: Rules) -> bool:
    """Whether over-subscription at this degree costs too much to borrow room for so long."""
    if rules.guard == 0 or degree <= 1 or seconds <= LONGEST_MOVE_S:
        return False
    return stretch_by(degree, rules.delta) >= DEAREST * degree * stretch_by(1, rules.delta)


@kernel
def worth_suspending_s(rules: Rules) -> float:
    """How much work at full speed a run that is to be suspended has to make at least, in seconds."""
    move_s = rules.lambda_s + rules.start_up_s
    return move_s if rules.guard == 0 or move_s <= LONGEST_MOVE_S else WORTH_LONG_MOVES * move_s


@kernel
def may_give_back(processes: int, held: int, done_s: float, room_s: float, rules: Rules) -> bool:
    """Whether a job may be made to give back what it holds: over-subscribed, for longer than that is worth.

    `done_s`, `room_s`: in how many seconds it will be done, and its last subjob ends.
    """
    return rules.guard != 0 and 0 < held < processes and min(done_s, room_s) > WORTH_MOVES * rules.lambda_s


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
    """Who gives back what he holds, and for whom: how many do.

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
