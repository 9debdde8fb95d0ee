"""EASY backfilling over nodes: which waiting jobs start now, where, and when the first of the others will.

The rules are those of :mod:`ejbd.core.easy`. There a job needs processors; here it needs them as its layout says: a
free processor on the wrong node does not help it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ejbd.batch.local.jobs import Job
from ejbd.batch.local.nodes import Nodes, Shares


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one pass decided: the jobs to start, each with its processors; the first job left waiting that has a
    reservation (None: none), and when it can start at the latest."""

    starts: tuple[tuple[Job, Shares], ...] = ()
    head: Job | None = None
    shadow_s: float | None = None


def plan_starts(waiting: Sequence[Job], active: Iterable[Job], nodes: Nodes, now: float) -> Schedule:
    """One pass at `now` over the waiting jobs in their order. `nodes` stays as it is.

    A job that would not fit on nodes without any other job is passed over: it blocks none.
    """
    room, later = nodes.copy(), None
    releases = [(max(job.end_s or now, now), job.held) for job in active]
    starts: list[tuple[Job, Shares]] = []
    head, shadow_s = None, None
    for job in waiting:
        if job.processors > room.all_free and (head is not None or job.processors > nodes.total):
            continue
        shares = room.place(job.processors, job.layout)
        if head is None:
            if shares is not None:
                starts.append((job, shares))
                releases.append((now + job.walltime_s, shares))
            elif (found := _shadow(job, room, releases)) is not None:
                head, (shadow_s, later) = job, found
        elif shares is not None:
            if now + job.walltime_s <= (shadow_s or now) or _leaves_room(head, later, shares):
                starts.append((job, shares))
            else:
                room.give_back(shares)
    return Schedule(tuple(starts), head, shadow_s)


def _shadow(job: Job, room: Nodes, releases: Sequence[tuple[float, Shares]]) -> tuple[float, Nodes] | None:
    """When a job fits by the planned ends, and what is free then before it starts. None where it never fits."""
    free = room.copy()
    ordered = sorted(releases, key=lambda release: release[0])
    for place, (end_s, shares) in enumerate(ordered):
        free.give_back(shares)
        if place + 1 < len(ordered) and ordered[place + 1][0] == end_s:
            continue
        if free.copy().place(job.processors, job.layout) is not None:
            return end_s, free
    return None


def _leaves_room(head: Job, later: Nodes | None, shares: Shares) -> bool:
    """Whether the head fits at its time beside a job on these processors, which are then taken off that time's."""
    if later is None:
        return True
    later.retake(shares)
    if later.copy().place(head.processors, head.layout) is not None:
        return True
    later.give_back(shares)
    return False
