"""A subjob that the batch system warned of, or takes away: what can be saved is, and nothing counts against the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.core.view import BatchState
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running(live: LiveWorld, engine: str = "application", processes: int = 16) -> str:
    """A job on a subjob of 4 processors (or as many as it has processes)."""
    job = await live.submit(processes, engine=engine, walltime_s=1000.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    await live.poll(20)
    return job


async def grown(live: LiveWorld) -> str:
    """A job on two subjobs of 4 processors."""
    job = await running(live)
    await live.poll(5)
    await live.begin(f"{job}.2")
    await live.poll(5)
    await live.work()
    assert live.epochs(job)[-1].members == [f"{job}.1", f"{job}.2"], live.events(job)
    await live.poll(20)
    return job


async def test_a_warned_job_waits_again_with_its_work_kept(live: LiveWorld) -> None:
    job = await running(live)
    worker = live.workers[f"{job}.1"]
    await worker.report("warned", signal="TERM")
    assert "checkpoint" in await worker.work()
    assert [e.state for e in live.epochs(job)] == ["stopped"]
    found = live.job(job)
    assert (found.state, found.setbacks, found.members) == ("waiting", 0, [])
    assert found.work_s > 0
    warned = dict(live.events(job))["subjob.warned"]
    assert warned["end_s"] == live.clock.now + live.settings.limits.warned_grace_s
    assert dict(live.events(job))["decision.suspend"]["leaves"] == [f"{job}.1"]
    live.batch.end(f"ejb-{job}.1", BatchState.PREEMPTED, None)
    await live.poll(5)
    assert live.job(job).setbacks == 0


async def test_one_of_two_subjobs_is_left_and_the_job_goes_on(live: LiveWorld) -> None:
    job = await grown(live)
    await live.workers[f"{job}.2"].report("warned", signal="TERM")
    await live.work(12)
    last = live.epochs(job)[-1]
    assert (last.state, last.members, last.restart_from) == ("running", [f"{job}.1"], 2)
    await live.poll(1)
    assert live.subjobs(job)[2].releasing and not live.subjobs(job)[1].releasing
    assert live.job(job).setbacks == 0


async def test_from_j0_it_goes_back_into_the_queue(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0)
    await live.begin(f"{job}.0")
    await live.work()
    await live.poll(20)
    assert live.job(job).members == [f"{job}.0"]
    await live.workers[f"{job}.0"].report("warned", signal="TERM")
    await live.work()
    assert live.job(job).state == "waiting"
    first, second = live.subjobs(job)
    assert first.releasing and (second.role, second.state) == ("placeholder", "planned")
    await live.act()
    live.batch.end(f"ejb-{job}.0", BatchState.PREEMPTED, None)
    await live.poll(5)
    await live.begin(f"{job}.1")
    await live.work(12)
    assert [(e.state, e.restart_from) for e in live.epochs(job)] == [("stopped", None), ("running", 1)]
    assert live.job(job).setbacks == 0


async def test_a_j0_whose_end_is_moved_forward_is_left_in_time(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0)
    await live.begin(f"{job}.0")
    await live.work()
    await live.poll(20)
    batch_job = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[batch_job.id] = replace(batch_job, end_s=live.clock.now + 100)
    await live.poll(5)
    assert live.job(job).state == "running", "there is time yet"
    for _ in range(18):
        await live.poll(5)
        await live.work()
    assert live.clock.now < (live.subjobs(job)[0].end_s or 0.0)
    assert live.job(job).state == "waiting" and live.job(job).setbacks == 0


async def test_what_cannot_be_moved_runs_on_and_begins_anew_without_a_setback(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(engine="none", walltime_s=1000.0)
    await live.begin(f"{job}.0")
    await live.work()
    worker = live.workers[f"{job}.0"]
    await worker.report("warned", signal="TERM")
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    await worker.report("rank-exit", epoch=1, rank=0, code=143)
    await live.work()
    assert live.job(job).state in ("running", "waiting"), "its ranks had heard the warning, too"
    live.batch.end(f"ejb-{job}.0", BatchState.PREEMPTED, None)
    await live.poll(5)
    assert (live.job(job).state, live.job(job).setbacks) == ("waiting", 0)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "placeholder"]


async def test_a_preemption_without_a_warning_is_no_setback_whoever_tells_first(live: LiveWorld) -> None:
    for told_before in (False, True):
        job = await running(live)
        worker = live.workers[f"{job}.1"]
        if told_before:
            await worker.report("leaving", reason="ended by SIGTERM", exits={})
            assert live.job(job).setbacks == 1
        live.batch.end(f"ejb-{job}.1", BatchState.PREEMPTED, None)
        await live.poll(5)
        assert (live.job(job).state, live.job(job).setbacks) == ("waiting", 0)
        await live.manager.cancel(job, "ada")
        await live.poll(1)


async def test_a_cancelled_subjob_stays_an_end(live: LiveWorld) -> None:
    job = await running(live)
    live.batch.end(f"ejb-{job}.1", BatchState.CANCELLED, None)
    await live.poll(5)
    assert [e.state for e in live.epochs(job)] == ["failed"]
    assert live.job(job).setbacks == 1
