"""Turns live: which J0s stay by what polls show is what stays in the simulation, and a J0 that stays goes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ejbd.core.alongside import Alongside, Listed
from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.room.turns import Turns
from ejbd.manager.poll import turns as polled
from ejbd.manager.rules.planning import turns as rule
from ejbd.sim import engine
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, refuse_fault
from ejbd.sim.turns import keep_turns
from ejbd.sim.workload import workload_of
from ejbd.sim.world import (
    DONE,
    ELASTIC,
    NOW,
    ON_PLACE_HOLDER,
    QUEUED,
    RIGID,
    RUNNING,
    TOTAL,
    UNIT,
    WAITING,
    kernel_rules,
    new_world,
)
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

RULES = BundlingParameters(suspend=True, order=Order.LEAST_WORK, guard=Guard.ON, delta=1.3, j0_in_turn=True)


def shown(w: Any, staying: set[str]) -> tuple[ClusterView, Roster]:
    """A simulated world as a daemon would see it at a poll: which jobs wait and run, and what its own have done."""
    jobs, rows, subjobs = [], {}, {}
    waits = [w.queue[at] for at in range(w.count[QUEUED])]
    # A job that is on its way to its J0 runs there, too: the batch system has started J0.
    runs = [
        job for job in range(len(w.submit)) if w.start[job] >= 0.0 and w.end[job] <= 0.0 and job not in waits
        and w.mode[job] in (RIGID, RUNNING, ON_PLACE_HOLDER)
    ]  # fmt: skip
    for job in [*waits, *runs]:
        elastic, name = w.mode[job] in (WAITING, RUNNING, ON_PLACE_HOLDER), str(job)
        state = BatchState.PENDING if job in waits else BatchState.RUNNING
        started = None if job in waits else w.start[job]
        jobs.append(BatchJobView(
            name, f"ejb-{name}.0" if elastic else name, "ada", "batch", state, w.processors[job], w.walltime[job],
            start_s=started, tag=f"ejb-{name}.0" if elastic else "",
        ))  # fmt: skip
        if elastic:
            subjobs[name] = [SimpleNamespace(
                id=f"{name}.0", job_id=name, tag=f"ejb-{name}.0", role="placeholder", releasing=False,
                state="pending" if job in waits else "running", stays=f"{name}.0" in staying,
            )]  # fmt: skip
            state_of = "waiting" if w.mode[job] == WAITING else "running"
            rows[name] = SimpleNamespace(
                id=name, queue="batch", state=state_of, held=False, start_s=0.0, work_s=w.run[job], work_rate=0.0,
                work_as_of_s=None,
            )  # fmt: skip
    for job in range(len(w.submit)):
        if w.mode[job] == RIGID and w.end[job] == w.clock[NOW]:
            listed = BatchJobView(str(job), str(job), "ada", "batch", BatchState.COMPLETED, w.processors[job])
            jobs.append(replace(listed, start_s=w.start[job], end_s=w.end[job]))
    total, unit = w.count[TOTAL], w.count[UNIT]
    nodes = [NodeView(f"n{at}", unit, 0, True, ("batch",)) for at in range(total // unit)]
    view = ClusterView(
        w.clock[NOW], tuple(nodes), tuple(jobs), (QueueView("batch", True, None, 1, total),), Reservations.NODES,
    )  # fmt: skip
    return view, Roster(rows, subjobs)  # type: ignore[arg-type]


@pytest.mark.sampled(2, by=("lambda_s",))
@pytest.mark.parametrize("unit", [1, 16])  # processors of a node: the head's reservation is of whole ones
@pytest.mark.parametrize("lambda_s", [120.0, 200.0])
@pytest.mark.parametrize("model", [Model.LUBLIN, Model.SHORT_HEAVY])
def test_live_and_simulated_decide_alike(
    model: Model, lambda_s: float, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = generate(model, jobs=300, processors=64, seed=2, load=0.95, overestimate=10.0)
    load = workload_of(log, model.value, processors=64)
    wide = np.where(load.jobs.processors >= 8, ELASTIC, 0)
    w: Any = new_world(load.jobs, load.processors, wide, elastic_rows=512, plain=True, turns=True, unit=unit)
    turns, staying, stayed = Turns(), set[str](), 0

    def both(w: Any) -> None:
        nonlocal staying, stayed
        keep_turns(w)
        view, roster = shown(w, staying)
        wanted = polled.Wanted()
        for _ in polled.look(turns, view, roster, ["batch"], wanted):
            pass
        staying = (staying - {row.id for row in wanted.go}) | {row.id for row in wanted.stay}
        waits = {f"{w.queue[at]}.0" for at in range(w.count[QUEUED])}
        there = {f"{w.queue[at]}.0" for at in range(w.count[QUEUED]) if w.queue_processors[at] > w.count[TOTAL]}
        staying &= waits
        assert staying == there, w.clock[NOW]
        stayed = max(stayed, len(there))

    monkeypatch.setattr(engine, "keep_turns", both)
    rules = kernel_rules(replace(RULES, lambda_s=lambda_s), arrays=False)
    while engine.next_time(w) < np.inf:
        engine.step(w, Policy.EJB, engine.PAPER_TIES, rules)
        refuse_fault(w)
    assert stayed > 1, "the rule had something to do"
    assert all(mode in (RIGID, DONE) or w.end[job] > 0 for job, mode in enumerate(w.mode[: len(load)]))


def test_a_shadow_made_anew_takes_what_runs_as_begun() -> None:
    shadow = Alongside(8)
    running, head, narrow = Listed("a", 6, 100.0, -1, 50.0), Listed("b", 8, 100.0, 0), Listed("c", 2, 40.0, 1)
    for _ in shadow.look(90.0, [running, head, narrow], {}):
        pass
    assert (shadow.soonest_s("a"), shadow.soonest_s("c")) == (50.0, 90.0), "c is backfilled: it ends before a is to"
    assert shadow.soonest_s("b") == float("inf")
    for _ in shadow.look(140.0, [head], {"a": 60.0, "c": 50.0}):
        pass
    assert shadow.soonest_s("b") == 140.0
    assert shadow.names == {"b"}


def test_what_may_run_beside_the_head_starts_in_one_of_two_shadows() -> None:
    """The head needs two of four nodes. Which it will get is not known: `c` may be on one of them."""
    shadow = Alongside(16, 4)
    running, head, narrow = Listed("a", 12, 100.0, -1, 0.0), Listed("b", 8, 100.0, 0), Listed("c", 4, 1000.0, 1)
    for _ in shadow.look(10.0, [running, head, narrow], {}):
        pass
    assert (shadow.soonest_s("c"), shadow.latest_s("c")) == (10.0, float("inf"))
    assert shadow.begun() == ["a", "c"]
    for _ in shadow.look(60.0, [], {"a": 60.0}):
        pass
    assert (shadow.soonest_s("b"), shadow.latest_s("b"), shadow.latest_s("c")) == (60.0, 60.0, 60.0)
    for _ in shadow.look(90.0, [], {"c": 10.0, "b": 20.0}):
        pass
    assert (shadow.names, shadow.begun()) == (set(), []), "what is over in both is forgotten"


@pytest.mark.parametrize(
    ("unit", "nodes", "turn_s"), [(4, False, 10.0), (1, True, 10.0), (16, True, float("inf"))], ids=str
)
def test_one_shadow_is_enough_where_it_does_not_matter_which_nodes_are_kept(
    unit: int, nodes: bool, turn_s: float
) -> None:
    """Any processors are kept, or each node has one, or there is but one node."""
    shadow = Alongside(16, unit, nodes)
    running, head, narrow = Listed("a", 12, 100.0, -1, 0.0), Listed("b", 8, 100.0, 0), Listed("c", 4, 1000.0, 1)
    for _ in shadow.look(10.0, [running, head, narrow], {}):
        pass
    assert (shadow.soonest_s("c"), shadow.latest_s("c")) == (turn_s, turn_s)


def test_a_shadow_keeps_whole_nodes_for_the_head() -> None:
    """The head needs 13 of 16 processors. The other three are on one of the nodes that are kept for it."""
    turns, turn_of = Turns(), {}
    jobs = (
        BatchJobView("1", "a", "eve", "batch", BatchState.RUNNING, 14, 100.0, start_s=0.0),
        BatchJobView("2", "b", "eve", "batch", BatchState.PENDING, 13, 100.0),
        BatchJobView("3", "c", "eve", "batch", BatchState.PENDING, 2, 1000.0),
    )
    queue = QueueView("batch", True, None, 1, 16)
    for nodes, kept in ((4, Reservations.NODES), (16, Reservations.NODES), (4, Reservations.PROCESSORS)):
        size = 16 // nodes
        there = tuple(NodeView(f"n{at}", size, 0, True, ("batch",)) for at in range(nodes))
        view = ClusterView(10.0, there, jobs, (queue,), kept)
        turns.shadows.clear()
        for _ in polled.look(turns, view, Roster({}, {}), ["batch"], polled.Wanted()):
            pass
        (shadow,) = turns.shadows.values()
        turn_of[nodes, kept] = shadow.soonest_s("3")
    assert turn_of == {
        (4, Reservations.NODES): float("inf"),
        (16, Reservations.NODES): 10.0,
        (4, Reservations.PROCESSORS): 10.0,
    }


def test_a_j0_that_is_set_aside_is_no_longer_its_jobs_in_the_queue() -> None:
    """Another job is beyond its turn, so that the J0 stays. Then its job goes on without it, and keeps its number."""
    turns, began = Turns(), 10.0

    def stay(time_s: float, role: str, state: BatchState) -> list[str]:
        row = SimpleNamespace(
            id="e.0", job_id="e", tag="ejb-e.0", role=role, releasing=False, state="pending", stays=False
        )
        job = SimpleNamespace(id="e", queue="batch", state="running", held=False)
        jobs = (
            BatchJobView("1", "a", "eve", "batch", BatchState.RUNNING, 14, 1000.0, start_s=0.0),
            BatchJobView("2", "b", "eve", "batch", BatchState.PENDING, 2, 100.0),
            BatchJobView("3", "ejb-e.0", "ada", "batch", state, 16, 1000.0, tag="ejb-e.0"),
        )
        nodes = (NodeView("n1", 16, 0, True, ("batch",)),)
        view = ClusterView(time_s, nodes, jobs, (QueueView("batch", True, None, 1, 16),), Reservations.PROCESSORS)
        wanted = polled.Wanted()
        for _ in polled.look(turns, view, Roster({"e": job}, {"e": [row]}), ["batch"], wanted):  # type: ignore[dict-item,list-item]
            pass
        return [one.id for one in wanted.stay]

    assert stay(began, "placeholder", BatchState.PENDING) == []
    assert stay(began + 70.0, "placeholder", BatchState.PENDING) == ["e.0"]
    assert stay(began + 75.0, "aside", BatchState.HELD) == []
    (shadow,) = turns.shadows.values()
    assert "e" in shadow.names, "its job goes on"


def test_those_that_may_go_do_so_in_order_of_arrival() -> None:
    """Not all may at one poll. PostgreSQL lists subjobs in an order of its own."""
    rows = {
        id: [SimpleNamespace(id=f"{id}.0", job_id=id, tag=f"ejb-{id}.0", role="placeholder", releasing=False,
                             state="pending", stays=True)]
        for id in "cab"
    }  # fmt: skip
    jobs = {id: SimpleNamespace(id=id, queue="batch", state="waiting", held=id == "b") for id in "abc"}
    nodes = (NodeView("n1", 16, 0, True, ("batch",)),)
    view = ClusterView(10.0, nodes, (), (QueueView("batch", True, None, 1, 16),), Reservations.PROCESSORS)
    wanted = polled.Wanted()
    for _ in polled.look(Turns(), view, Roster(jobs, rows), ["batch"], wanted):  # type: ignore[arg-type]
        pass
    assert [row.id for row in wanted.go] == ["a.0", "c.0"], "a user's hold is not let go with them"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store, suspend=True, guard="on", j0_in_turn=True)


NARROW = BatchJobView("90", "n", "eve", "batch", BatchState.RUNNING, 16, 1000.0, start_s=1_000_000.0)


async def busy(live: LiveWorld, walltime_s: float = 1000.0) -> str:
    """Eve's job that runs on half of the machine; one of hers could use the rest, and waits; an elastic job of all."""
    live.batch.free = 16
    narrow = replace(NARROW, walltime_s=walltime_s)
    live.batch.others = [narrow, replace(narrow, id="91", state=BatchState.PENDING, start_s=None)]
    job = await live.submit(32, walltime_s=1000.0)
    await live.poll(1)
    return job


