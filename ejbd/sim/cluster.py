"""The simulated batch system's processors and queue: the bookkeeping around core's schedulers."""

from __future__ import annotations

import math

from ejbd.core.closing import queue_closes, vector_closes
from ejbd.core.conservative import conservative_schedule
from ejbd.core.easy import add_release, easy_schedule, fcfs_schedule
from ejbd.core.kernel import kernel
from ejbd.core.lasting import FEWEST_RUNS, noted
from ejbd.core.lateness import with_one_more
from ejbd.core.shortruns import is_short, learned, taken_for_short
from ejbd.sim.heap import set_event
from ejbd.sim.turns import turns_learn
from ejbd.sim.world import (
    ASKED,
    BAD_FREE,
    DUE,
    FAULT,
    FREE,
    KEPT,
    LAUNCH_S,
    NOW,
    PLAIN_LAUNCH_S,
    PLAIN_RELEASE_S,
    QUEUED,
    RELEASE_S,
    RIGID,
    RUN_SQUARES,
    RUN_WORK,
    RUNS,
    RUNS_S,
    SHORT_S,
    STAYS_RIGID,
    TOTAL,
    UNIT,
    USED,
    World,
)

FCFS, EASY, CONSERVATIVE, EJB = 0, 1, 2, 3  # policies
APPLICATION_ENDS, JOB_ENDS, MOVE_ENDS, SHRINKS = 0, 1, 2, 3  # ranks of events at one time, in this order


@kernel
def expire(w: World, now: float) -> None:
    """Jobs with a planned end by now leave the profile: their processors are free, whether they have ended or not."""
    due = w.count[DUE]
    gone = 0
    while gone < due and w.ends[gone] <= now:
        w.count[FREE] += w.freed[gone]
        gone += 1
    if gone > 0:
        for index in range(gone, due):
            w.ends[index - gone] = w.ends[index]
            w.freed[index - gone] = w.freed[index]
        w.count[DUE] = due - gone


@kernel
def hold(w: World, processors: int, end: float) -> None:
    """Give out processors until a planned end."""
    w.count[DUE] = add_release(w.ends, w.freed, w.count[DUE], end, processors)
    w.count[FREE] -= processors


@kernel
def give_back(w: World, processors: int, end: float, now: float) -> None:
    """Take back processors that were given out until `end`; nothing if the profile has dropped them already."""
    if end <= now:
        return
    due = w.count[DUE]
    low = 0
    high = due
    while low < high:
        middle = (low + high) // 2
        if w.ends[middle] < end:
            low = middle + 1
        else:
            high = middle
    while low < due and w.freed[low] != processors:
        low += 1
    if low == due or w.ends[low] != end:
        w.count[FAULT] = BAD_FREE
        return
    for index in range(low + 1, due):
        w.ends[index - 1] = w.ends[index]
        w.freed[index - 1] = w.freed[index]
    w.count[DUE] = due - 1
    w.count[FREE] += processors


@kernel
def enqueue(w: World, job: int) -> None:
    """Put a job at the end of the queue."""
    at = w.count[QUEUED]
    w.queue[at] = job
    w.queue_processors[at] = w.processors[job]
    w.queue_walltime[at] = w.walltime[job]
    w.queue_reserved[at] = math.inf
    w.count[QUEUED] = at + 1


@kernel
def dequeue(w: World, job: int) -> None:
    """Take a job out of the queue."""
    count = w.count[QUEUED]
    at = 0
    while at < count and w.queue[at] != job:
        at += 1
    if at == count:
        return
    for index in range(at + 1, count):
        _move(w, index, index - 1)
    w.count[QUEUED] = count - 1


@kernel
def _move(w: World, source: int, target: int) -> None:
    w.queue[target] = w.queue[source]
    w.queue_processors[target] = w.queue_processors[source]
    w.queue_walltime[target] = w.queue_walltime[source]
    w.queue_reserved[target] = w.queue_reserved[source]


@kernel
def head_at(w: World) -> int:
    """Where the head of the queue stands: behind J0s that stay; -1 where none waits."""
    if w.count[KEPT] == 0:
        return 0 if w.count[QUEUED] > 0 else -1
    for at in range(w.count[QUEUED]):
        if w.queue_processors[at] <= w.count[TOTAL]:
            return at
    return -1


