"""Evolving jobs whose widths are all queued, each with its begin, before the job begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.store.models import Subjob
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_evolving import moved

PROFILE = {"steps": [[100, 4], [200, 12], [100, 4]]}
AHEAD_S = 10.0  # two looks of the fake daemon; its start-up is set to nothing


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    made = LiveWorld(tmp_path, store, omax=4, start_up_s=0.0)
    made.batch.free = 16
    return made


async def submitted(live: LiveWorld, **more: Any) -> tuple[str, Subjob, Subjob]:
    """The job, its J0 and its one increment."""
    await live.poll()
    job = await live.submit(12, 600.0, elastic=True, evolving=PROFILE | more)
    j0, increment = live.subjobs(job)
    return job, j0, increment


def begins_in(live: LiveWorld, subjob: Subjob) -> float:
    return live.batch.begins.get(live.batch.of(subjob.tag).id, live.clock.now) - live.clock.now


def reasons(live: LiveWorld, job: str) -> list[str]:
    return [data["reason"] for kind, data in live.events(job) if kind == "decision.evolve"]


async def test_every_width_is_queued_with_its_begin_before_the_job_begins(live: LiveWorld) -> None:
    job, j0, increment = await submitted(live)
    assert (j0.role, j0.processors, increment.role, increment.processors) == ("placeholder", 4, "subjob", 8)
    assert increment.state == "pending"
    assert begins_in(live, j0) == 0
    assert begins_in(live, increment) == pytest.approx(100 - AHEAD_S, abs=1)
    assert reasons(live, job)[0].startswith("all its widths fit, and each is queued with its begin")
    assert "ends the job" in reasons(live, job)[0], "it is told beforehand"
    await live.begin(j0.id)
    await moved(live)
    assert live.job(job).state == "running"
    await live.poll(85)
    await live.begin(increment.id)
    await live.poll(16)
    await moved(live)
    assert live.epochs(job)[-1].processors == 12
    await live.poll(205)
    await moved(live)
    assert live.job(job).members == [j0.id]
    assert [s.processors for s in live.subjobs(job)] == [4, 8], "each block once"


async def test_j0_begins_when_the_whole_profile_fits(live: LiveWorld) -> None:
    """Others hold 10 of 16 for 250 s more: 12 fit from then on, and so 4 begin 100 s before."""
    live.batch.free = 6
    other = BatchJobView("9", "other", "bob", "batch", BatchState.RUNNING, 10, 1000.0, foreign=True)
    live.batch.others = [_ending(other, live.clock.now + 250)]
    job, j0, increment = await submitted(live)
    assert begins_in(live, j0) == pytest.approx(150, abs=1)
    assert begins_in(live, increment) == pytest.approx(250 - AHEAD_S, abs=1)
    told = await live.manager.explain(job)
    assert "1 of 1 increments are queued, and all of it fits in 150 s" in told["now"]
    assert [i["processors"] for i in told["planned"]] == [0, 4, 12, 4], "it waits first"


def _ending(job: BatchJobView, end_s: float) -> BatchJobView:
    return replace(job, start_s=end_s - 1000, end_s=end_s, nodes=("n1",))


async def test_what_is_late_is_put_off_and_what_is_behind_it_too(live: LiveWorld) -> None:
    job, j0, increment = await submitted(live)
    await live.poll(60)
    assert begins_in(live, increment) > 80, "J0 is late: its increment is not to begin before it"
    await live.begin(j0.id)
    await moved(live)
    begun_s = live.job(job).spec["evolving"]["starts_s"][0]
    for _ in range(10):
        await live.poll(15)
    assert live.job(job).members == [j0.id], "the increment is late: the step before is held"
    assert "4 of 12 places: it waits for its width, and the step before" in (await live.manager.explain(job))["now"]
    await live.begin(increment.id)
    await live.poll()
    course = live.job(job).spec["evolving"]
    assert course["starts_s"][1] >= begun_s + 150
    assert course["starts_s"][2] - course["starts_s"][1] == 200


async def test_a_width_that_is_refused_ends_the_job_before_it_begins(live: LiveWorld) -> None:
    live.batch.refuse = BatchError("QOSMaxSubmitJobPerUserLimit", transient=False)
    live.batch.refuse_role = ".1"
    await live.poll()
    job = await live.submit(12, 600.0, elastic=True, evolving=PROFILE)
    await live.poll()
    assert live.job(job).state == "failed"
    assert live.job(job).reason.startswith("a width that it has later is refused: QOSMax")
    assert live.epochs(job) == []
    assert not live.batch.live()


async def test_it_does_not_begin_while_a_width_is_not_queued(live: LiveWorld) -> None:
    live.batch.refuse = BatchError("try again", transient=True)
    live.batch.refuse_role = ".1"
    await live.poll()
    job = await live.submit(12, 600.0, elastic=True, evolving=PROFILE)
    await live.begin(f"{job}.0")
    await moved(live)
    assert live.epochs(job) == []
    assert "it begins when every width is queued" in (await live.manager.explain(job))["now"]
    live.batch.refuse = None
    for _ in range(8):
        await live.poll(30)
    await moved(live)
    assert live.job(job).state == "running"


@pytest.mark.parametrize("holds", [False, True], ids=["by begins", "by holds, as PBS"])
async def test_two_jobs_whose_peaks_interlock(live: LiveWorld, holds: bool) -> None:
    """Both peaks at once would be 24 of 16: the second job's comes when the first's is over."""
    live.batch.holds_begins = holds
    job, *_ = await submitted(live)
    other = await live.submit(12, 600.0, elastic=True, evolving={"steps": [[100, 4], [200, 12], [100, 4]]})
    await live.poll()
    third = await live.submit(12, 600.0, elastic=True, evolving=PROFILE)
    first, second, last = (live.job(one).spec["evolving"]["planned"] for one in (job, other, third))
    ends_s = first["starts_s"][2]
    assert second["starts_s"][1] >= ends_s, "the other's peak is behind"
    assert second["starts_s"][1] - ends_s < 110, "by no more than the first one's grace, for which it is queued"
    assert second["starts_s"][0] < first["end_s"], "and it has begun by then"
    assert last["starts_s"][1] >= second["starts_s"][2], "what waits at the batch system is kept clear of, too"


async def test_a_width_that_is_held_is_let_go_when_its_step_needs_it(live: LiveWorld) -> None:
    live.batch.holds_begins = True
    job, j0, increment = await submitted(live)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(60)
    assert live.batch.of(increment.tag).state is BatchState.HELD
    await live.poll(25)
    await live.work()
    await live.poll(5)
    await live.work()
    assert live.batch.of(increment.tag).state is BatchState.PENDING
    await live.begin(increment.id)
    await live.poll(16)
    await moved(live)
    assert live.epochs(job)[-1].processors == 12


async def test_the_tail_is_fitted_from_now_on_before_it_is_taken(live: LiveWorld) -> None:
    """12 places are asked for at once, and 8 beside J0 are free in 300 s: that is what the answer says."""
    job, j0, _ = await submitted(live)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(20.25)  # a clock does not go by whole seconds
    now = live.clock.now
    live.batch.free = 0
    other = BatchJobView("9", "other", "bob", "batch", BatchState.RUNNING, 12, 1000.0, foreign=True)
    live.batch.others = [_ending(other, now + 300)]
    await live.poll()
    before = live.job(job).spec["evolving"]
    said = await live.manager.evolve(job, "now:12,+60s:4", True, "ada")
    assert live.job(job).spec["evolving"] == before, "it was only asked"
    assert [places for _, places in said["steps"]] == [4, 12, 4], "what has begun, and the two that come"
    assert said["starts_s"][1] == pytest.approx(now + 300, abs=1)
    assert said["starts_s"][2] == pytest.approx(now + 360, abs=2)
    await live.manager.evolve(job, "now:12,+60s:4", False, "ada")
    await live.poll()
    course = live.job(job).spec["evolving"]
    assert course["starts_s"] == said["starts_s"]
    queued = [s for s in live.subjobs(job) if s.role == "subjob" and s.state == "pending"]
    assert [s.processors for s in queued] == [8]
    assert begins_in(live, queued[0]) == pytest.approx(300 - AHEAD_S, abs=6)
    live.batch.others = [_ending(other, now + 5000)]
    await live.poll()
    with pytest.raises(EjbError, match="after the job's walltime ends"):
        await live.manager.evolve(job, "now:12", True, "ada")


async def test_a_job_that_does_not_give_back_is_ended_after_its_grace(live: LiveWorld) -> None:
    job, j0, increment = await submitted(live)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(85)
    await live.begin(increment.id)
    await live.poll(16)
    await moved(live)
    assert live.epochs(job)[-1].processors == 12
    assert "4 in" in (await live.manager.explain(job))["now"]
    assert "ends the job" in (await live.manager.explain(job))["now"]
    for worker in live.workers.values():
        worker.fail["checkpoint"] = {}
    for _ in range(60):
        await live.poll(15)
        await live.work()
        if live.job(job).state in ("failed", "ending"):
            break
    for _ in range(4):
        await live.work()
        await live.poll(5)
    assert live.job(job).state == "failed"
    assert "it still holds 8 places 65 s after the end of step 2" in live.job(job).reason


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", [1, 2, 3])
async def test_the_node_of_j0_is_lost_in_each_step(live: LiveWorld, step: int) -> None:
    """The job waits for another J0, goes on where it stood in its course, and has the widths that are left."""
    job, j0, increment = await submitted(live)
    await live.begin(j0.id)
    await moved(live)
    if step > 1:
        await live.poll(85)
        await live.begin(increment.id)
        await live.poll(20)
        await moved(live)
    if step > 2:
        await live.poll(205)
        await moved(live)
    before = live.job(job).spec["evolving"]["end_s"]
    live.batch.end(f"ejb-{j0.id}", BatchState.NODE_FAIL, None)
    live.workers.pop(j0.id)
    lost_s = live.clock.now
    for _ in range(20):
        live.manager.world.memory.seen.update({w.id: live.clock.now for w in live.workers.values()})
        await live.poll(5, heartbeats=False)
        await live.work()
    assert live.job(job).state == ("running" if step == 2 else "waiting"), "on its increment it goes on"
    again = next(s for s in live.subjobs(job) if s.role == "placeholder" and s.state == "pending")
    await live.begin(again.id)
    waited_s = live.clock.now - lost_s if step != 2 else 0.0
    for _ in range(12):
        for one in live.subjobs(job):
            if one.role == "subjob" and one.state == "pending" and not live.batch.of(one.tag).blocked:
                await live.begin(one.id)
        await live.poll(2)
        await moved(live)
    assert live.job(job).state == "running"
    assert live.epochs(job)[-1].processors == (12 if step == 2 else 4)
    course = live.job(job).spec["evolving"]
    assert course["end_s"] == pytest.approx(before + waited_s, abs=60)


async def test_the_node_of_an_increment_is_lost_and_another_is_queued(live: LiveWorld) -> None:
    job, j0, increment = await submitted(live)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(85)
    await live.begin(increment.id)
    await live.poll(20)
    await moved(live)
    live.batch.end(f"ejb-{increment.id}", BatchState.NODE_FAIL, None)
    live.workers.pop(increment.id)
    for _ in range(20):
        live.manager.world.memory.seen.update({w.id: live.clock.now for w in live.workers.values()})
        await live.poll(5, heartbeats=False)
        await live.work()
    again = live.subjobs(job)[-1]
    assert (again.role, again.processors) == ("subjob", 8)
    assert again.id != increment.id
