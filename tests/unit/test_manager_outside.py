"""Subjobs that somebody else ends, and workers that die before they ran anything: what the job makes of it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from ejbd.config import Elasticity
from ejbd.core.view import BatchState
from ejbd.manager.rules.looks import observe
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running(live: LiveWorld, engine: str = "application") -> str:
    """A job of 16 ranks on a subjob of 4, with J0 in the queue."""
    job = await live.submit(engine=engine, walltime_s=1000.0 if engine == "application" else 100.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    return job


def completing(live: LiveWorld, tag: str) -> None:
    """As Slurm shows a job whose Epilog runs: it ends "now"."""
    job = live.batch.of(tag)
    live.batch.jobs[job.id] = replace(job, state=BatchState.ENDING, end_s=live.clock.now)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["application", "none"])
async def test_a_subjob_that_is_cancelled_from_outside_is_no_time_out(live: LiveWorld, engine: str) -> None:
    job = await running(live, engine)
    for _ in range(3):  # its Epilog takes its time
        live.clock.now += 5
        completing(live, f"ejb-{job}.1")
        await live.poll()
    assert live.job(job).state == "running" and live.job(job).overruns == 0
    await live.workers[f"{job}.1"].report("leaving", reason="ended by SIGTERM", exits={})
    live.batch.free = 0
    live.batch.end(f"ejb-{job}.1", BatchState.CANCELLED, None)
    await live.poll(5)
    assert live.job(job).state == "waiting"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING, "J0 keeps its place"
    assert "job.timeout" not in live.kinds(job)


async def test_a_subjob_has_ended_when_the_batch_system_says_and_not_when_it_was_looked_at(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.end(f"ejb-{job}.1", BatchState.COMPLETED, 0)
    ended_s = live.clock.now
    await live.poll(7)
    (subjob,) = (subjob for subjob in live.subjobs(job) if subjob.ordinal == 1)
    assert subjob.state == "completed" and subjob.end_s == ended_s == live.clock.now - 7


async def test_a_subjob_first_seen_while_it_completes_is_not_started_on(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    completing(live, f"ejb-{job}.1")
    await live.poll(5)
    assert live.job(job).members == []
    live.batch.end(f"ejb-{job}.1", BatchState.CANCELLED, None)
    await live.poll(5)
    assert live.job(job).state == "waiting" and live.subjobs(job)[1].state == "cancelled"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


@pytest.mark.parametrize("engine", ["application", "none"])
async def test_a_subjob_whose_end_is_brought_forward_is_no_time_out(live: LiveWorld, engine: str) -> None:
    """An operator shortens it, or a preemption gives it a last minute: what can be saved is, and J0 stays."""
    job = await running(live, engine)
    live.batch.free = 0
    tag = f"ejb-{job}.1"
    await live.poll(20)
    live.batch.jobs[live.batch.of(tag).id] = replace(live.batch.of(tag), end_s=live.clock.now + 60)
    for _ in range(11):
        await live.poll(5)
        await live.work(2)
    row = live.job(job)
    if engine == "application":
        assert row.state == "waiting" and row.work_s > 0, "suspended, with its work kept"
    else:
        assert row.state == "running", "left alone for as long as it lasts"
        live.batch.end(tag, BatchState.TIMEOUT, None)
        await live.poll(10)
    row = live.job(job)
    assert (row.state, row.overruns) == ("waiting", 0)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


async def test_everything_cancelled_behind_the_back_stays_cancelled(live: LiveWorld) -> None:
    """`scancel --user`: J0 is not submitted again."""
    job = await running(live)
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    live.batch.end(f"ejb-{job}.1", BatchState.CANCELLED, None)
    live.batch.free = 0
    await live.poll(5)
    await live.poll(5)
    assert live.job(job).state == "cancelled"
    assert live.batch.live() == []


async def test_a_job_cancelled_on_j0_stays_so_while_an_epilog_outlasts_the_silence_of_its_workers(
    live: LiveWorld,
) -> None:
    live.batch.free = 0
    job = await live.submit(engine="application")
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.work()
    assert live.job(job).state == "running"
    silence_s = live.settings.limits.worker_silence_s
    for _ in range(3):  # scancel: its workers are gone, and the Epilog takes its time
        completing(live, f"ejb-{job}.0")
        await live.poll(0.5 * silence_s, heartbeats=False)
    assert live.job(job).state == "running"
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    await live.poll(5)
    assert live.job(job).state == "cancelled" and live.batch.live() == []


async def test_a_subjob_that_is_ended_for_ever_is_given_up_at_last(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(engine="application", walltime_s=5000.0)
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.work()
    silence_s = live.settings.limits.worker_silence_s
    for times in range(14):
        completing(live, f"ejb-{job}.0")
        await live.poll(0.5 * silence_s, heartbeats=False)
        assert times > 5 or "worker.lost" not in live.kinds(job)
    assert "worker.lost" in live.kinds(job)


async def test_whoever_cancels_j0_cancels_the_job_wherever_it_runs(live: LiveWorld) -> None:
    """J0's number is what SLURM_JOB_ID says: `scancel $SLURM_JOB_ID` in a script is meant for all of the job."""
    job = await running(live)
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    for _ in range(3):
        await live.poll(15)
        await live.work()
    row = live.job(job)
    assert (row.state, row.reason) == ("cancelled", "its batch job was cancelled at the batch system")
    assert live.batch.live() == []


