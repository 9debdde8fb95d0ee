"""How fast an over-subscribed application proceeds (Liu & Weissman, SC'15, section 2.2, Eq. 1 to 3).

`processes` is P, `processors` is q, `delta` is the penalty factor of Eq. 2. Work is counted in seconds at full speed:
an application of requested walltime R is done when its work is R. Delta applies to over-subscription only: with a
processor for every process the rate is 1 whatever Delta.
"""

from __future__ import annotations

import math

from ejbd.core.kernel import kernel
from ejbd.core.shapes import Interval, IntervalKind, Timeline

ROUNDING_SLACK_S = 1e-6  # sums of float seconds may come out a hair above the whole second that they mean


@kernel
def round_up(seconds: float, quantum_s: float = 1.0) -> float:
    """The least whole multiple of `quantum_s` that is not below `seconds` by more than a rounding error."""
    if math.isinf(seconds):
        return seconds
    return math.ceil((seconds - ROUNDING_SLACK_S) / quantum_s) * quantum_s


@kernel
def degree(processes: int, processors: int) -> int:
    """Processes that the busiest processor time-shares: ceil(P/q). `processors` is at least 1."""
    return -(-processes // processors)


@kernel
def fewest(processes: int, degree: int) -> int:
    """The fewest processors that give this degree of over-subscription: ceil(P/d)."""
    return -(-processes // degree)


@kernel
def stretch(degree: int, delta: float) -> float:
    """How many seconds one second of full-speed work takes at this degree (Eq. 2): 1, or Delta times the degree."""
    return 1.0 if degree <= 1 else delta * degree


@kernel
def rate(processes: int, processors: int, delta: float) -> float:
    """Work per second on that many processors: 1 for one process a processor, 1/(Delta*d) otherwise, 0 on none."""
    return 1.0 / stretch(degree(processes, processors), delta) if processors > 0 else 0.0


def work(timeline: Timeline, processes: int, delta: float, until_s: float = math.inf) -> float:
    """Full-speed seconds done by `until_s` (Eq. 3): every RUN interval counts at its rate, MIGRATE makes none."""
    return sum(
        max(0.0, min(interval.end_s, until_s) - interval.start_s) * rate(processes, interval.processors, delta)
        for interval in timeline
        if interval.kind is IntervalKind.RUN
    )


def progress(timeline: Timeline, processes: int, requested_s: float, delta: float, until_s: float = math.inf) -> float:
    """The share of the application that is done by `until_s`: 0 to 1."""
    return min(1.0, work(timeline, processes, delta, until_s) / requested_s)


def time_left(work_left_s: float, processes: int, processors: int, delta: float) -> float:
    """Seconds that `work_left_s` takes on a constant number of processors; infinite on none."""
    if work_left_s <= 0.0:
        return 0.0
    return work_left_s * stretch(degree(processes, processors), delta) if processors > 0 else math.inf


def completion(timeline: Timeline, processes: int, requested_s: float, delta: float) -> float | None:
    """When the work of `timeline` reaches `requested_s` (not rounded), or None where it never does."""
    left = requested_s
    for interval in timeline:
        if interval.kind is not IntervalKind.RUN:
            continue
        needed = time_left(left, processes, interval.processors, delta)
        if needed <= interval.length_s + ROUNDING_SLACK_S:
            return interval.start_s + needed
        left -= interval.length_s * rate(processes, interval.processors, delta)
    return None


def run_interval(start_s: float, end_s: float, processors: int) -> Interval:
    """A stretch that makes progress on `processors`."""
    return Interval(IntervalKind.RUN, start_s, end_s - start_s, processors)


def migrate_interval(start_s: float, end_s: float, processors: int) -> Interval:
    """A stretch in which ranks move; `processors` are those held meanwhile."""
    return Interval(IntervalKind.MIGRATE, start_s, end_s - start_s, processors)
