"""Moves that go wrong, as the manager sees them: what is gone back to, and what is never given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")
    return LiveWorld(tmp_path, store)


async def running(live: LiveWorld, engine: str = "dmtcp") -> str:
    """A job of 16 ranks on a subjob of 4."""
    job = await live.submit(engine=engine, walltime_s=1000.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    return job


async def grow(live: LiveWorld, job: str, number: int, **fail: dict[str, object]) -> Worker:
    """Subjob `number` starts; `fail` is what its worker answers to launches."""
    await live.poll(10)
    live.batch.start(f"ejb-{job}.{number}")
    await live.poll()
    worker = live.workers[f"{job}.{number}"] = Worker(live, f"{job}.{number}", live.subjobs(job)[number].processors)
    worker.fail.update(fail)
    await worker.register()
    for epoch in live.epochs(job):
        live.manager.spool.checkpoint_dir(job, epoch.number).mkdir(parents=True, exist_ok=True)
    await live.work(12)
    return worker


async def test_a_rank_that_ended_early_does_not_undo_the_others(live: LiveWorld) -> None:
    job = await running(live)
    first = live.workers[f"{job}.1"]
    first.fail["checkpoint"] = {"exits": {"3": 0}}
    await grow(live, job, 2)
    assert [e.state for e in live.epochs(job)] == ["running"]
    assert live.job(job).setbacks == 0
    await first.finish_ranks(1)
    await live.work()
    assert live.job(job).state == "completed"


async def test_what_dmtcp_ends_is_not_the_programs_failure(live: LiveWorld) -> None:
    job = await running(live)
    await grow(live, job, 2)
    first = live.workers[f"{job}.1"]
    await live.poll(11)
    await first.report("rank-exit", epoch=2, rank=first.ranks[2][0], code=99)
    await live.work(12)
    assert [(e.state, e.restart_from) for e in live.epochs(job)] == [("stopped", None), ("failed", 1), ("running", 1)]
    assert live.epochs(job)[1].reason.startswith("DMTCP gave rank")


async def test_what_dmtcp_ends_again_and_again_is_started_without_it(live: LiveWorld) -> None:
    """Then 99 is the program's own code: it was tried six times before, and the code was lost."""
    job = await running(live)
    worker = live.workers[f"{job}.1"]
    for epoch in range(1, 4):
        await worker.report("rank-exit", epoch=epoch, rank=0, code=99)
        await live.work(12)
    assert [p["engine"] for kind, p in worker.done if kind == "launch"] == ["dmtcp", "dmtcp", "none"]
    row = live.job(job)
    assert (row.state, row.exit_code, row.setbacks) == ("failed", 99, 2)


async def test_99_is_a_programs_own_code_elsewhere(live: LiveWorld) -> None:
    job = await running(live, engine="application")
    await live.workers[f"{job}.1"].report("rank-exit", epoch=1, rank=0, code=99)
    await live.work()
    assert (live.job(job).state, live.job(job).exit_code) == ("failed", 99)


async def test_a_spoiled_checkpoint_is_given_up_for_the_one_before(live: LiveWorld) -> None:
    job = await running(live)
    await grow(live, job, 2)
    held = live.epochs(job)[1].work_at_start_s
    live.batch.free = 8
    await live.poll(30)
    live.workers[f"{job}.1"].fail["launch"] = {"spoiled": True}
    live.workers[f"{job}.2"].fail["launch"] = {"spoiled": True}
    await grow(live, job, 3, launch={"spoiled": True})
    epochs = live.epochs(job)
    tried = [e.restart_from for e in epochs]
    assert tried[:5] == [None, 1, 2, 2, 1], "the newer one twice, then the one before"
    assert epochs[4].work_at_start_s == held > 0
    given_up = next(data for kind, data in live.events(job) if kind == "checkpoint.given-up")
    assert (given_up["epoch"], given_up["resumed_from"]) == (2, 1)


async def test_a_spoiled_checkpoint_without_another_begins_anew(live: LiveWorld) -> None:
    job = await running(live)
    live.workers[f"{job}.1"].fail["launch"] = {"spoiled": True}
    await grow(live, job, 2, launch={"spoiled": True})
    assert [e.restart_from for e in live.epochs(job)][:4] == [None, 1, 1, None]
    assert live.epochs(job)[3].work_at_start_s == 0 and live.job(job).incarnation == 2


async def test_a_whole_checkpoint_is_never_given_up_for_nothing(live: LiveWorld) -> None:
    """Restarts that fail for another reason are tried as often as allowed, and the job then fails with its images."""
    job = await running(live)
    live.workers[f"{job}.1"].fail["launch"] = {}
    await grow(live, job, 2, launch={})
    for count, pause in ((3, 1), (4, 5), (5, 15), (6, 30)):
        assert [e.restart_from for e in live.epochs(job)] == [None, *[1] * (count - 1)]
        await live.poll(pause - 0.5)
        assert len(live.epochs(job)) == count, "what failed may need a while to pass"
        await live.poll(1)
        await live.work(12)
    assert [e.restart_from for e in live.epochs(job)] == [None, 1, 1, 1, 1, 1, 1]
    live.workers[f"{job}.1"].fail.clear()
    await live.work(12)
    assert live.job(job).state == "failed" and live.manager.spool.checkpoint_dir(job, 1).is_dir()


async def test_one_workers_failure_is_not_waited_for_at_the_others(live: LiveWorld) -> None:
    job = await running(live)
    live.workers[f"{job}.1"].deaf.add("launch")
    await grow(live, job, 2, launch={})
    assert [e.state for e in live.epochs(job)] == ["stopped", "failed", "launching"]
    assert live.epochs(job)[2].members == [f"{job}.1"]


async def test_older_checkpoints_are_deleted_once_a_newer_one_runs(live: LiveWorld) -> None:
    job = await running(live)
    await grow(live, job, 2)
    live.batch.free = 8
    await live.poll(20)
    await grow(live, job, 3)
    assert live.epochs(job)[-1].restart_from == 2
    kept = [n for n in (1, 2, 3) if live.manager.spool.checkpoint_dir(job, n).is_dir()]
    assert 1 not in kept and 2 in kept