async def test_no_j0_stays_for_a_job_that_is_late_by_one_shadow_only(live: LiveWorld) -> None:
    """Its turn had come long ago if the head of the queue got the other node; it gets this one, maybe."""
    live.batch.free, live.batch.node_processors, live.batch.reserves = 8, 16, Reservations.NODES
    head = replace(NARROW, id="91", processors=12, state=BatchState.PENDING, start_s=None)
    beside = replace(head, id="92", processors=4, walltime_s=5000.0)
    live.batch.others = [replace(NARROW, processors=24), head, beside]
    job = await live.submit(32, walltime_s=1000.0)
    await live.poll(1)
    await live.poll(70)
    (shadow,) = live.manager.world.memory.turns.shadows.values()
    assert (shadow.soonest_s("92") < live.clock.now, shadow.latest_s("92")) == (True, float("inf"))
    assert not stays(live, job)


def stays(live: LiveWorld, job: str) -> bool:
    return next(subjob.stays for subjob in live.subjobs(job) if subjob.role == "placeholder")


async def test_a_j0_stays_while_another_job_waits_beyond_its_turn_and_goes_again(live: LiveWorld) -> None:
    job = await busy(live)
    assert not stays(live, job), "no turn has been missed for long"
    await live.poll(70)
    assert stays(live, job)
    assert live.batch.of(f"ejb-{job}.0").blocked, "the batch system keeps it from beginning"
    assert "J0 waits for its turn" in (await live.manager.explain(job))["now"]
    assert "subjob.held" not in [kind for kind, _ in live.events(job)]
    calls = len([call for call in live.batch.calls if call.startswith("stay")])
    await live.poll(5)
    assert len([call for call in live.batch.calls if call.startswith("stay")]) == calls == 1

    live.batch.others = [NARROW, replace(NARROW, id="91", start_s=live.clock.now)]
    await live.poll(5)
    assert not stays(live, job) and not live.batch.of(f"ejb-{job}.0").blocked
    assert "J0 waits for its turn" not in (await live.manager.explain(job))["now"]


