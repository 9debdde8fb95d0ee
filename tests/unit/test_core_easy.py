"""EASY backfilling: small cases by hand, and properties against definitions written out in full."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass, easy_schedule
from ejbd.core.room.slots import easy_slots

QUEUE = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60)), max_size=10).map(
    lambda shapes: [QueuedJob(f"q{i}", p, float(w)) for i, (p, w) in enumerate(shapes)]
)
ACTIVE = st.lists(st.tuples(st.integers(1, 6), st.integers(-5, 60)), max_size=6).map(
    lambda shapes: [ActiveJob(f"a{i}", p, float(e)) for i, (p, e) in enumerate(shapes)]
)


def earliest_fit(processors: int, active: list[ActiveJob], free: int, now: float) -> float | None:
    """When that many processors are free, by trying now and every planned end in turn."""
    for time in sorted({now, *(max(job.end_s, now) for job in active)}):
        if free + sum(job.processors for job in active if job.end_s <= time and time > now) >= processors:
            return time
        overdue = sum(job.processors for job in active if job.end_s <= now)
        if time == now and free + overdue >= processors:
            return now
    return None


def test_jobs_start_in_the_order_of_the_queue_while_they_fit() -> None:
    result = easy_pass([QueuedJob("a", 2, 10), QueuedJob("b", 1, 10)], [], 4, 0)
    assert result.starts == ("a", "b")
    assert result.head is None
    assert result.shadow_s is None
    assert result.extra == 1


def test_a_short_job_passes_the_head_and_a_long_one_takes_only_extra() -> None:
    active = [ActiveJob("x", 3, 60), ActiveJob("y", 2, 200)]
    queue = [QueuedJob("head", 4, 100), QueuedJob("short", 1, 60), QueuedJob("long", 1, 61), QueuedJob("wide", 2, 5)]
    result = easy_pass(queue, active, 2, 0)
    assert (result.head, result.shadow_s) == ("head", 60)
    assert result.starts == ("short", "long")
    assert result.extra == 0


def test_every_planned_end_at_the_shadow_time_counts_for_extra() -> None:
    active = [ActiveJob("x", 3, 60), ActiveJob("y", 2, 60), ActiveJob("z", 2, 61)]
    result = easy_pass([QueuedJob("head", 4, 100)], active, 2, 0)
    assert (result.shadow_s, result.extra) == (60, 2)


def test_a_backfilled_job_that_ends_by_the_shadow_time_leaves_extra_alone() -> None:
    active = [ActiveJob("x", 4, 100)]
    queue = [QueuedJob("head", 6, 10), QueuedJob("short", 2, 100), QueuedJob("long", 1, 1000)]
    result = easy_pass(queue, active, 4, 0)
    assert result.starts == ("short", "long")
    assert result.extra == 1


def test_a_job_that_could_never_fit_blocks_nobody() -> None:
    result = easy_pass([QueuedJob("giant", 9, 10), QueuedJob("b", 4, 1000)], [ActiveJob("x", 2, 50)], 4, 0)
    assert result.starts == ("b",)
    assert result.head is None


def test_an_overdue_job_is_due_now_but_gives_nothing_yet() -> None:
    result = easy_pass([QueuedJob("head", 4, 10), QueuedJob("b", 2, 5)], [ActiveJob("late", 2, 90)], 2, 100)
    assert (result.head, result.shadow_s, result.starts) == ("head", 100, ())


@given(QUEUE, ACTIVE, st.integers(0, 12))
def test_a_pass_never_overfills_and_never_delays_the_head(
    queue: list[QueuedJob], active: list[ActiveJob], free: int
) -> None:
    result = easy_pass(queue, active, free, 0)
    jobs = {job.id: job for job in queue}
    left = free - sum(jobs[id].processors for id in result.starts)
    assert left >= 0
    assert 0 <= result.extra <= left
    if result.head is None:
        return
    position = [job.id for job in queue].index(result.head)
    before = [job.id for job in queue[:position]]
    started = [ActiveJob(id, jobs[id].processors, jobs[id].walltime_s) for id in result.starts]
    ahead = [job for job in started if job.id in before]
    free_ahead = free - sum(job.processors for job in ahead)
    promised = earliest_fit(jobs[result.head].processors, active + ahead, free_ahead, 0)
    assert result.shadow_s == promised
    assert earliest_fit(jobs[result.head].processors, active + started, left, 0) == promised
    for job in queue[position + 1 :]:  # whoever still waits would have delayed the head
        if job.id not in result.starts and job.processors <= left:
            more = [*active, *started, ActiveJob(job.id, job.processors, job.walltime_s)]
            delayed = earliest_fit(jobs[result.head].processors, more, left - job.processors, 0)
            assert delayed is not None
            assert delayed > (promised or 0)


def test_whole_nodes_are_reserved_for_the_head() -> None:
    """10 processors, 4 of them held until 100. The head of 7 leaves 3 over, or 2 where it gets two nodes of 4."""
    left = {}
    for unit in (1, 4):
        ends, freed = [100.0, 0.0, 0.0, 0.0], [4, 0, 0, 0]
        started = [0] * 4
        starts, _, shadow, extra = easy_schedule([7, 3], [50.0, 500.0], 2, ends, freed, 1, 6, 10, 10.0, started, unit)
        assert shadow == 100
        left[unit] = (started[:starts], extra)
    assert left == {1: ([1], 0), 4: ([], 2)}
    processors, durations = [0, 0], [0.0, 0.0]
    assert easy_slots(7, [100.0], [4], 1, 6, 10.0, processors, durations, 4) == 2
    assert (processors, durations) == ([2, 6], [math.inf, 90.0])
    assert easy_slots(7, [100.0], [4], 1, 6, 10.0, processors, durations) == 2
    assert processors == [3, 6]
