"""The event loop. At one time, jobs with a planned end by then leave the profile first; then come, in this order,

application ends, terminations, ends of moves, shrinks, and submissions in the order of the log (`paper` ties), or
submissions before all the others (`pyss` ties), with a scheduling pass after each event; or all of them, and one pass
(`batch` ties). With the guard an elastic job that has run on J0 alone is among the terminations.
"""

from __future__ import annotations

import math

from ejbd.core.bundling.parameters import Rules
from ejbd.core.kernel import kernel
from ejbd.sim.cluster import EJB, JOB_ENDS, end_rigid, enqueue, expire, is_taken_for_short, schedule, start_rigid
from ejbd.sim.elastic import application_event, become_elastic, begin_on_j0, placeholder_started
from ejbd.sim.folding import fold_back, unfold
from ejbd.sim.heap import drop_event, rank_of
from ejbd.sim.invariants import check
from ejbd.sim.offering import give_back_beyond, give_back_room, is_giving_back, offer_slots
from ejbd.sim.turns import keep_turns, next_turn
from ejbd.sim.world import (
    DONE,
    EVENTS,
    FAULT,
    FREE,
    FRESH,
    HEAPED,
    IDLE_S,
    KEPT,
    NEXT,
    NOW,
    QUEUED,
    QUEUED_S,
    RIGID,
    STAYS_RIGID,
    VISITS,
    World,
)

PAPER_TIES, PYSS_TIES, BATCH_TIES = 0, 1, 2


@kernel
def next_of_jobs(w: World) -> float:
    """When the next submission or end is, or whatever else becomes of a job; infinite where none is left."""
    time = math.inf
    if w.count[NEXT] < len(w.submit):
        time = w.submit[w.count[NEXT]]
    if w.count[HEAPED] > 0 and w.heap_time[0] < time:
        time = w.heap_time[0]
    return time


@kernel
def next_time(w: World) -> float:
    """When the next event is; infinite where none is left."""
    time = next_of_jobs(w)
    if w.count[KEPT] > 0:  # the turn of a J0 that stays may come
        time = min(time, max(w.clock[NOW], next_turn(w)))
    return time


@kernel
def next_event(w: World, ties: int) -> tuple[int, int]:
    """Go on to the next event. A submission is carried out (-1, and so is the shadow's); of others the job and
    the rank are said."""
    time = next_time(w)
    elapsed = time - w.clock[NOW]
    if elapsed > 0.0:
        if w.count[QUEUED] > 0:
            w.clock[IDLE_S] += elapsed * w.count[FREE]
            w.clock[QUEUED_S] += elapsed
        w.clock[NOW] = time
        expire(w, time)
    w.count[EVENTS] += 1
    submits = w.count[NEXT] < len(w.submit) and w.submit[w.count[NEXT]] <= time
    runs = w.count[HEAPED] > 0 and w.heap_time[0] <= time
    if submits and (ties == PYSS_TIES or not runs):
        enqueue(w, w.count[NEXT])
        w.count[NEXT] += 1
        return -1, JOB_ENDS
    if not runs:
        return -1, JOB_ENDS
    job = w.heap_job[0]
    rank = rank_of(w.heap_order[0])
    drop_event(w, job)
    return job, rank


@kernel
def take_event(w: World, ties: int, rules: Rules) -> None:
    """Carry out the next event, without the pass that follows it."""
    job, rank = next_event(w, ties)
    if job < 0:
        return
    if rank == JOB_ENDS and w.mode[job] == RIGID:
        end_rigid(w, job)
    else:
        application_event(w, job, rank, rules)


@kernel
def react(w: World, policy: int, rules: Rules) -> None:
    """A pass of the batch system, then J0s that have started, then the slots are offered; until nothing moves."""
    again = True
    while again and w.count[FAULT] == 0:
        again = False
        if policy == EJB:
            keep_turns(w)
        starts = schedule(w, policy)
        for index in range(starts):
            job = w.started[index]
            stays = w.candidate[job] == STAYS_RIGID or rules.beyond <= 1.0 or is_taken_for_short(w, job)
            if w.mode[job] == RIGID and (policy != EJB or stays):
                start_rigid(w, job)
            elif w.mode[job] == RIGID:
                begin_on_j0(w, job, rules)  # it may grow beyond what it has got
            elif w.mode[job] != DONE:
                again = placeholder_started(w, job, rules) or again
        if policy != EJB:
            return
        while w.count[FRESH] < w.count[NEXT]:
            job = w.count[FRESH]
            w.count[FRESH] += 1
            if w.candidate[job] != 0 and w.start[job] < 0.0:
                become_elastic(w, job)
        if again:
            continue
        if fold_back(w, rules):
            again = True
            continue
        give_back_beyond(w, rules)
        give_back_room(w, rules)  # first: room that is enough for a waiting job with what others give is not offered
        if w.count[VISITS] > 0 and w.count[FREE] > 0 and not (rules.guard != 0 and is_giving_back(w)):
            unfold(w, rules)
            again = offer_slots(w, rules)


@kernel
def step(w: World, policy: int, ties: int, rules: Rules) -> None:
    """One event and what follows from it; with `batch` ties all events of one time."""
    take_event(w, ties, rules)
    if ties == BATCH_TIES:
        while next_of_jobs(w) <= w.clock[NOW]:  # the shadow's are not over before what follows
            take_event(w, ties, rules)
    react(w, policy, rules)


@kernel
def play_elastic(w: World, policy: int, ties: int, rules: Rules, checking: bool, most: int) -> bool:
    """Play at most so many steps, and not past the first fault; whether there is more to come."""
    steps = 0
    while next_time(w) < math.inf and w.count[FAULT] == 0:
        if steps == most:
            return True
        steps += 1
        step(w, policy, ties, rules)
        if checking:
            check(w, policy, rules)
    return False


@kernel
def play_rigid(w: World, policy: int, ties: int, rules: Rules, checking: bool, most: int) -> bool:
    """The same where no job is elastic: much less to compile."""
    steps = 0
    while next_time(w) < math.inf and w.count[FAULT] == 0:
        if steps == most:
            return True
        steps += 1
        job, _ = next_event(w, ties)
        if job >= 0:
            end_rigid(w, job)
        if ties == BATCH_TIES:
            while next_time(w) <= w.clock[NOW]:
                job, _ = next_event(w, ties)
                if job >= 0:
                    end_rigid(w, job)
        for index in range(schedule(w, policy)):
            start_rigid(w, w.started[index])
        if checking:
            check(w, policy, rules)
    return False
