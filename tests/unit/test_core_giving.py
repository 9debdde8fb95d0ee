"""Who gives back to whom: in whole nodes, by the queues whose nodes these are, and as the simulator does it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ejbd.core.bundling.giving import borrowed, folded, givers
from ejbd.core.bundling.guard import COMPUTES_S, LOOKED_AT, folding_pays
from ejbd.core.bundling.parameters import BundlingParameters, Guard
from ejbd.core.bundling.plan import expected_completion
from ejbd.core.lending import Borrower, Lending
from ejbd.core.malleable.folding import half
from ejbd.core.room.pools import PlaceHolder, lending, pools
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.view import (
    BatchJobView,
    BatchState,
    ClusterView,
    NodeView,
    QueueView,
    Reservations,
    SiteReservation,
)
from ejbd.sim.cluster import enqueue
from ejbd.sim.elastic import become_elastic, hold_subjob
from ejbd.sim.folding import fold_back
from ejbd.sim.offering import begin_on_slots, give_back_room
from ejbd.sim.world import FREE, NOW, Jobs, new_world
from tests.nightly import examples

NOW_S = 1_000_000.0


@dataclass(frozen=True)
class One:
    """A job in the queue: `held` are its subjobs (processors, seconds left) where it runs, and its J0 waits.

    `leaves`: so many of them are being left. `moving`: its ranks are under way.
    """

    processors: int
    walltime_s: float
    elastic: bool = False
    held: tuple[tuple[int, float], ...] = ()
    leaves: int = 0
    moving: bool = False
    share: float = 0.0  # of its work that is done


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[One], int, float]:
    """Jobs, free processors, lambda."""
    found = []
    for _ in range(draw(st.integers(1, 7))):
        processors = draw(st.integers(1, 16))
        elastic = draw(st.booleans())
        held = []
        left = processors
        for _ in range(draw(st.integers(0, 3)) if elastic else 0):
            if left:
                held.append((draw(st.integers(1, left)), float(draw(st.integers(1, 4000)))))
                left -= held[-1][0]
        held.sort(key=lambda one: one[1])
        leaves = draw(st.sampled_from([0, 0, 0, 1])) if held else 0
        moving = draw(st.sampled_from([False, False, False, True])) if held else False
        walltime_s = float(draw(st.integers(1, 4000)))
        found.append(One(processors, walltime_s, elastic, tuple(held), leaves, moving, draw(st.sampled_from([0, 0.5]))))
    return found, draw(st.integers(0, 8)), float(draw(st.sampled_from([0, 10, 120, 300, 900])))


def parameters(lambda_s: float) -> BundlingParameters:
    return BundlingParameters(suspend=True, guard=Guard.ON, lambda_s=lambda_s)


def state_of(number: int, one: One) -> ElasticState:
    held = tuple(HeldSubjob(f"{number}.{at}", p, NOW_S + s) for at, (p, s) in enumerate(one.held))
    stalled = NOW_S + 30 if one.moving else None
    return ElasticState(str(number), one.processors, one.walltime_s, one.share * one.walltime_s, held, stalled)


def simulated(jobs: list[One], free: int, params: BundlingParameters, folds: bool = False) -> set[str]:
    """Who gives back, as the simulator has it; `folds`: who is folded in place."""
    held = sum(p for one in jobs for p, _ in one.held)
    walltimes = np.array([one.walltime_s for one in jobs])
    table = Jobs(
        np.full(len(jobs), NOW_S), walltimes, walltimes, np.array([one.processors for one in jobs]),
        np.arange(len(jobs)),
    )  # fmt: skip
    total, rules = free + held, params.rules
    elastic = np.ones(len(jobs), dtype=int)
    w = new_world(table, max(total, 16), elastic, elastic_rows=len(jobs), width=8, plain=True, folds=folds)
    w.clock[NOW] = NOW_S
    w.count[FREE] = free
    for number, one in enumerate(jobs):
        enqueue(w, number)
        if not one.elastic:
            continue
        become_elastic(w, number)
        w.work[number] = one.share * one.walltime_s
        if one.held:
            begin_on_slots(w, number, rules)
            w.stalled[number] = NOW_S + 30 if one.moving else NOW_S - COMPUTES_S
            w.expected[number] = expected_completion(state_of(number, one), NOW_S, params)[0]
            w.leaving[number] = one.leaves
            w.leave_at[number] = NOW_S + 30
            for processors, seconds in one.held:
                hold_subjob(w, number, processors, NOW_S + seconds, NOW_S + seconds)
    if folds:
        fold_back(w, rules)
        return {str(number) for number, one in enumerate(jobs) if one.held and sum(w.held.folded[w.row[number]])}
    give_back_room(w, rules)
    return {str(number) for number in range(len(jobs)) if w.gives_back[number]}


def in_halves(one: One) -> One:
    """The same where each subjob is two: the ranks can leave the second one in place."""
    parts = [((half(p), s), (p - half(p), s)) for p, s in one.held]
    return replace(one, held=tuple(part for pair in parts for part in pair if part[0]), leaves=2 * one.leaves)


def lent(number: int, one: One) -> list[str]:
    at, found = 0, []
    for processors, _ in one.held:
        if processors > 1:
            found.append(f"{number}.{at + 1}")
        at += 2 if processors > 1 else 1
    return found


def live(jobs: list[One], free: int, params: BundlingParameters, folds: bool = False) -> set[str]:
    """Who gives back, as a daemon has it from what the batch system lists; `folds`: who leaves subjobs in place."""
    whole, jobs = jobs, [in_halves(one) for one in jobs] if folds else jobs
    rows, running = [], {}
    for number, one in enumerate(jobs):
        rows.append(BatchJobView(f"w{number}", "", "eve", "q", BatchState.PENDING, one.processors, one.walltime_s))
        for at, (processors, seconds) in enumerate(one.held):
            id = f"{number}.{at}"
            running[id] = BatchJobView(id, id, "a", "q", BatchState.RUNNING, processors, end_s=NOW_S + seconds)
    total = max(16, free + sum(job.processors for job in running.values()))
    node, queue = NodeView("all", total, free, True, ("q",)), QueueView("q", True, None, 1, total)
    view = ClusterView(NOW_S, (node,), (*running.values(), *rows), (queue,), Reservations.PROCESSORS)
    holders, leaving = [], []
    for number, one in enumerate(jobs):
        mine = [running[f"{number}.{at}"] for at in range(len(one.held))]
        leaving += mine[: one.leaves]
        if not one.held or one.leaves:
            continue
        state, gone = state_of(number, one), lent(number, whole[number]) if folds else []
        found = folded(state, gone, NOW_S, params) if folds else borrowed(state, NOW_S, params)
        if found is not None:
            holders.append((found, [job for job in mine if not folds or job.id in gone]))
    ours = {f"w{number}": PlaceHolder(str(number), bool(one.held)) for number, one in enumerate(jobs) if one.elastic}
    (pool,) = pools(view, NOW_S, LOOKED_AT)
    return set(givers(lending(pool, ours, (), holders, leaving, 0)))


@settings(max_examples=examples(400))
@given(queues())
@example(([One(4, 600.0), One(16, 3000.0, True, ((4, 2000.0),))], 0, 10.0))
def test_the_daemon_and_the_simulator_ask_the_same_jobs_to_give_back(case: tuple[list[One], int, float]) -> None:
    jobs, free, lambda_s = case
    params = parameters(lambda_s)
    found = live(jobs, free, params)
    event(f"{len(found)} give back")
    assert found == simulated(jobs, free, params)


@settings(max_examples=examples(400))
@given(queues())
@example(([One(2, 600.0), One(16, 3000.0, True, ((4, 2000.0),))], 0, 10.0))
def test_the_daemon_and_the_simulator_fold_the_same_jobs(case: tuple[list[One], int, float]) -> None:
    """Where the simulator folds a subjob, the daemon has two on the same node, the second of which can be left."""
    jobs, free, lambda_s = case
    jobs = [replace(one, leaves=0) for one in jobs]  # half of a subjob that is being left has no like in the other
    params = parameters(lambda_s)
    found = live(jobs, free, params, folds=True)
    event(f"{len(found)} are folded")
    assert found == simulated(jobs, free, params, folds=True)


def test_and_somebody_is_folded_but_not_beyond_what_it_may_share_or_on_j0() -> None:
    one = One(16, 3000.0, True, ((4, 2000.0),))
    params = parameters(10.0)
    assert live([One(2, 600.0), one], 0, params, folds=True) == {"1"}
    assert live([One(3, 600.0), one], 0, params, folds=True) == set(), "half of four is two"
    assert live([One(2, 600.0), one], 0, replace(params, omax=4), folds=True) == set()
    state = state_of(1, in_halves(one))
    assert folded(replace(state, on_placeholder=True), lent(1, one), NOW_S, params) is None


@pytest.mark.parametrize(("delta", "pays"), [(None, False), (0.5, True), (0.8, True), (0.81, False)])
def test_folding_pays_up_to_a_measured_delta_of_four_fifths(delta: float | None, pays: bool) -> None:
    assert folding_pays(delta) is pays


def test_and_somebody_does_give_back() -> None:
    jobs = [One(4, 600.0), One(16, 3000.0, True, ((4, 2000.0),))]
    assert live(jobs, 0, parameters(10.0)) == {"1"}
    assert live(jobs, 4, parameters(10.0)) == set()


def cluster(*jobs: BatchJobView, quantum: int = 1, free: int = 0) -> ClusterView:
    """n1 and n2 are of queue a, n2 and n3 of queue b; four processors each, of which so many are free on n2."""
    nodes = tuple(
        NodeView(name, 4, free if name == "n2" else 0, True, queues)
        for name, queues in (("n1", ("a",)), ("n2", ("a", "b")), ("n3", ("b",)))
    )
    queues = tuple(QueueView(name, True, None, quantum, 8) for name in ("a", "b"))
    return ClusterView(NOW_S, nodes, jobs, queues, Reservations.NODES)


def pending(processors: int, queue: str = "a", **more: object) -> BatchJobView:
    return replace(BatchJobView("9", "x", "eve", queue, BatchState.PENDING, processors, 600.0), **more)  # type: ignore[arg-type]


def subjob(*nodes: str) -> BatchJobView:
    return BatchJobView("5", "s", "ada", "a", BatchState.RUNNING, 4 * len(nodes), nodes=nodes)


def asked(view: ClusterView, *nodes: str) -> Lending:
    (pool,) = pools(view, NOW_S, LOOKED_AT)
    return lending(pool, {}, (), [(Borrower("j", 99, 5000.0, 10.0), [subjob(*nodes)])], [], 0)


@pytest.mark.parametrize(("queue", "nodes", "held"), [("a", ("n1",), 4), ("b", ("n1",), 0), ("b", ("n1", "n2"), 4)])
def test_only_those_who_could_use_the_nodes_get_them(queue: str, nodes: tuple[str, ...], held: int) -> None:
    what = asked(cluster(pending(4, queue)), *nodes)
    assert sum(one.held for one in what.borrowers) == held
    assert set(givers(what)) == ({"j"} if held else set())


def test_whole_nodes_are_counted_as_such() -> None:
    what = asked(cluster(pending(5), quantum=4, free=3), "n1")
    assert (what.waiting[0].processors, what.available) == (8, 0), "three of a node are of no use to it"
    assert givers(what) == {}, "it needs both nodes, and one is given out to somebody else"
    assert set(givers(asked(cluster(pending(4), quantum=4, free=3), "n1"))) == {"j"}
    assert givers(asked(cluster(pending(4), quantum=1, free=4), "n1")) == {}


def test_who_waits_for_something_else_is_not_in_the_queue() -> None:
    others = [
        pending(4, blocked=True),
        pending(4, state=BatchState.HELD),
        pending(9),
        pending(4, queue="c"),
        pending(4, id="own"),
    ]
    assert pools(cluster(*others), NOW_S, LOOKED_AT, {"own"}) == []
    coming = SiteReservation("m", NOW_S + 500, NOW_S + 5000, ("n1", "n2"))
    assert pools(replace(cluster(pending(4)), site_reservations=(coming,)), NOW_S, LOOKED_AT) == []
    assert pools(replace(cluster(pending(4, walltime_s=400.0)), site_reservations=(coming,)), NOW_S, LOOKED_AT)


def test_what_was_given_in_vain_is_not_given_again() -> None:
    (pool,) = pools(cluster(pending(4)), NOW_S, LOOKED_AT)
    what = lending(pool, {}, {"9"}, [(Borrower("j", 4, 5000.0, 10.0), [subjob("n1")])], [], 0)
    assert givers(what) == {}
    assert Lending.from_json(what.to_json()) == what
