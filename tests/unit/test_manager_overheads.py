"""What starts and ends of subjobs take is measured, remembered, planned with and told: the live world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from ejbd.core.overhead import Hop
from ejbd.core.question import Question
from ejbd.manager.acts.learnt import remember
from ejbd.manager.facts.past.history import KEPT, Remembered, hops
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.store.models import Overhead
from ejbd.store.queries import overheads, pace
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker, some

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def measured(live: LiveWorld, hop: Hop) -> list[tuple[str, int, float]]:
    rows = live.store.read_sync(lambda s: list(s.scalars(select(Overhead).order_by(Overhead.id))))
    return [(row.subjob_id, row.processors, row.seconds) for row in rows if row.hop == hop]


async def expects(live: LiveWorld, job: str) -> dict[str, Any]:
    found = (await live.manager.explain(job))["overheads"]
    assert isinstance(found, dict)
    return found


async def begin(live: LiveWorld, subjob: str, ready_s: float, launch_s: float) -> Worker:
    """A subjob whose worker comes so long after its start, and takes so long to launch ranks."""
    live.batch.start(f"ejb-{subjob}")
    await live.poll()
    live.clock.now += ready_s
    worker = Worker(live, subjob, live.batch.of(f"ejb-{subjob}").processors)
    live.workers[subjob] = worker
    worker.takes = {"launch": launch_s}
    await worker.register()
    await live.work()
    return worker


async def started(live: LiveWorld, ready_s: float = 4.0, launch_s: float = 3.0, **spec: Any) -> tuple[str, Worker]:
    live.batch.free = 4
    job = await live.submit(**{"walltime_s": 1000.0, **spec})
    await live.poll(1)
    live.batch.free = 0
    return job, await begin(live, f"{job}.1", ready_s, launch_s)


async def test_a_start_is_measured_until_workers_answer_and_until_ranks_run(live: LiveWorld) -> None:
    before = await live.submit(walltime_s=1000.0)
    prior = await expects(live, before)
    assert (prior["start_up_s"], prior["ready"]["source"]) == (0.0, "configured"), "as the queue has it"
    live.batch.free = 4
    await live.poll(1)
    live.batch.free = 0
    await begin(live, f"{before}.1", 4.0, 3.0)
    assert measured(live, Hop.READY) == [(f"{before}.1", 4, 4.0)]
    assert measured(live, Hop.LAUNCH) == [(f"{before}.1", 4, 3.0)]
    for one in (before, await live.submit(), await live.submit(argv=("./cool",))):
        found = await expects(live, one)
        assert (found["start_up_s"], found["ready"]["value"], found["launch"]["value"]) == (7.0, 4.0, 3.0)
        assert found["ready"]["why"] == "measured once on 4 processors" and found["launch"]["samples"] == 1


async def test_the_launch_of_a_move_is_lambdas_and_no_start_up(live: LiveWorld) -> None:
    job, _ = await started(live)
    await live.poll(300)
    await begin(live, f"{job}.0", 6.0, 9.0)
    await live.poll(1)
    await live.work()
    assert [epoch.state for epoch in live.epochs(job)] == ["stopped", "running"]
    assert measured(live, Hop.READY) == [(f"{job}.1", 4, 4.0), (f"{job}.0", 16, 6.0)]
    assert len(measured(live, Hop.LAUNCH)) == 1
    assert (await expects(live, job))["ready"]["value"] == 6.0, "of about so many processors"


async def test_giving_back_is_measured_after_a_move_and_at_the_end(live: LiveWorld) -> None:
    job, _ = await started(live)
    await live.poll(300)
    worker = await begin(live, f"{job}.0", 1.0, 1.0)
    await live.poll(1)
    await live.work()
    live.clock.now += 7.0
    live.batch.end(f"ejb-{job}.1")
    await live.poll(2)
    ((subjob, processors, seconds),) = measured(live, Hop.BACK)
    assert (subjob, processors) == (f"{job}.1", 4) and 7.0 <= seconds <= 10.0
    await worker.finish_ranks(2)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"
    live.clock.now += 30.0
    live.batch.end(f"ejb-{job}.0")
    await live.poll(2)
    assert [one for one, _, _ in measured(live, Hop.BACK)] == [f"{job}.1", f"{job}.0"]
    assert measured(live, Hop.BACK)[1][2] >= 30.0


async def test_what_nobody_gave_back_tells_nothing(live: LiveWorld) -> None:
    """A subjob that is lost under its ranks was not given back."""
    job, _ = await started(live)
    live.batch.end(f"ejb-{job}.1")
    await live.poll(2)
    assert measured(live, Hop.BACK) == []


async def test_what_began_before_the_daemon_is_left_out(live: LiveWorld) -> None:
    live.batch.free = 4
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    await live.poll()
    live.clock.now += 500.0
    await live.restart()
    worker = Worker(live, f"{job}.1", 4)
    live.workers[f"{job}.1"] = worker
    await live.poll(1)
    await worker.register()
    await live.work()
    assert live.epochs(job)[0].state == "running"
    assert measured(live, Hop.READY) == measured(live, Hop.LAUNCH) == []


async def test_a_scripts_own_steps_are_no_part_of_its_launch(live: LiveWorld) -> None:
    script: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/sh\nmpirun ./heat\n"}
    job, worker = await started(live, **script)
    await live.poll(70)
    await worker.report("launch", ordinal=0, size=16, file=str(live.manager.world.spool.launch_file(job, 0)))
    await live.work()
    assert [seconds for _, _, seconds in measured(live, Hop.LAUNCH)] == [3.0]


async def test_each_decision_is_stored_with_what_a_start_was_thought_to_cost(live: LiveWorld) -> None:
    await started(live)
    job, _ = await started(live, argv=("./cool",))
    (first, *_) = [data for _, data in live.events(job) if "question" in data]
    assert first["overheads"]["ready"]["value"] == 4.0
    past = (await live.manager.explain(job))["decisions"][0]
    assert past["overheads"] == first["overheads"]


async def test_the_policy_is_told_what_a_start_an_end_and_the_pace_cost(live: LiveWorld) -> None:
    """A start costs what comes before ranks run; a restart's launch is lambda's."""
    job, worker = await started(live)
    await live.poll(300)
    await worker.finish_ranks(1)
    await live.work()
    await live.act()
    live.clock.now += 9.0
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    back = measured(live, Hop.BACK)[0][2]
    other, _ = await started(live, argv=("./heat", "2"))
    live.batch.free = 4
    await live.poll(100)
    asked = [data["question"] for _, data in live.events(other) if "question" in data]
    waiting = next(one for one in asked if one["situation"] == "wait")
    running = next(one for one in asked if one["situation"] == "running")
    assert (waiting["parameters"]["start_up_s"], running["parameters"]["start_up_s"]) == (7.0, 4.0)
    assert waiting["parameters"]["giving_back_s"] == back >= 9.0 and waiting["parameters"]["pace"] == 1.0
    for data in (data for _, data in live.events(other) if "question" in data):
        assert Question.from_json(data["question"]).answer().to_json() == data["decision"], "a replay asks the same"


async def test_a_start_that_does_not_pay_for_what_it_costs_is_not_made(live: LiveWorld) -> None:
    job, worker = await started(live, ready_s=900.0, walltime_s=4000.0)
    await worker.finish_ranks(1)
    await live.work()
    await live.act()
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    live.batch.free = 16
    await live.poll(1)
    spec = JobSpec("heat", JobKind.COMMAND, ("./heat",), 32, 300.0, "/", "o", engine="application")
    plan = await live.manager.plan(Reading(spec), "ada")
    assert (some(plan["overheads"])["ready"]["value"], some(plan["decision"])["kind"]) == (900.0, "nothing")

    def quick(session: Any) -> None:
        for row in session.scalars(select(Overhead)):
            row.seconds = 1.0

    live.store.write_sync(quick)
    live.manager.world.remembered = Remembered()
    plan = await live.manager.plan(Reading(spec), "ada")
    assert (some(plan["overheads"])["ready"]["value"], some(plan["decision"])["kind"]) == (1.0, "start")


async def test_the_same_again_is_not_told_to_everybody(live: LiveWorld) -> None:
    await started(live)
    known = live.manager.world.remembered
    await started(live)
    assert live.manager.world.remembered is known
    await started(live, ready_s=8.0)
    assert live.manager.world.remembered is known, "the median is what it was"
    await started(live, ready_s=8.0)
    assert live.manager.world.remembered is not known


async def test_the_pace_is_known_once_a_command_has_run_with_and_without_ejb(live: LiveWorld) -> None:
    rigid = await live.submit(walltime_s=1000.0, elastic=False)
    live.batch.start(f"ejb-{rigid}.0")
    await live.poll(1)
    live.clock.now += 99.0
    live.batch.end(f"ejb-{rigid}.0")
    await live.poll(3)
    job = await live.submit(walltime_s=1000.0)
    assert (await expects(live, job))["pace"]["value"] == 1.0
    worker = await begin(live, f"{job}.0", 1.0, 1.0)
    await live.poll(115)
    await worker.finish_ranks(1)
    await live.work()
    await live.act()
    found = (await expects(live, job))["pace"]
    assert (found["source"], found["samples"]) == ("measured", 1) and found["value"] == pytest.approx(1.15, abs=0.04)
    runs = (await live.manager.explain(job))["runs"]
    assert [(run["job_id"], run["elastic"]) for run in runs] == [(job, True), (rigid, False)]
    figures = live.store.read_sync(lambda s: (overheads(s), pace(s)))
    assert figures == ({("batch", "ready"): 1.0, ("batch", "launch"): 1.0}, found["value"])


async def test_old_ones_are_forgotten(live: LiveWorld) -> None:
    def many(session: Any) -> None:
        for at in range(KEPT + 5):
            for hop in Hop:
                one = Overhead(hop=hop.value, queue="q", application="a", job_id="j", subjob_id="j.1", at_s=at)
                one.processors, one.seconds = 4, float(at)
                remember(session, one)

    live.store.write_sync(many)
    counted = live.store.read_sync(
        lambda s: [tuple(row) for row in s.execute(select(Overhead.hop, func.count()).group_by(Overhead.hop))]
    )
    assert sorted(counted) == sorted((hop.value, KEPT) for hop in Hop)
    newest = live.store.read_sync(lambda s: hops(s, Hop.READY, "q", by_application=False)[0])
    assert newest.seconds == KEPT + 4
