"""What a rank takes of a node: places, and the windows of a job that needs more than a processor for each rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.needs import PLAIN, Needs, features_of, seen_by
from ejbd.core.placing import Host, place, place_wide
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchJobView, BatchState, ClusterView, MemoryRules, NodeView, QueueView, Reservations
from ejbd.manager.facts.batchjob.fitting import fitted, least_by_memory, request_of
from ejbd.manager.jobspec import JobRequest, JobSpec, read

NOW = 1000.0


def node(name: str, free: int = 4, memory_mb: int = 1000, free_mb: int | None = None, **more: object) -> NodeView:
    free_mb = memory_mb if free_mb is None else free_mb
    return NodeView(name, 4, free, True, ("batch",), memory_mb=memory_mb, free_memory_mb=free_mb, **more)  # type: ignore[arg-type]


def view(*nodes: NodeView, jobs: tuple[BatchJobView, ...] = (), quantum: int = 1, **memory: object) -> ClusterView:
    queue = QueueView("batch", True, None, quantum, sum(one.processors for one in nodes), default=True)
    rules = MemoryRules(**memory)  # type: ignore[arg-type]
    return ClusterView(NOW, nodes, jobs, (queue,), Reservations.NODES, 60.0, memory=rules)


def spec(lines: str, body: str = "srun ./a\n") -> JobSpec:
    text = f"#!/bin/bash\n#SBATCH -t 10 {lines}\n{body}"
    found = read(JobRequest(cwd="/", script=text))
    assert not found.refusals, found.refusals
    return found.spec


def fit(lines: str, seen: ClusterView, omax: int = 4) -> JobSpec:
    found = fitted(spec(lines), seen, "batch", omax)
    assert not found.obstacle, found.obstacle
    return found.spec


FOUR = view(node("n1"), node("n2"), node("n3", 3), node("n4", 0))


def test_most_jobs_see_the_cluster_as_it_is() -> None:
    assert fit("-n 4", FOUR).needs == PLAIN
    assert seen_by(FOUR, PLAIN) is FOUR


def test_a_rank_of_threads_takes_processors_of_one_node() -> None:
    needs = fit("-n 4 -c 2", FOUR).needs
    assert needs.processors == 2
    assert windows(seen_by(FOUR, needs), "batch", NOW).available(60) == 2 + 2 + 1
    asked = request_of(fit("-n 4 -c 2", FOUR), 6, FOUR, "batch", first=False)
    assert (asked.tasks, asked.threads, asked.words) == (3, 2, ())


def test_memory_bounds_how_many_ranks_share_a_processor_and_where_there_is_room() -> None:
    seen = view(node("n1"), node("n2", 4, free_mb=300), counted=True)
    light, heavy = fit("-n 8 --mem-per-cpu=50M", seen), fit("-n 8 --mem-per-cpu=200M", seen)
    assert (light.needs.omax, light.needs.memory_mb) == (None, 200)
    assert (heavy.needs.omax, heavy.needs.memory_mb) == (1, 200)
    assert windows(seen_by(seen, light.needs), "batch", NOW).available(60) == 4 + 1
    asked = request_of(light, 3, seen, "batch", first=False)
    assert asked.words == ("--mem-per-cpu=200M",)
    assert request_of(light, 8, seen, "batch", first=True).words == ("--mem-per-cpu=50M",)


def test_what_the_site_gives_who_does_not_ask_for_memory_counts_too() -> None:
    assert fit("-n 8", view(node("n1"), counted=True, default_mb_per_processor=125)).needs.omax == 2
    assert fit("-n 8", view(node("n1"), counted=True)).needs.omax == 1  # all of a node's memory, for four ranks
    limited = view(node("n1"), counted=True, default_mb_per_processor=60, most_mb_per_processor=130)
    assert fit("-n 8", limited).needs.omax == 2
    assert fit("-n 8", view(node("n1"))).needs == PLAIN


def whole(lines: str, seen: ClusterView, widths: str = "any") -> JobSpec:
    """Of a profile whose program needs the same memory in all at each width."""
    asked = replace(spec(lines), widths=widths, profile={"memory": "whole"})
    found = fitted(asked, seen, "batch", 4)
    assert not found.obstacle, found.obstacle
    return found.spec


def test_what_all_ranks_need_together_is_asked_for_by_fewer_of_them() -> None:
    seen = view(node("n1"), node("n2"), counted=True)
    for lines, each in (("-n 8 --mem-per-cpu=200M", 200), ("-N 4 -n 8 --mem=500M", 250)):
        needs = whole(lines, seen).needs
        assert (needs.memory_mb, needs.whole_mb, needs.omax) == (each, 8 * each, None)
    job = whole("-n 8 --mem-per-cpu=200M", seen)
    words = [request_of(job, width, seen, "batch", first=False).words for width in (8, 4, 3)]
    assert words == [("--mem-per-cpu=200M",), ("--mem-per-cpu=400M",), ("--mem-per-cpu=534M",)]
    alone = request_of(job, 3, seen, "batch", first=False, width=2)
    assert alone.words == ("--mem-per-cpu=800M",), "two ranks are to fit where three processors are"
    assert request_of(job, 8, seen, "batch", first=True).words == ("--mem-per-cpu=200M",)
    nodes = whole("-N 2 -n 8 --mem=800M --exclusive", seen)
    assert request_of(nodes, 4, seen, "batch", first=False).words == ("--exclusive", "--mem=1600M")


def test_a_width_of_which_a_rank_needs_more_than_a_node_has_is_too_narrow() -> None:
    seen = view(node("n1"), node("n2"), counted=True)
    job = whole("-n 8 --mem-per-cpu=400M", seen)
    assert least_by_memory(job.needs, seen, "batch") == 4, "of 3 each would need 1067 MB of 1000"
    limited = view(node("n1"), node("n2"), counted=True, most_mb_per_processor=640)
    assert least_by_memory(job.needs, limited, "batch") == 5
    assert least_by_memory(job.needs, None, "batch") == least_by_memory(fit("-n 8", seen).needs, seen, "batch") == 1
    nodes = whole("-N 4 -n 16 --mem=500M --exclusive", seen)
    assert least_by_memory(nodes.needs, seen, "batch") == 8, "on whole nodes four ranks share what one has"


def test_what_a_site_gives_by_default_is_no_need_and_stays_as_it_is() -> None:
    seen = view(node("n1"), counted=True, default_mb_per_processor=125)
    assert whole("-n 8", seen).needs == fit("-n 8", seen).needs


def test_room_has_the_memory_of_all_ranks_on_as_few_as_there_are() -> None:
    nodes = [node("n1", 4, free_mb=500), node("n2", 3, free_mb=900), node("n3", 2, memory_mb=0)]
    needs = Needs(memory_mb=200, whole_mb=1200)

    def room(of: list[NodeView], places: int, width_on: Callable[[int], int] = int, unit: int = 1) -> int:
        return needs.room_of_whole(of, places, width_on, unit)

    assert room(nodes[:2], 7) == 5, "there is room for 2 and 3, be it for six of 200 MB or for five of 240 MB"
    assert room(nodes[:2], 7, lambda places: 1 << (places.bit_length() - 1)) == 4, "of five four would run, of 300 MB"
    assert room(nodes[:2], 6, unit=2) == 4
    assert room(nodes, 9) == 8, "what a node does not tell is no bound"
    assert room(nodes[:1], 4) == 0, "500 MB are free, and 1200 needed"
    assert room(nodes, 9, lambda places: places if places > 8 else 0) == 0, "there is no narrower width"
    alone = replace(needs, whole_nodes=True, per_node=4)
    assert alone.room_of_whole([node("n1"), node("n2", free_mb=500)], 8, int, 4) == 0
    assert alone.room_of_whole([node("n1"), node("n2")], 8, int, 4) == 8, "of 150 MB each"


def test_memory_of_a_node_is_shared_by_the_ranks_it_would_have() -> None:
    assert fit("-n 8 --mem=500M", FOUR).needs.memory_mb == 2 * 125
    assert fit("-N 4 -n 8 --mem=500M", FOUR).needs.memory_mb == 250
    assert fit("-n 8 --mem=0", FOUR).needs.omax == 1
    assert "more than a node has" in fitted(spec("-n 1 --mem=2000M"), FOUR, "batch", 4).obstacle


def test_whole_nodes_give_as_many_places_as_the_user_wants_ranks_on_each() -> None:
    hybrid = fit("-N 2 --ntasks-per-node=1 --exclusive", FOUR)
    assert (hybrid.processes, hybrid.needs.processors, hybrid.needs.per_node) == (2, 4, 1)
    assert windows(seen_by(FOUR, hybrid.needs), "batch", NOW).available(60) == 2  # n3 is not idle
    asked = request_of(hybrid, 4, FOUR, "batch", first=False)
    assert (asked.tasks, asked.tasks_per_node, asked.words) == (1, 1, ("--exclusive",))
    alone = fit("-N 2 --exclusive", FOUR)
    assert (alone.processes, alone.needs.processors, alone.needs.per_node) == (8, 1, 4)
    of_queue = fit("-N 2", view(node("n1"), node("n2"), quantum=4))
    assert of_queue.processes == 8 and not of_queue.needs.whole_nodes


def test_only_nodes_that_fit_have_room() -> None:
    seen = view(node("n1", features=("ib",)), node("n2", features=("ib", "fast")), node("n3"))
    free = {
        "-C ib": 8,
        "-C ib&fast": 4,
        "-C ib|slow": 8,
        "-x n1": 8,
        "-w n[2-3]": 8,
    }
    for lines, places in free.items():
        needs = fit(f"-n 4 {lines}", seen).needs
        assert windows(seen_by(seen, needs), "batch", NOW).available(60) == places, lines
    # A part of the user's nodes will do for a subjob, where -w would ask for all of them.
    assert request_of(fit("-n 4 -w n[2-3]", seen), 4, seen, "batch", first=False).exclude == ("n1",)
    first = request_of(fit("-n 4 -w n[2-3] -x n1", seen), 4, seen, "batch", first=True)
    assert (first.words, first.exclude) == (("--nodelist=n[2-3]",), ("n1",))
    assert "no node of the queue" in fitted(spec("-n 1 -C gpu"), seen, "batch", 4).obstacle
    assert features_of("[a|b]") is None and features_of("a&b|c") is None


def test_devices_are_never_shared_and_a_job_with_them_keeps_its_shape() -> None:
    seen = view(node("n1", gres=(("gpu", 2, 2),)), node("n2", gres=(("gpu", 2, 1),)), node("n3"))
    job = fit("-N 1 -n 2 --gres=gpu:2", seen)
    assert job.needs.omax == 1
    assert windows(seen_by(seen, job.needs), "batch", NOW).available(60) == 2
    asked = request_of(job, 2, seen, "batch", first=False)
    assert (asked.tasks, asked.nodes, asked.words) == (2, 1, ("--gres=gpu:2",))


def test_others_who_wait_count_as_many_places_as_they_would_take() -> None:
    waiting = BatchJobView("1", "x", "u", "batch", BatchState.PENDING, 3, 60.0, planned_start_s=NOW + 600)
    held = replace(waiting, id="2", state=BatchState.RUNNING)
    seen = seen_by(view(node("n1"), jobs=(waiting, held)), Needs(processors=2))
    assert [job.processors for job in seen.jobs] == [2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 64_000)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 8000),
    st.integers(1, 40),
    st.integers(1, 8),
)
def test_no_placement_exceeds_what_a_node_has_left_of_its_memory(
    nodes: list[tuple[int, int]], threads: int, rank_mb: int, ranks: int, omax: int
) -> None:
    seen = ClusterView(
        NOW,
        tuple(
            NodeView(f"n{i}", 16, free, True, ("batch",), memory_mb=64_000, free_memory_mb=free_mb)
            for i, (free, free_mb) in enumerate(nodes)
        ),
        (),
        (QueueView("batch", True, None, 1, 16 * len(nodes), default=True),),
        Reservations.NODES,
        memory=MemoryRules(counted=True),
    )
    found = fitted(spec(f"-n {ranks} -c {threads} --mem-per-cpu={rank_mb}M"), seen, "batch", omax)
    if found.obstacle:
        return
    needs = found.spec.needs
    most = omax if needs.omax is None else needs.omax
    places = {one.name: needs.free(one) for one in seen.nodes}
    if sum(places.values()) * most < ranks:
        return  # the policy would not start it
    for seat in (seats := place(ranks, [Host(name, count) for name, count in places.items()])):
        assert sum(other[1:] == seat[1:] for other in seats) <= most
    for one in seen.nodes:
        here = sum(seat.worker == one.name for seat in seats)
        assert here * rank_mb * threads <= one.free_memory_mb
        assert places[one.name] * needs.processors <= one.free


def test_a_launch_of_fewer_ranks_than_the_job_may_have_more_processors_for_each() -> None:
    seats, own = place_wide(2, [Host("a", 4), Host("b", 4)], 4)
    assert [seat.worker for seat in seats] == ["a", "b"]
    assert own == {0: (0, 1, 2, 3), 1: (0, 1, 2, 3)}
    seats, own = place_wide(2, [Host("a", 2)], 4)  # over-subscribed
    assert [(seat.worker, own[seat.rank]) for seat in seats] == [("a", (0,)), ("a", (1,))]
    assert place_wide(3, [Host("a", 4)], 1)[0] == place(3, [Host("a", 4)])


@pytest.mark.parametrize(
    ("size", "wide", "dealt", "where"),
    [  # as srun was seen to lay them out on two nodes of four processors
        (8, 1, 0, "aaaabbbb"),
        (8, 1, 1, "abababab"),
        (8, 1, 3, "aaabbbab"),
        (2, 1, 0, "ab"),
        (3, 1, 0, "aab"),
        (5, 1, 0, "aaabb"),
        (3, 1, 1, "aba"),
        (4, 1, 3, "aaab"),
        (5, 1, 2, "aabba"),
        (2, 2, 0, "ab"),
        (3, 2, 1, "aba"),
        (16, 1, 1, "abababababababab"),  # over-subscribed: so many each, as else, and in turn
    ],
)
def test_ranks_are_laid_out_over_nodes_as_srun_does(size: int, wide: int, dealt: int, where: str) -> None:
    seats, own = place_wide(size, [Host("a", 4), Host("b", 4)], wide, even=True, dealt=dealt)
    assert "".join(seat.worker for seat in seats) == where and [seat.rank for seat in seats] == list(range(size))
    used = [(seat.worker, number) for seat in seats for number in own[seat.rank]]
    assert size > 8 or len(set(used)) == len(used) == size * wide


def test_the_nodes_of_a_view_are_looked_at_once_however_many_jobs_are_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    allows = Needs.allows

    def counted(needs: Needs, one: NodeView) -> bool:
        looked.append(one.name)
        return allows(needs, one)

    monkeypatch.setattr(Needs, "allows", counted)
    script = "#!/bin/sh\n#SBATCH -n 4 -t 5 --mem-per-cpu=100\nsrun x\n"
    spec = read(JobRequest(cwd="/", script=script)).spec
    seen = view(*(node(f"n{i}") for i in range(50)))
    first = fitted(spec, seen, "batch", 8)
    assert [fitted(spec, seen, "batch", 8) for _ in range(20)] == [first] * 20
    assert len(looked) == 50
    smaller = replace(seen, nodes=seen.nodes[:10])
    assert fitted(spec, smaller, "batch", 8) == first and len(looked) == 60, "another view is looked at anew"
