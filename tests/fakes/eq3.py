"""Eq. 3 over a planned timeline, told a second time: by what the intervals say, not by the walk that made them."""

from __future__ import annotations

import math

from ejbd.core.delta import Delta, delta_at, rate_with
from ejbd.core.progress import ROUNDING_SLACK_S, degree, stretch
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline


def work(timeline: PlannedTimeline, processes: int, delta: Delta, until_s: float = math.inf) -> float:
    """Full-speed seconds done by `until_s` (Eq. 3): every RUN interval counts at its rate, nothing else does."""
    return sum(
        max(0.0, min(interval.end_s, until_s) - interval.start_s) * rate_with(processes, interval.processors, delta)
        for interval in timeline
        if interval.kind is PlannedKind.RUN
    )


def progress(
    timeline: PlannedTimeline, processes: int, requested_s: float, delta: Delta, until_s: float = math.inf
) -> float:
    """The share of the application that is done by `until_s`: 0 to 1."""
    return min(1.0, work(timeline, processes, delta, until_s) / requested_s)


def time_left(work_left_s: float, processes: int, processors: int, delta: Delta) -> float:
    """Seconds that `work_left_s` takes on a constant number of processors; infinite on none."""
    if work_left_s <= 0.0:
        return 0.0
    over = degree(processes, max(1, processors))
    return work_left_s * stretch(over, delta_at(delta, over)) if processors > 0 else math.inf


def completion(timeline: PlannedTimeline, processes: int, requested_s: float, delta: Delta) -> float | None:
    """When the work of `timeline` reaches `requested_s` (not rounded), or None where it never does."""
    left = requested_s
    for interval in timeline:
        if interval.kind is not PlannedKind.RUN:
            continue
        needed = time_left(left, processes, interval.processors, delta)
        if needed <= interval.length_s + ROUNDING_SLACK_S:
            return interval.start_s + needed
        left -= interval.length_s * rate_with(processes, interval.processors, delta)
    return None


def run_interval(start_s: float, end_s: float, processors: int) -> PlannedInterval:
    """A stretch that makes progress on `processors`, of a job of 4 processes."""
    return PlannedInterval(PlannedKind.RUN, start_s, end_s, processors, degree(4, processors) if processors else 0)


def move_interval(start_s: float, end_s: float, processors: int) -> PlannedInterval:
    """A stretch in which ranks move; `processors` are those held meanwhile."""
    return PlannedInterval(PlannedKind.MOVE, start_s, end_s, processors, 0)