# -- workers that die before a placement ------------------------------------------------------------------------------


async def worker_dies(live: LiveWorld, job: str, subjob: str) -> None:
    """The batch system starts a subjob, it is seen to run, and its worker dies before it has said a word."""
    live.batch.start(f"ejb-{subjob}")
    await live.poll(1)
    live.batch.end(f"ejb-{subjob}", BatchState.FAILED, 1)
    await live.poll(1)


async def test_a_j0_whose_worker_dies_comes_again_with_pauses_and_not_for_ever(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit()
    told: list[str] = []
    for _ in range(400):
        j0 = next((j for j in live.batch.live() if j.name.startswith(f"ejb-{job}.")), None)
        if j0 is not None:
            await worker_dies(live, job, j0.name.removeprefix("ejb-"))
        else:  # a second, but of the pauses of minutes
            await live.poll(1 if live.job(job).setbacks < 4 else 15)
        if live.job(job).state == "failed":
            break
        if live.job(job).setbacks == 3:
            told.append((await live.manager.explain(job))["now"])
    assert any("whole batch job is submitted again in 10 s, after 3 of at most 5 setbacks" in why for why in told)
    row = live.job(job)
    assert row.state == "failed" and "again and again" in row.reason
    submitted = [e["from"] for k, e in live.events(job) if k == "subjob.pending"]
    assert len(submitted) == 6, "the first, and one for each setback that is allowed"
    assert [d["pause_s"] for k, d in live.events(job) if k == "placeholder.again"] == [0, 5, 15, 60, 300]


async def test_subjobs_whose_workers_die_come_with_pauses(live: LiveWorld) -> None:
    job = await live.submit()
    for _ in range(100):
        await live.poll(3)
        for waiting in [s for s in live.subjobs(job) if s.role == "subjob" and s.state == "pending"]:
            await worker_dies(live, job, waiting.id)
    tried = [s for s in live.subjobs(job) if s.role == "subjob"]
    assert len(tried) == 3, "after 30 and 60 s, and the next one after 300"
    assert "that came to nothing" in (await live.manager.explain(job))["now"]
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


async def test_a_worker_that_left_its_last_word_before_it_had_a_placement_faults_no_poll(live: LiveWorld) -> None:
    """It came, was told nothing yet, and its batch job ended: a job of one second, or a node that breaks."""
    live.batch.free = 0
    job = await live.submit()
    worker = await _registered_only(live, f"{job}.0")
    folder = live.manager.world.spool.subjob_dir(job, worker.subjob) / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED, 1)
    for _ in range(3):
        await live.poll(5)
    assert "job.fault" not in live.kinds(job)
    assert live.subjobs(job)[0].state == "failed" and len(live.subjobs(job)) == 2


