"""Backfill windows: by hand, against EASY's own slots, and against checks that look at every second and every node."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass
from ejbd.core.room.windows import Windows, why_they_end, windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations, SiteReservation

NOW = 1000.0
HORIZON = 200


def queue(name: str = "batch", *, up: bool = True, limit: float | None = None, quantum: int = 1) -> QueueView:
    return QueueView(name, up, limit, quantum, 64)


def node(name: str, free: int, processors: int = 4, queues: tuple[str, ...] = ("batch",), up: bool = True) -> NodeView:
    return NodeView(name, processors, free, up, queues)


def running(id: str, processors: int, ends_in: float, *nodes: str, queue: str = "batch") -> BatchJobView:
    return BatchJobView(id, id, "u", queue, BatchState.RUNNING, processors, end_s=NOW + ends_in, nodes=nodes)


def pending(
    id: str,
    processors: int,
    starts_in: float | None,
    *nodes: str,
    walltime: float = 50,
    queue: str = "batch",
    state: BatchState = BatchState.PENDING,
) -> BatchJobView:
    planned = None if starts_in is None else NOW + starts_in
    return BatchJobView(id, id, "u", queue, state, processors, walltime, planned_start_s=planned, planned_nodes=nodes)


def view(
    nodes: list[NodeView],
    jobs: list[BatchJobView],
    *queues: QueueView,
    by: Reservations = Reservations.PROCESSORS,
    walltime_quantum: float = 1.0,
    reserved: tuple[SiteReservation, ...] = (),
) -> ClusterView:
    queues = queues or (queue(),)
    return ClusterView(NOW, tuple(nodes), tuple(jobs), queues, by, walltime_quantum, site_reservations=reserved)


def kept(starts_in: float, ends_in: float, *nodes: str, **more: Any) -> SiteReservation:
    return SiteReservation("m", NOW + starts_in, NOW + ends_in, nodes, **more)


def slots(seen: ClusterView, name: str = "batch") -> list[tuple[int, float]]:
    return [(slot.processors, slot.duration_s) for slot in windows(seen, name, NOW).slots()]


def test_an_empty_queue_gives_one_slot_without_an_end() -> None:
    assert slots(view([node("a", 3), node("b", 2)], [running("r", 3, 70)])) == [(5, UNLIMITED)]


def test_nothing_free_gives_no_slot() -> None:
    assert slots(view([node("a", 0)], [])) == []


def test_easy_gives_extra_without_an_end_and_free_until_the_shadow_time() -> None:
    jobs = [running("r", 3, 70), running("s", 2, 90), pending("head", 4, 70)]
    assert slots(view([node("a", 2), node("b", 0)], jobs)) == [(1, UNLIMITED), (2, 70)]


def test_a_conservative_system_gives_one_step_more_for_every_job_that_is_in_the_way() -> None:
    jobs = [pending("one", 2, 100, walltime=1000), pending("two", 3, 50, walltime=500)]
    assert slots(view([node("a", 4), node("b", 4)], jobs)) == [(3, UNLIMITED), (5, 100), (8, 50)]


def test_without_any_planned_start_the_first_that_does_not_fit_is_the_head() -> None:
    jobs = [running("r", 3, 70), pending("head", 4, None), pending("next", 5, None)]
    assert slots(view([node("a", 2)], jobs)) == [(1, UNLIMITED), (2, 70)]


def test_where_jobs_wait_and_nodes_are_not_planned_yet_room_is_counted_in_processors() -> None:
    jobs = [running("r", 3, 70, "b"), pending("head", 4, None)]
    nodes = [node("a", 2), node("b", 0)]
    assert slots(view(nodes, jobs, by=Reservations.NODES)) == [(1, UNLIMITED), (2, 70)]
    planned = [jobs[0], pending("head", 4, 70, "a", "b"), pending("new", 2, None)]
    assert slots(view(nodes, planned, by=Reservations.NODES)) == [(2, 70)]
    blocked = [jobs[0], replace(jobs[1], blocked=True)]
    assert slots(view(nodes, blocked, by=Reservations.NODES)) == [(2, UNLIMITED)]


def test_a_held_job_reserves_nothing() -> None:
    jobs = [running("r", 3, 70), pending("h", 4, 70, state=BatchState.HELD)]
    assert slots(view([node("a", 2)], jobs)) == [(2, UNLIMITED)]


def test_a_free_processor_is_usable_until_the_first_planned_start_on_its_node() -> None:
    nodes = [node("a", 2), node("b", 1), node("c", 4), node("d", 4, up=False)]
    jobs = [pending("one", 8, 300, "a", "b"), pending("two", 4, 120, "b"), pending("bare", 4, 60)]
    assert slots(view(nodes, jobs, by=Reservations.NODES)) == [(4, UNLIMITED), (6, 300), (7, 120)]


def test_a_job_of_another_queue_that_shares_the_nodes_counts() -> None:
    nodes = [node("a", 2, queues=("batch", "debug")), node("b", 3), node("x", 9, queues=("debug",))]
    jobs = [pending("one", 2, 90, "a", "x", queue="debug")]
    seen = view(nodes, jobs, queue(), queue("debug"), by=Reservations.NODES)
    assert slots(seen) == [(3, UNLIMITED), (5, 90)]
    assert slots(seen, "debug") == [(11, 90)]


def test_a_running_job_of_another_queue_frees_only_what_it_holds_on_our_nodes() -> None:
    nodes = [node("a", 1, queues=("batch", "debug")), node("x", 0, queues=("debug",))]
    jobs = [running("r", 8, 40, "a", "x", queue="debug"), pending("head", 5, 40)]
    assert slots(view(nodes, jobs, queue(), queue("debug"))) == [(1, 40)]


def test_exclusive_nodes_count_whole_and_walltimes_are_cut_to_their_quantum() -> None:
    nodes = [node("a", 4), node("b", 3), node("c", 4)]
    jobs = [pending("one", 4, 179, "c")]
    seen = view(nodes, jobs, queue(quantum=4), by=Reservations.NODES, walltime_quantum=60)
    assert slots(seen) == [(4, UNLIMITED), (8, 120)]


def test_a_planned_start_less_than_a_quantum_away_leaves_nothing() -> None:
    jobs = [pending("one", 4, 59, "a")]
    assert slots(view([node("a", 4)], jobs, by=Reservations.NODES, walltime_quantum=60)) == []


def test_the_queues_walltime_limit_ends_every_slot() -> None:
    nodes = [node("a", 1), node("b", 1), node("c", 1)]
    jobs = [pending("far", 1, 5000, "b"), pending("near", 1, 120, "c")]
    assert slots(view(nodes, jobs, queue(limit=3600), by=Reservations.NODES)) == [(2, 3600), (3, 120)]


def test_a_queue_that_is_down_or_unknown_has_no_slot() -> None:
    assert slots(view([node("a", 4)], [], queue(up=False))) == []
    assert slots(view([node("a", 4)], []), "nowhere") == []


BOTH = pytest.mark.parametrize("by", list(Reservations))
FOUR = [node("a", 4), node("b", 4), node("c", 4), node("d", 4)]


@BOTH
def test_a_coming_reservation_takes_its_nodes_from_its_start(by: Reservations) -> None:
    seen = view(FOUR, [], by=by, reserved=(kept(240, 2040, "a", "b", "elsewhere"),))
    assert slots(seen) == [(8, UNLIMITED), (16, 240)]
    assert slots(view(FOUR, [], by=by, reserved=(kept(240, 2040, "a", "b", "c", "d"),))) == [(16, 240)]


@BOTH
def test_a_reservation_that_has_begun_takes_its_nodes_now_and_one_that_is_over_none(by: Reservations) -> None:
    seen = view(FOUR, [], by=by, reserved=(kept(-60, 2040, "a", "b"), kept(-60, 0, "c"), kept(5, math.inf, "d")))
    assert slots(seen) == [(4, UNLIMITED), (8, 5)]


@BOTH
def test_one_that_lets_us_in_ends_windows_before_it_and_at_its_end(by: Reservations) -> None:
    assert slots(view(FOUR, [], by=by, reserved=(kept(-60, 600, "a", admits=True),))) == [(12, UNLIMITED), (16, 600)]
    assert slots(view(FOUR, [], by=by, reserved=(kept(60, 600, "a", admits=True),))) == [(12, UNLIMITED), (16, 60)]
    always = kept(-math.inf, math.inf, "a", admits=True)
    assert slots(view(FOUR, [], by=by, reserved=(always,))) == [(16, UNLIMITED)]


@BOTH
def test_a_part_of_a_node_is_kept_and_the_rest_is_not(by: Reservations) -> None:
    nodes = [node("a", 3), node("b", 4)]
    assert slots(view(nodes, [], by=by, reserved=(kept(240, 600, "a", processors=2),))) == [(5, UNLIMITED), (7, 240)]
    assert slots(view(nodes, [], by=by, reserved=(kept(240, 600, "a", processors=9),))) == [(4, UNLIMITED), (7, 240)]


@BOTH
def test_overlapping_reservations_take_a_node_once(by: Reservations) -> None:
    seen = view(FOUR, [], by=by, reserved=(kept(100, 300, "a", "b"), kept(200, 900, "b"), kept(50, 60, "a")))
    assert slots(seen) == [(8, UNLIMITED), (12, 100), (16, 50)]


def test_what_comes_free_on_reserved_nodes_is_no_use_to_a_planned_start() -> None:
    jobs = [running("r", 4, 70, "b"), pending("head", 6, 80, walltime=1000)]
    nodes = [node("a", 4), node("b", 0), node("c", 4)]
    assert slots(view(nodes, jobs)) == [(6, UNLIMITED), (8, 80)]
    assert slots(view(nodes, jobs, reserved=(kept(60, 5000, "b"),))) == [(2, UNLIMITED), (8, 80)]
    assert slots(view(nodes, jobs, reserved=(kept(75, 5000, "b"),))) == [(2, UNLIMITED), (8, 80)]


def test_a_start_that_waits_for_the_end_of_the_maintenance_is_no_shadow_time() -> None:
    jobs = [running("r", 4, 70, "d"), pending("head", 16, None, walltime=100)]
    nodes = [*FOUR[:3], node("d", 0)]
    # Without it the head starts in 70 s. It would not end before the maintenance, so that what is before it is free.
    assert slots(view(nodes, jobs)) == [(12, 70)]
    assert slots(view(nodes, jobs, reserved=(kept(150, 900, "a"),))) == [(8, 900), (12, 150)]
    planned = [jobs[0], pending("head", 16, 900, "a", "b", "c", "d", walltime=100)]
    by = Reservations.NODES
    assert slots(view(nodes, planned, by=by, reserved=(kept(150, 900, "a"),))) == [(8, 900), (12, 150)]
    assert slots(view(nodes, planned, by=by, reserved=(kept(150, 900, "a", "b", "c", "d"),))) == [(12, 150)]


def test_it_is_told_what_ends_a_window() -> None:
    jobs = [pending("17", 4, 330, "b")]
    reserved = (kept(270, 2040, "a", what="maintenance"), kept(500, 900, "x"))
    nodes = [*FOUR, node("x", 1, queues=("other",))]
    seen = view(nodes, jobs, queue(limit=3600), by=Reservations.NODES, walltime_quantum=60, reserved=reserved)
    found = windows(seen, "batch", NOW).slots()
    assert [slot.duration_s for slot in found] == [3600, 300, 240]
    assert why_they_end(seen, "batch", found) == [
        "walltime limit of queue batch",
        "planned start of job 17",
        "maintenance m",
    ]
    assert why_they_end(view(FOUR, []), "batch", windows(view(FOUR, []), "batch", NOW).slots()) == [""]


def test_taking_more_than_there_is_says_so() -> None:
    seen = windows(view([node("a", 2)], []), "batch", NOW)
    with pytest.raises(ValueError, match=r"3 processors for 10 s do not fit: 2 are free"):
        seen.take(3, 10)


def test_taking_prefers_what_is_of_the_least_use_to_others() -> None:
    start = Windows(NOW, (BackfillSlot(2, UNLIMITED), BackfillSlot(5, 100), BackfillSlot(9, 30)))
    assert start.take(4, 20).steps == (BackfillSlot(2, UNLIMITED), BackfillSlot(5, 100))
    assert start.take(4, 60).steps == (BackfillSlot(1, UNLIMITED), BackfillSlot(5, 30))
    assert start.take(2, UNLIMITED).steps == (BackfillSlot(3, 100), BackfillSlot(7, 30))


# Everything in whole seconds, so that the slow checks may look at each of them.
RUNNING = st.lists(st.tuples(st.integers(1, 6), st.integers(-3, 90)), max_size=6)
PLANNED = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 90), st.integers(1, 90)), min_size=1, max_size=5)
TAKES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, HORIZON)), max_size=4)


def check_staircase(seen: Windows) -> None:
    steps = seen.slots()
    assert all(step.processors > 0 and step.duration_s > 0 for step in steps)
    for long, short in pairwise(steps):
        assert long.duration_s > short.duration_s
        assert long.processors < short.processors


@given(RUNNING, PLANNED, st.integers(0, 12), TAKES)
def test_processors_agree_with_a_look_at_every_second(
    active: list[tuple[int, int]],
    planned: list[tuple[int, int, int]],
    free: int,
    takes: list[tuple[int, int]],
) -> None:
    jobs = [running(f"r{i}", p, e) for i, (p, e) in enumerate(active)]
    jobs += [pending(f"p{i}", p, s, walltime=w) for i, (p, s, w) in enumerate(planned)]
    seen = windows(view([node("a", free, 99)], jobs), "batch", NOW)
    profile = []
    for second in range(HORIZON):
        level = free + sum(p for p, e in active if e <= second)
        profile.append(level - sum(p for p, s, w in planned if s <= second < s + w))
    profile[0] = min(profile[0], free)  # what is overdue is not free yet

    def check() -> None:
        check_staircase(seen)
        for duration in range(1, HORIZON + 1):
            assert seen.available(duration) == max(0, min(profile[:duration]))

    check()
    for processors, duration in takes:
        if seen.available(duration) >= processors:
            seen = seen.take(processors, duration)
            profile[:duration] = [level - processors for level in profile[:duration]]
            check()


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(-2, 90), st.sets(st.integers(0, 5), min_size=1)), max_size=5),
    TAKES,
    st.sampled_from([1, 2]),
)
def test_nodes_agree_with_a_look_at_every_node(
    free: list[int], planned: list[tuple[int, set[int]]], takes: list[tuple[int, int]], quantum: int
) -> None:
    nodes = [node(f"n{i}", f) for i, f in enumerate(free)]
    jobs = [pending(f"p{i}", 1, s, *(f"n{n}" for n in names)) for i, (s, names) in enumerate(planned)]
    seen = windows(view(nodes, jobs, queue(quantum=quantum), by=Reservations.NODES), "batch", NOW)
    left = [
        (min((float(s) for s, names in planned if i in names), default=math.inf), f // quantum * quantum)
        for i, f in enumerate(free)
    ]

    def check() -> None:
        check_staircase(seen)
        for duration in range(1, HORIZON + 1):
            assert seen.available(duration) == sum(f for end, f in left if end >= duration)

    check()
    for processors, duration in takes:
        units = math.ceil(processors / quantum) * quantum
        if seen.available(duration) < units:
            with pytest.raises(ValueError, match="do not fit"):
                seen.take(processors, duration)
            continue
        seen = seen.take(processors, duration)
        left.sort()
        for index, (end, held) in enumerate(left):  # those that end first after the job, as it is documented
            if end >= duration:
                taken = min(units, held)
                left[index] = (end, held - taken)
                units -= taken
        check()


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60)), max_size=8),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 60)), max_size=6),
    st.integers(0, 12),
)
def test_the_staircase_is_easys_own_pair_of_slots(
    shapes: list[tuple[int, int]], active: list[tuple[int, int]], free: int
) -> None:
    waiting = [QueuedJob(f"q{i}", p, w) for i, (p, w) in enumerate(shapes)]
    holding = [ActiveJob(f"r{i}", p, NOW + e) for i, (p, e) in enumerate(active)]
    first = easy_pass(waiting, holding, free, NOW)
    jobs = {job.id: job for job in waiting}
    for id in first.starts:
        free -= jobs[id].processors
        holding.append(ActiveJob(id, jobs[id].processors, NOW + jobs[id].walltime_s))
    seen = [running(job.id, job.processors, job.end_s - NOW) for job in holding]
    if first.head is not None and first.shadow_s is not None:
        head = jobs[first.head]
        seen.append(pending(head.id, head.processors, first.shadow_s - NOW, walltime=head.walltime_s))
    expected = [(min(free, first.extra), UNLIMITED)] if first.extra else []
    if first.shadow_s is not None and free > first.extra:
        expected.append((free, first.shadow_s - NOW))
    assert slots(view([node("a", free, 99)], seen)) == expected
