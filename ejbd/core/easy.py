"""EASY backfilling as a pure scheduler (Mu'alem & Feitelson, TPDS 2001; Liu & Weissman, SC'15, section 2.3).

Jobs start in the order of the queue until one does not fit. That one, the head, gets the only reservation: the shadow
time at which it will fit by the planned ends of the active jobs, and `extra`, the processors that it leaves over then.
Jobs behind it start now if they fit now and either end by the shadow time or take no more than what is left of extra.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import whole_units

Release = tuple[float, int]  # (planned end in seconds, processors that come free then)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A waiting job: its processors and its requested walltime in seconds."""

    id: str
    processors: int
    walltime_s: float


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that holds processors until its planned end (`end_s`, on the caller's clock).

    A planned end that lies in the past counts as now: the processors are not free yet, but are due at any moment.
    """

    id: str
    processors: int
    end_s: float


@dataclass(frozen=True, slots=True)
class EasyPass:
    """What one pass decided.

    `starts`: the jobs to start now, in that order. `head`: the first job left waiting that has a reservation (None: no
    job waits, or none that could ever fit); `shadow_s`: when it can start at the latest. `extra`: processors, free
    after `starts`, that may be used without any end in time; without a head these are all that are free.
    """

    starts: tuple[str, ...]
    head: str | None
    shadow_s: float | None
    extra: int


def easy_pass(queued: Sequence[QueuedJob], active: Iterable[ActiveJob], free: int, now: float) -> EasyPass:
    """One scheduling pass at `now` over the queue in its order, with `free` idle processors.

    A job that needs more processors than `free` and all active jobs together hold is passed over: it blocks no other.
    """
    releases = sorted((max(job.end_s, now), job.processors) for job in active)
    started, head, shadow, extra = _pass(queued, releases, free, now)
    return EasyPass(
        starts=tuple(queued[index].id for index in started),
        head=None if head is None else queued[head].id,
        shadow_s=shadow,
        extra=extra,
    )


def shadow_of(processors: int, releases: Sequence[Release], free: int, now: float) -> tuple[float, int] | None:
    """When a job of `processors` fits, and how many are left over then, by `releases` in order of time.

    Every planned end up to and including the shadow time counts. None where it never fits.
    """
    ends = [end for end, _ in releases]
    freed = [count for _, count in releases]
    shadow, extra = shadow_time(processors, ends, freed, len(ends), free, now)
    return (shadow, extra) if shadow < math.inf else None


def _pass(
    queued: Sequence[QueuedJob], releases: Sequence[Release], free: int, now: float
) -> tuple[list[int], int | None, float | None, int]:
    """Indices to start, the head's index, its shadow time and what is left of extra. `releases` in order of time."""
    count = len(queued)
    due = len(releases)
    room = due + count
    ends: list[float] = [0.0] * room
    freed: list[int] = [0] * room
    for index, (end, processors) in enumerate(releases):
        ends[index] = end
        freed[index] = processors
    processors_of = [job.processors for job in queued]
    walltimes: list[float] = [job.walltime_s for job in queued]
    capacity = free + sum(freed)
    started = [0] * count
    starts, head, shadow, extra = easy_schedule(
        processors_of, walltimes, count, ends, freed, due, free, capacity, now, started
    )
    if head < 0:
        return started[:starts], None, None, extra
    return started[:starts], head, shadow, extra


@kernel
def easy_schedule(
    processors: Ints,
    walltimes: Floats,
    count: int,
    ends: Floats,
    freed: Ints,
    due: int,
    free: int,
    capacity: int,
    now: float,
    started: Ints,
    unit: int = 1,
) -> tuple[int, int, float, int]:
    """One pass: (how many start, index of the head or -1, its shadow time, what is left of extra).

    The head's reservation is of whole units (nodes of `unit` processors), as far as there are any.

    The first `count` entries of `processors` and `walltimes` are the queue, the first `due` of `ends` and `freed` what
    the active jobs release, in order of time; both must have room for the jobs that start ahead of the head, which are
    put in their places there. `capacity` is `free` and all releases together. Indices to start go to `started`.
    """
    starts = 0
    head = -1
    index = 0
    while index < count:
        need = processors[index]
        if need <= free:
            started[starts] = index
            starts += 1
            free -= need
            due = add_release(ends, freed, due, now + walltimes[index], need)
        elif need <= capacity:
            head = index
            break
        index += 1
    if head < 0:
        return starts, -1, math.inf, free
    shadow, extra = shadow_time(processors[head], ends, freed, due, free, now, unit)
    if free > 0:
        for index in range(head + 1, count):
            need = processors[index]
            if need > free:
                continue
            if now + walltimes[index] > shadow:
                if need > extra:
                    continue
                extra -= need
            started[starts] = index
            starts += 1
            free -= need
            if free == 0:
                break
    return starts, head, shadow, min(free, extra)


@kernel
def shadow_time(
    processors: int, ends: Floats, freed: Ints, due: int, free: int, now: float, unit: int = 1
) -> tuple[float, int]:
    """When a job of `processors` fits by the first `due` releases, and what is left over then; infinite if never.

    Every planned end up to and including the shadow time counts. What is left over is beside whole units (nodes of
    `unit` processors), as far as there are any.
    """
    reserved = whole_units(processors, unit)
    if processors <= free:
        return now, max(0, free - reserved)
    index = 0
    while index < due:
        free += freed[index]
        index += 1
        if free >= processors:
            shadow = ends[index - 1]
            while index < due and ends[index] <= shadow:
                free += freed[index]
                index += 1
            return shadow, max(0, free - reserved)
    return math.inf, 0


@kernel
def add_release(ends: Floats, freed: Ints, due: int, end: float, processors: int) -> int:
    """Put a release in its place in order of time, behind those of the same time; the new number of releases."""
    place = due
    while place > 0 and ends[place - 1] > end:
        ends[place] = ends[place - 1]
        freed[place] = freed[place - 1]
        place -= 1
    ends[place] = end
    freed[place] = processors
    return due + 1


@kernel
def fcfs_schedule(processors: Ints, count: int, free: int, started: Ints) -> int:
    """First come, first served: how many start, strictly in the order of the queue, until one does not fit."""
    starts = 0
    while starts < count and processors[starts] <= free:
        free -= processors[starts]
        started[starts] = starts
        starts += 1
    return starts