async def test_a_daemon_that_starts_lets_go_what_no_turn_is_known_of(live: LiveWorld) -> None:
    """Its shadow is new: no job has waited beyond its turn yet, and then the same holds again."""
    job = await busy(live)
    await live.poll(70)
    assert stays(live, job)
    await live.restart()
    await live.poll(1)
    assert not stays(live, job) and not live.batch.of(f"ejb-{job}.0").blocked
    await live.poll(70)
    assert stays(live, job) and live.batch.of(f"ejb-{job}.0").blocked


async def test_a_j0_that_stays_begins_by_itself_where_no_daemon_says_more(live: LiveWorld) -> None:
    job = await busy(live, 5 * rule.STAYS_S)
    await live.poll(70)
    tag = f"ejb-{job}.0"
    for _ in range(4):  # while the daemon is there it is said again, in time
        await live.poll(rule.SAID_AGAIN_S)
        assert stays(live, job) and live.batch.of(tag).blocked
    said = len([call for call in live.batch.calls if call.startswith("stay")])
    assert said == 5
    live.clock.now += rule.STAYS_S + 1.0
    live.batch.live()
    assert not live.batch.of(tag).blocked, "it may begin though no daemon has let it"


async def test_a_job_whose_j0_stays_borrows_room_and_the_windows_know_of_no_start_of_it(live: LiveWorld) -> None:
    job = await busy(live, 5 * rule.STAYS_S)
    live.batch.free = 0
    await live.poll(70)
    assert stays(live, job) and len(live.subjobs(job)) == 1
    j0 = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[j0.id] = replace(j0, planned_start_s=live.clock.now + 60.0)  # the begin, as Slurm lists it
    live.batch.free = 16
    await live.poll(1)
    await live.poll(30)
    assert stays(live, job)
    assert [one.role for one in live.subjobs(job)] == ["placeholder", "subjob"]
    assert live.subjobs(job)[1].walltime_s > 60.0


async def test_what_the_rule_has_kept_goes_where_it_is_switched_off(live: LiveWorld) -> None:
    job = await busy(live)
    await live.poll(70)
    assert stays(live, job)
    await live.manager.set_queue("batch", {"j0_in_turn": False}, "ada")
    await live.poll(1)
    assert not stays(live, job) and not live.batch.of(f"ejb-{job}.0").blocked


async def test_a_stay_that_was_not_answered_is_not_tried_once_j0_may_begin(live: LiveWorld) -> None:
    job = await busy(live)
    live.batch.lose_stays = 1
    await live.poll(70)
    assert stays(live, job) and not live.batch.of(f"ejb-{job}.0").blocked
    live.batch.others = [NARROW, replace(NARROW, id="91", start_s=live.clock.now)]
    await live.poll(1)
    await live.poll(300)
    assert not stays(live, job) and not live.batch.of(f"ejb-{job}.0").blocked
    assert len([call for call in live.batch.calls if call.startswith("stay")]) == 1
