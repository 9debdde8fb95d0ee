"""FCFS-malleable: which jobs are folded for the head of a pool's queue, and which unfolded; asked as a policy is."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ejbd.config import settings_model
from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.malleable.folding import Begin, begin, half, spare, unfolded
from ejbd.core.malleable.halves import halves, part
from ejbd.core.malleable.parameters import First, MalleableParameters
from ejbd.core.malleable.pool import Pool, PoolJob
from ejbd.core.malleable.stretching import Model, paces
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.state import ElasticState
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations

SHARED = QueueView("batch", True, None, 1, 4, default=True, jobs_a_processor=2)
WIDTHS = st.lists(st.integers(1, 64), max_size=12)


def test_figure_2_job_by_job() -> None:
    assert begin(8, 10, []) == Begin(8, 0)
    assert begin(4, 2, [4]) == Begin(4, 1), "J2 starts whole, once J1 is folded"
    assert begin(2, 2, [2]) == Begin(2, 0), "J3 needs none folded"
    assert begin(8, 0, [2, 1]) is None, "J4 waits, and J2 and J3 are not folded in vain"
    assert begin(8, 6, []) == Begin(4, 0), "J4 starts folded on processors that are free"
    assert begin(10, 4, []) is None


@given(st.integers(1, 64), st.integers(0, 64), WIDTHS, st.booleans())
def test_what_starts_fits_and_no_more_are_folded_than_it_takes(
    width: int, free: int, widths: list[int], folds: bool
) -> None:
    spares = [spare(one) for one in widths if one > 1]
    found = begin(width, free, spares, folds)
    least = half(width) if folds else width
    if found is None:
        assert free + sum(spares) < least, "it waits only where nothing would help"
        return
    assert found.processors in {width, least}
    assert free + sum(spares[: found.folded]) >= found.processors
    assert not found.folded or free + sum(spares[: found.folded - 1]) < found.processors
    assert found.processors == width or free + sum(spares) < width, "folded only where it cannot start whole"


@given(st.integers(0, 64), WIDTHS)
def test_unfolding_takes_no_more_than_is_free(free: int, spares: list[int]) -> None:
    places = unfolded(free, spares)
    left = free - sum(spares[place] for place in places)
    assert left >= 0 and places == sorted(places)
    assert all(spares[place] > left for place in range(len(spares)) if place not in places)


@pytest.mark.parametrize(
    ("model", "whole", "folded"),
    [("delta", 1, 2.4), ("linear", 1, 2), ("stretch", 1, 1.7), ("paper", 1.1, 1.7), ("ovshrunk", 1, 1.7)],
)
def test_models_of_the_run_time(model: str, whole: float, folded: float) -> None:
    found = paces(Model(model), use=0.6, overhead=0.5, stretch=1.7, delta=1.2)
    assert found == pytest.approx((whole, folded))
    assert paces(Model.OVSHRUNK, use=0.1, overhead=0.1, stretch=1, delta=1)[1] == 1, "none is faster folded"


def pool(free: int, *running: PoolJob, waiting: int = 1) -> Pool:
    return Pool(free, running, waiting)


def asked(
    processes: int,
    of: Pool,
    parameters: MalleableParameters | None = None,
    *,
    situation: Situation = Situation.HEADS,
    job: str = "head",
    movable: bool = True,
) -> Decision:
    state = ElasticState(job, processes, 3600.0, movable=movable)
    question = Question(situation, state, (), 5.0, parameters or MalleableParameters(), "fcfs-malleable", pool=of)
    again = Question.from_json(json.loads(json.dumps(question.to_json())))
    decision = question.answer()
    assert again == question and again.answer() == decision, "a replay says the same"
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision
    return decision


A, B, C = PoolJob("a", 8, 8, 900.0, 0.9), PoolJob("b", 6, 6, 300.0, 0.5), PoolJob("c", 4, 4, 600.0, 0.2)


def test_a_start_says_on_what_and_who_is_folded_for_it() -> None:
    decision = asked(4, pool(1, A, B))
    assert (decision.kind, decision.folds, decision.code) == (DecisionKind.START, ("a",), ReasonCode.FOLDED)
    assert [request.processors for request in decision.requests] == [4] and "starts whole" in decision.reason
    assert asked(4, pool(4, A)).code == ReasonCode.FITS
    narrow = asked(8, pool(0, PoolJob("a", 8, 4, 900.0), B, C))
    assert (narrow.requests[0].processors, narrow.folds) == (4, ("b", "c")), "a is folded already"
    vain = asked(20, pool(1, A, B))
    assert (vain.kind, vain.code) == (DecisionKind.NOTHING, ReasonCode.IN_VAIN) and not vain.folds


@pytest.mark.parametrize(
    ("first", "folded"), [("oldest", "a"), ("least-used", "c"), ("longest", "a"), ("shortest", "b")]
)
def test_who_is_folded_first_is_a_parameter(first: str, folded: str) -> None:
    decision = asked(2, pool(0, A, B, C), MalleableParameters(first=First(first)))
    assert decision.folds == (folded,)


def test_what_must_not_be_folded_is_not() -> None:
    kept = PoolJob("kept", 8, 8, 900.0, folds=False)
    assert asked(2, pool(0, kept, B)).folds == ("b",)
    assert asked(4, pool(2), movable=False).kind is DecisionKind.NOTHING, "nor is the head itself"
    assert asked(4, pool(2, A), MalleableParameters(mpl=1)).kind is DecisionKind.NOTHING


def test_folded_jobs_are_unfolded_once_none_waits_the_oldest_first() -> None:
    a, b = PoolJob("a", 8, 4, 900.0), PoolJob("b", 6, 3, 300.0)
    kinds = {job: asked(8, pool(5, a, b, waiting=0), situation=Situation.FOLDED, job=job).kind for job in ("a", "b")}
    assert kinds == {"a": DecisionKind.EXPAND, "b": DecisionKind.NOTHING}
    assert asked(8, pool(9, a, b), situation=Situation.FOLDED, job="a").kind is DecisionKind.NOTHING


def test_in_a_queue_it_asks_for_nothing_beside_j0() -> None:
    assert settings_model("fcfs-malleable")(policy="fcfs-malleable").policy == "fcfs-malleable"
    assert asked(4, pool(8), situation=Situation.RUNNING).kind is DecisionKind.NOTHING


def there(*jobs: tuple[str, int, tuple[str, ...]], node: int = 4) -> ClusterView:
    """Running jobs (id, processors, nodes) in a queue where two may share a processor."""
    nodes = tuple(NodeView(name, node, 0, True, ("batch",)) for name in ("n1", "n2"))
    views = tuple(
        BatchJobView(id, f"j{id}", "me", "batch", BatchState.RUNNING, processors, 60.0, start_s=float(at), nodes=names)
        for at, (id, processors, names) in enumerate(jobs)
    )
    return ClusterView(100.0, nodes, views, (SHARED,), Reservations.PROCESSORS, walltime_quantum_s=1.0)


def test_two_jobs_that_share_a_node_keep_to_parts_of_it_by_what_each_was_given() -> None:
    whole, small, wide = ("1", 4, ("n1",)), ("2", 1, ("n1",)), ("3", 3, ("n1",))
    ours = {"1", "2", "3"}
    assert halves(there(whole, wide), ours) == {"1": {"n1": (0, 1, 2)}, "3": {"n1": (3,)}}
    assert halves(there(wide, whole), ours) == {"3": {"n1": (0, 1)}, "1": {"n1": (2, 3)}}
    assert halves(there(whole, small), ours) == {"1": {"n1": (0, 1, 2)}, "2": {"n1": (3,)}}
    assert halves(there(wide), ours) == {"3": {"n1": (0, 1, 2)}}, "alone it has what it was given"
    assert halves(there(small, wide), ours) == {}, "they fit beside each other"
    assert halves(there(small, wide, whole), ours) == {}
    assert halves(there(wide, whole), {"3"}) == {}, "which processors the other one uses is not known"
    both = ("4", 5, ("n1", "n2"))
    assert halves(there(both), {"4"}) == {}, "how many of each node is not known"


@given(st.integers(2, 64).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(1, n))))
def test_none_of_two_that_share_has_more_than_it_was_given_and_each_has_some(told: tuple[int, int, int]) -> None:
    size, first, second = told
    assume(first + second > size)
    kept = part(size, first, second)
    assert 1 <= kept <= first and 1 <= size - kept <= second and 2 * kept >= first
    assert (first, second) != (size, size) or kept == half(size)
