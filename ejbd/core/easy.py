"""EASY backfilling as a pure scheduler (Mu'alem & Feitelson, TPDS 2001; Liu & Weissman, SC'15, section 2.3).

Jobs start in the order of the queue until one does not fit. That one, the head, gets the only reservation: the shadow
time at which it will fit by the planned ends of the active jobs, and `extra`, the processors that it leaves over then.
Jobs behind it start now if they fit now and either end by the shadow time or take no more than what is left of extra.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    A job that needs more processors than `free` and all active jobs together hold is passed over: it blocks nobody.
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
    if processors <= free:
        return now, free - processors
    shadow = now
    reached = False
    for end, freed in releases:
        if reached and end > shadow:
            break
        free += freed
        if not reached and free >= processors:
            reached = True
            shadow = end
    return (shadow, free - processors) if reached else None


def planned_starts(
    queued: Sequence[QueuedJob], active: Iterable[ActiveJob], free: int, now: float, *, limit: int = 200
) -> dict[str, float]:
    """The expected start of the first `limit` queued jobs if every job ran for exactly its planned walltime.

    For information only: EASY reserves for its head alone, so only the head's start is a promise. Jobs that could
    never fit, and those beyond `limit`, are left out. The cost grows with `limit` times the number of distinct ends.
    """
    waiting = list(queued[:limit])
    releases = sorted((max(job.end_s, now), job.processors) for job in active)
    starts: dict[str, float] = {}
    while waiting:
        started, _, _, _ = _pass(waiting, releases, free, now)
        for index in started:
            job = waiting[index]
            starts[job.id] = now
            free -= job.processors
            insort(releases, (now + job.walltime_s, job.processors))
        if started:
            gone = set(started)
            waiting = [job for index, job in enumerate(waiting) if index not in gone]
        if not releases:
            break
        now = releases[0][0]
        due = 0
        while due < len(releases) and releases[due][0] <= now:
            free += releases[due][1]
            due += 1
        del releases[:due]
    return starts


def _pass(
    queued: Sequence[QueuedJob], releases: Sequence[Release], free: int, now: float
) -> tuple[list[int], int | None, float | None, int]:
    """Indices to start, the head's index, its shadow time and what is left of extra. `releases` in order of time."""
    started: list[int] = []
    capacity: int | None = None
    index = 0
    count = len(queued)
    head: int | None = None
    while index < count:
        need = queued[index].processors
        if need <= free:
            started.append(index)
            free -= need
        else:
            if capacity is None:
                capacity = free + sum(queued[i].processors for i in started) + sum(freed for _, freed in releases)
            if need <= capacity:
                head = index
                break
        index += 1
    if head is None:
        return started, None, None, free

    if started:
        fresh = [(now + queued[i].walltime_s, queued[i].processors) for i in started]
        releases = sorted([*releases, *fresh])
    reservation = shadow_of(queued[head].processors, releases, free, now)
    if reservation is None:  # cannot be: the head was chosen because it fits into everything there is
        raise ValueError(f"job {queued[head].id} has no shadow time although it fits the cluster")
    shadow, extra = reservation
    for index in range(head + 1, count):
        if free == 0:
            break
        job = queued[index]
        if job.processors > free:
            continue
        if now + job.walltime_s > shadow:
            if job.processors > extra:
                continue
            extra -= job.processors
        started.append(index)
        free -= job.processors
    return started, head, shadow, min(free, extra)