async def _registered_only(live: LiveWorld, subjob: str) -> Worker:
    """A subjob that is seen to run and is wanted, whose second node's worker has not come yet."""
    live.batch.start(f"ejb-{subjob}")
    await live.poll()
    worker = Worker(live, subjob, live.batch.of(f"ejb-{subjob}").processors // 2)
    live.workers[subjob] = worker
    await worker.register()
    assert live.job(subjob.partition(".")[0]).members == [subjob]
    return worker


async def test_a_subjob_that_the_batch_system_suspends_is_not_silent(live: LiveWorld) -> None:
    """Gang scheduling stops its processes for a while: nobody hears of its worker, and nothing is wrong."""
    job = await running(live)
    live.batch.free = 0
    row = live.batch.of(f"ejb-{job}.1")
    live.batch.jobs[row.id] = replace(row, state=BatchState.SUSPENDED, end_s=live.clock.now + 2000)
    for _ in range(20):  # 100 s; a minute of silence is too much
        await live.poll(5, heartbeats=False)
    assert live.job(job).state == "running" and "worker.lost" not in live.kinds(job)
    live.batch.jobs[row.id] = replace(row, end_s=live.clock.now + 2000)
    await live.poll(55, heartbeats=False)
    assert live.job(job).state == "running", "its silence begins when it may run on"
    await live.poll(10, heartbeats=False)
    assert "worker.lost" in live.kinds(job), "one that runs and says nothing is lost, as ever"


# -- passed-through jobs ----------------------------------------------------------------------------------------------


async def test_a_passed_through_job_that_is_requeued_waits_again(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    job = await live.submit()
    tag = f"ejb-{job}.0"
    live.batch.start(tag)
    await live.poll(5)
    first = live.job(job).start_s
    row = live.batch.of(tag)
    live.batch.jobs[row.id] = replace(row, state=BatchState.PENDING, start_s=None, end_s=None, nodes=())
    await live.poll(5)
    assert (live.job(job).state, live.subjobs(job)[0].state) == ("waiting", "pending")
    assert live.subjobs(job)[0].nodes == [] and "put it back into the queue" in live.job(job).reason
    live.batch.start(tag)
    await live.poll(5)
    assert (live.job(job).state, live.subjobs(job)[0].state) == ("running", "running")
    assert live.job(job).start_s == first and (live.subjobs(job)[0].start_s or 0) > (first or 0)
    row = live.batch.of(tag)
    live.batch.jobs[row.id] = replace(
        row, state=BatchState.FAILED, exit_code=137, exit_signal=9, reason="OutOfMemory", end_s=live.clock.now
    )
    await live.poll(5)
    assert (live.job(job).state, live.job(job).exit_code, live.job(job).exit_signal) == ("failed", 137, 9)
    assert live.job(job).reason.endswith("ended as failed (OutOfMemory)"), "in the batch system's own words"


@pytest.mark.parametrize("as_seen", [BatchState.CANCELLED, BatchState.COMPLETED, None])
async def test_a_passed_through_job_is_cancelled_at_once_unless_it_was_over_before(
    tmp_path: Path, store: Store, as_seen: BatchState | None
) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    job = await live.submit()
    tag = f"ejb-{job}.0"
    live.batch.start(tag)
    await live.poll(5)
    if as_seen is BatchState.COMPLETED:
        live.batch.end(tag)  # which no poll has seen
    await live.manager.cancel(job, "ada")
    assert (live.job(job).state, live.job(job).final_state) == ("ending", "cancelled")
    assert live.job(job).reason == "cancelled by ada"
    await live.act()
    if as_seen is None:
        live.batch.forget(tag)
        await live.poll(5)
        await live.poll(60)
    await live.poll(5)
    assert live.job(job).state == (as_seen or BatchState.CANCELLED)
    assert live.job(job).reason == ("" if as_seen is BatchState.COMPLETED else "cancelled by ada")


async def test_a_passed_through_job_whose_end_the_batch_system_forgets_runs_again_unhindered(
    tmp_path: Path, store: Store
) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    job = await live.submit()
    tag = f"ejb-{job}.0"
    live.batch.start(tag)
    await live.poll(5)
    row = live.batch.of(tag)
    live.batch.jobs[row.id] = replace(row, state=BatchState.COMPLETED, exit_code=0, end_s=live.clock.now)
    await live.poll(5)
    assert live.job(job).state == "completed"
    live.batch.jobs[row.id] = replace(row, state=BatchState.RUNNING, start_s=live.clock.now, end_s=live.clock.now + 300)
    for _ in range(3):
        await live.poll(40)
    assert live.batch.jobs[row.id].state is BatchState.RUNNING, "cancelled, it would leave half an output"
    assert "subjob.stray" not in live.kinds(job) and live.kinds(job).count("subjob.rerun") == 1
    assert live.job(job).state == "completed"


async def test_a_disk_of_the_database_that_is_full_for_a_moment_is_no_fault_of_a_job(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way is given up, and done by the next look."""
    job = await live.submit()

    def full(*_ignored: Any, **_more: Any) -> None:
        raise OperationalError("INSERT INTO events", {}, sqlite3.OperationalError("database or disk is full"))

    await live.poll(1)
    live.batch.start(f"ejb-{job}.0")
    with monkeypatch.context() as patched:
        patched.setattr(observe, "_started", full)
        await live.poll(1)
    assert live.subjobs(job)[0].state == "pending", "nothing of it was stored"
    await live.poll(1)
    assert live.subjobs(job)[0].state == "running"
    assert "job.fault" not in live.kinds(job)


async def test_a_lead_that_is_told_to_stop_before_it_has_begun_ends_nothing(live: LiveWorld) -> None:
    """J0 starts in the moment in which a lead was appointed in a window: it is told both at once."""
    job = await live.submit(engine="application", walltime_s=1000.0)
    await live.poll(1)
    worker = await live.arrive(f"{job}.1")
    assert "lead.appointed" in live.kinds(job)
    live.batch.free = 16
    live.batch.start(f"ejb-{job}.0")
    home = Worker(live, f"{job}.0", 16)
    live.workers[f"{job}.0"] = home
    await home.register()
    await live.poll(1)
    assert "decision.start_on_placeholder" in live.kinds(job)
    worker.fail["lead"] = {}
    assert (await worker.work())[:2] == ["lead", "exit"]
    await live.poll(1)
    await live.work()
    await live.poll(1)
    await live.work()
    row = live.job(job)
    assert (row.state, row.setbacks, row.script_run) == ("running", 0, 1), row.reason
    assert [epoch.members for epoch in live.epochs(job) if epoch.state == "running"] == [[f"{job}.0"]]


async def test_a_subjob_that_is_not_listed_is_lost_when_its_workers_are_silent_and_not_before(live: LiveWorld) -> None:
    """A batch system that was started without its state lists nothing of what runs."""
    job = await running(live)
    live.batch.forget(f"ejb-{job}.1")
    for _ in range(3):
        await live.poll(live.settings.limits.missing_grace_s)
    assert live.subjobs(job)[1].state == "running" and [e.state for e in live.epochs(job)] == ["running"]
    for _ in range(3):
        await live.poll(live.settings.limits.missing_grace_s, heartbeats=False)
    assert live.subjobs(job)[1].state in ("lost", "failed")