@kernel
def schedule(w: World, policy: int) -> int:
    """One pass of the batch system: how many jobs start. They hold their processors now; `started` numbers them."""
    count = w.count[QUEUED]
    if count == 0:
        return 0
    free = w.count[FREE]
    if free <= 0 and policy != CONSERVATIVE:
        return 0
    now = w.clock[NOW]
    due = w.count[DUE]
    if policy == FCFS:
        starts = fcfs_schedule(w.queue_processors, count, free, w.started)
    elif policy == CONSERVATIVE:
        starts = conservative_schedule(
            w.queue_processors,
            w.queue_walltime,
            w.queue_reserved,
            count,
            w.ends,
            w.freed,
            due,
            free,
            now,
            w.profile_times,
            w.profile_levels,
            w.started,
        )
    else:
        starts, head, _, _ = easy_schedule(
            w.queue_processors,
            w.queue_walltime,
            count,
            w.ends,
            w.freed,
            due,
            free,
            w.count[TOTAL],
            now,
            w.started,
            w.count[UNIT],
        )
        ahead = 0  # those ahead of the head are in the profile already
        while ahead < starts and (head < 0 or w.started[ahead] < head):
            w.count[FREE] -= w.queue_processors[w.started[ahead]]
            ahead += 1
        w.count[DUE] = due + ahead
        for index in range(ahead, starts):
            at = w.started[index]
            hold(w, w.queue_processors[at], now + w.queue_walltime[at])
    if policy != EASY and policy != EJB:
        for index in range(starts):
            at = w.started[index]
            hold(w, w.queue_processors[at], now + w.queue_walltime[at])
    if starts > 0:
        vector_closes(w.queue_reserved, w.started, starts, count)
        w.count[QUEUED] = queue_closes(w.queue, w.queue_processors, w.queue_walltime, w.started, starts, count)
    return starts


@kernel
def start_rigid(w: World, job: int) -> None:
    """A job starts in its own shape."""
    now = w.clock[NOW]
    w.mode[job] = RIGID
    w.start[job] = now
    seconds = w.run[job]
    if w.candidate[job] != STAYS_RIGID:
        if is_taken_for_short(w, job):
            w.without_workers[job] = 1
            seconds += w.clock[PLAIN_LAUNCH_S] + w.clock[PLAIN_RELEASE_S]
        else:
            seconds += w.clock[LAUNCH_S] + w.clock[RELEASE_S]
    set_event(w, job, now + seconds, JOB_ENDS)


@kernel
def learn_run(w: World, job: int) -> None:
    """One more run is over: how long they last, as :func:`ejbd.core.lasting.noted` has it."""
    w.clock[RUN_WORK], w.clock[RUN_SQUARES] = noted(
        w.clock[RUN_WORK], w.clock[RUN_SQUARES], w.processors[job], w.run[job]
    )
    w.clock[USED] = with_one_more(w.clock[USED], w.processors[job], w.run[job])
    w.clock[ASKED] = with_one_more(w.clock[ASKED], w.processors[job], max(w.run[job], w.walltime[job]))
    w.count[RUNS] += 1
    if w.count[RUNS] >= FEWEST_RUNS:
        w.clock[RUNS_S] = w.clock[RUN_SQUARES] / w.clock[RUN_WORK]
    short = is_short(w.run[job], w.clock[SHORT_S], 1.0)
    for like in (w.likes[job], w.kin[job]):
        if like >= 0:
            w.like_bits[like], w.like_runs[like], w.like_short[like] = learned(
                w.like_bits[like], w.like_runs[like], w.like_short[like], short
            )


@kernel
def is_taken_for_short(w: World, job: int) -> bool:
    """Whether a job that begins in its own shape needs no workers, since runs like it are short."""
    like, kin = w.likes[job], w.kin[job]
    if like < 0:
        return False
    return taken_for_short(w.like_runs[like], w.like_short[like], w.like_runs[kin], w.like_short[kin])


@kernel
def end_rigid(w: World, job: int) -> None:
    """A job ends, on its own or because its walltime is over."""
    learn_run(w, job)
    now = w.clock[NOW]
    w.end[job] = now
    turns_learn(w, job, now)
    w.used[job] = w.processors[job] * (now - w.start[job])
    give_back(w, w.processors[job], w.start[job] + w.walltime[job], now)
