"""Plain EASY, played alongside: when each job would have started by now if no job were elastic.

Every job that comes waits here, too, rigid and in the same order. How long it runs is known once it has ended in
reality. Until then it runs on here, at most until its walltime is over. So what ends here before it does in reality
keeps its processors for too long: the others are promised too little here, rather than too much.

Where whole nodes of several processors are kept for the head of the queue there are two shadows (:class:`Shadows`).
Which nodes these are, and what else is free on the others then, hangs on where each job lies. That is not played. In
the loose shadow all of the others is free for jobs behind the head. In the strict one none is. So a job starts late
beyond doubt only where it does by both.

Kernels for both worlds. Jobs are numbers, times are seconds that never go back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ejbd.core.closing import queue_closes
from ejbd.core.easy import add_release, easy_schedule
from ejbd.core.kernel import Floats, Ints, kernel

TOTAL, FREE, QUEUED, DUE, RUNNING, UNIT = range(6)  # entries of `counts`
COUNTS = 6


class Shadow(NamedTuple):
    """What waits and what runs under plain EASY.

    The first QUEUED entries of `queue`, `processors` and `walltimes` wait, in order. The first DUE of `ends` and
    `freed` are the planned releases in order of time. The first RUNNING of `running`, `held` and `planned` are jobs
    that run, their processors and planned ends. By job: `start` (infinite: it waits) and `end` (infinite: not known;
    of a job that has ended in reality and waits here it is its run time, below 0).
    """

    counts: Ints
    queue: Ints
    processors: Ints
    walltimes: Floats
    ends: Floats
    freed: Ints
    running: Ints
    held: Ints
    planned: Floats
    started: Ints
    start: Floats
    end: Floats


def new_shadow(jobs: int, processors: int, unit: int, ints: Callable[[int], Any], floats: Callable[..., Any]) -> Shadow:
    """An empty cluster for so many jobs; `unit`: reservations are of whole ones. `ints` and `floats` make vectors."""
    most = processors + 2  # that run at a time
    shadow = Shadow(
        ints(COUNTS), ints(jobs), ints(jobs), floats(jobs), floats(most), ints(most), ints(most), ints(most),
        floats(most), ints(jobs), floats(jobs, math.inf), floats(jobs, math.inf),
    )  # fmt: skip
    shadow.counts[TOTAL] = shadow.counts[FREE] = processors
    shadow.counts[UNIT] = unit
    return shadow


class Shadows(NamedTuple):
    """The same jobs twice; where one is enough both are one and the same."""

    loose: Shadow
    strict: Shadow


def new_shadows(
    jobs: int, processors: int, unit: int, ints: Callable[[int], Any], floats: Callable[..., Any], nodes: bool = True
) -> Shadows:
    """As :func:`new_shadow`. All processors as one unit leave nothing over beside the head. `nodes`: the units that are
    kept are nodes, with jobs on parts of them, and not numbers of processors."""
    loose = new_shadow(jobs, processors, unit, ints, floats)
    two = nodes and 1 < unit < processors
    return Shadows(loose, new_shadow(jobs, processors, processors, ints, floats) if two else loose)


@kernel
def are_two(both: Shadows) -> bool:
    """Whether the strict shadow is not the loose one."""
    return both.strict.counts[UNIT] != both.loose.counts[UNIT]


@kernel
def soonest_turn(both: Shadows, job: int) -> float:
    """When a job has started by one of them at least; infinite: by none."""
    return min(both.loose.start[job], both.strict.start[job])


@kernel
def latest_turn(both: Shadows, job: int) -> float:
    """When a job has started by both; infinite: it has not."""
    return max(both.loose.start[job], both.strict.start[job])


@kernel
def shadow_joins(s: Shadow, job: int, processors: int, walltime_s: float, at: int) -> None:
    """A job comes, and waits at this place of the queue, ahead of what was there; nothing starts yet."""
    count = s.counts[QUEUED]
    for index in range(count, at, -1):
        s.queue[index] = s.queue[index - 1]
        s.processors[index] = s.processors[index - 1]
        s.walltimes[index] = s.walltimes[index - 1]
    s.queue[at] = job
    s.processors[at] = processors
    s.walltimes[at] = walltime_s
    s.counts[QUEUED] = count + 1


@kernel
def shadow_leaves(s: Shadow, job: int, now: float) -> None:
    """A job is gone that never began in reality: it waits no longer, or its processors come free now."""
    if s.start[job] < math.inf:
        s.end[job] = now
        return
    kept = 0
    for at in range(s.counts[QUEUED]):
        if s.queue[at] != job:
            s.queue[kept] = s.queue[at]
            s.processors[kept] = s.processors[at]
            s.walltimes[kept] = s.walltimes[at]
            kept += 1
    s.counts[QUEUED] = kept


@kernel
def shadow_learns(s: Shadow, job: int, run_s: float, now: float) -> None:
    """A job has ended in reality: so long it runs in its own shape."""
    if s.start[job] < math.inf:
        s.end[job] = max(now, s.start[job] + run_s)
    else:
        s.end[job] = -run_s


@kernel
def shadow_next(s: Shadow) -> float:
    """When the next of those that run ends, as far as that is known."""
    time = math.inf
    for index in range(s.counts[RUNNING]):
        time = min(time, s.end[s.running[index]], s.planned[index])
    return time


@kernel
def shadow_steps(s: Shadow, now: float) -> bool:
    """What ends next, if it does so by now, with a pass of EASY. False: nothing does."""
    time = shadow_next(s)
    if time > now:
        return False
    _end_by(s, time)
    shadow_passes(s, time)
    return True


@kernel
def shadow_turns_to(s: Shadow, now: float) -> None:
    """All that ends by now."""
    while shadow_steps(s, now):
        pass


@kernel
def _end_by(s: Shadow, time: float) -> None:
    kept = 0
    for index in range(s.counts[RUNNING]):
        if min(s.end[s.running[index]], s.planned[index]) <= time:
            _release(s, s.planned[index], s.held[index])
        else:
            s.running[kept] = s.running[index]
            s.held[kept] = s.held[index]
            s.planned[kept] = s.planned[index]
            kept += 1
    s.counts[RUNNING] = kept


@kernel
def _release(s: Shadow, planned_s: float, processors: int) -> None:
    due = s.counts[DUE]
    at = 0
    while s.ends[at] != planned_s or s.freed[at] != processors:
        at += 1
    for index in range(at + 1, due):
        s.ends[index - 1] = s.ends[index]
        s.freed[index - 1] = s.freed[index]
    s.counts[DUE] = due - 1
    s.counts[FREE] += processors


@kernel
def shadow_passes(s: Shadow, now: float) -> None:
    """One pass of EASY over those that wait. What ends by now has ended before."""
    count = s.counts[QUEUED]
    if count == 0 or s.counts[FREE] <= 0:
        return
    starts, head, _, _ = easy_schedule(
        s.processors, s.walltimes, count, s.ends, s.freed, s.counts[DUE], s.counts[FREE], s.counts[TOTAL], now,
        s.started, s.counts[UNIT],
    )  # fmt: skip
    for index in range(starts):
        _start(s, s.started[index], head, now)
    if starts > 0:
        s.counts[QUEUED] = queue_closes(s.queue, s.processors, s.walltimes, s.started, starts, count)


@kernel
def _start(s: Shadow, at: int, head: int, now: float) -> None:
    job = s.queue[at]
    planned_s = now + s.walltimes[at]
    if head < 0 or at < head:  # among the releases already
        s.counts[DUE] += 1
    else:
        s.counts[DUE] = add_release(s.ends, s.freed, s.counts[DUE], planned_s, s.processors[at])
    s.counts[FREE] -= s.processors[at]
    s.start[job] = now
    if s.end[job] <= 0.0:
        s.end[job] = now - s.end[job]
    place = s.counts[RUNNING]
    s.running[place] = job
    s.held[place] = s.processors[at]
    s.planned[place] = planned_s
    s.counts[RUNNING] = place + 1
