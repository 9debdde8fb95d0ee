"""Moves that go wrong, as the manager sees them: what is gone back to, and what is never given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.store.models import Job
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")
    return LiveWorld(tmp_path, store, guard="off")  # J0, which fits, never starts here: nothing is given back for it


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
    worker = await live.arrive(f"{job}.{number}")
    worker.fail.update(fail)
    for epoch in live.epochs(job):
        live.manager.world.spool.checkpoint_dir(job, epoch.number).mkdir(parents=True, exist_ok=True)
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
    assert live.job(job).state == "failed" and live.manager.world.spool.checkpoint_dir(job, 1).is_dir()


async def test_one_workers_failure_is_not_waited_for_at_the_others(live: LiveWorld) -> None:
    job = await running(live)
    live.workers[f"{job}.1"].deaf.add("launch")
    await grow(live, job, 2, launch={})
    assert [e.state for e in live.epochs(job)] == ["stopped", "failed", "launching"]
    assert live.epochs(job)[2].members == [f"{job}.1"]


async def test_older_checkpoints_are_deleted_once_a_newer_one_has_proved_itself(live: LiveWorld) -> None:
    job = await running(live)
    await grow(live, job, 2)
    live.batch.free = 8
    await live.poll(20)
    await grow(live, job, 3)
    assert live.epochs(job)[-1].restart_from == 2

    def kept() -> list[int]:
        return [n for n in (1, 2, 3) if live.manager.world.spool.checkpoint_dir(job, n).is_dir()]

    assert {1, 2} <= set(kept()), "the ranks may yet turn out not to be restored"
    await live.poll(121)
    assert kept()[:1] == [2]


async def moved_often(live: LiveWorld, moves: int, every_s: float = 30.0) -> tuple[str, Worker]:
    """A job of an application that was moved so often, each time well, and has just been started again."""
    job = await live.submit(engine="dmtcp", walltime_s=1000.0, checkpoint=every_s)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    for number in range(1, moves + 1):
        live.manager.world.spool.checkpoint_dir(job, number).mkdir(parents=True, exist_ok=True)
        await live.poll(every_s + 10)
        await live.work()
    assert [e.restart_from for e in live.epochs(job)] == [None, *range(1, moves + 1)]
    return job, worker


@pytest.mark.nightly(
    "test_a_program_that_no_checkpoint_brings_back_is_begun_anew_without_dmtcp has the order, "
    "test_a_spoiled_checkpoint_is_given_up_for_the_one_before the work"
)
async def test_a_checkpoint_that_cannot_be_gone_on_with_costs_the_work_since_the_one_before(live: LiveWorld) -> None:
    """A program that had moved well twelve times was restarted from a bad checkpoint six times, and had failed."""
    job, worker = await moved_often(live, 4)
    for epoch in (5, 6):
        await worker.finish_ranks(epoch, 2)
        await live.work()
    epochs = live.epochs(job)
    assert [e.restart_from for e in epochs][4:] == [4, 4, 3], "the newest twice, then the one before"
    assert epochs[6].state == "running" and epochs[6].work_at_start_s == epochs[2].work_at_stop_s
    assert epochs[6].work_at_start_s > 0
    await live.poll(5)
    await worker.finish_ranks(7)
    await live.work(12)
    assert live.job(job).state == "completed"


async def test_a_program_that_no_checkpoint_brings_back_is_begun_anew_without_dmtcp(live: LiveWorld) -> None:
    """FAILED is for programs that fail without it, too."""
    job, worker = await moved_often(live, 4)
    for _ in range(8):
        last = live.epochs(job)[-1]
        if last.restart_from is None:
            break
        await worker.finish_ranks(last.number, 139)
        await live.work()
    tried = [e.restart_from for e in live.epochs(job)][4:]
    assert tried == [4, 4, 3, 3, None], "the one before 3 went when the ranks ran from 4"
    launched = [payload["engine"] for kind, payload in worker.done if kind == "launch"]
    assert launched[-1] == "none" and live.job(job).state == "running" and live.epochs(job)[-1].work_at_start_s == 0
    await worker.finish_ranks(live.epochs(job)[-1].number, 2)
    await live.work(12)
    assert (live.job(job).state, live.job(job).exit_code) == ("failed", 2)


async def test_a_coordinator_killed_right_after_a_restart_says_nothing_about_the_checkpoint(live: LiveWorld) -> None:
    """The checkpoint was given up for the one before, and the application was taken for one that cannot be moved."""
    job, worker = await moved_often(live, 2)
    for epoch in (3, 4, 5):
        await worker.report("coordinator-lost", epoch=epoch, reason="the DMTCP coordinator ended with code 137")
        await worker.finish_ranks(epoch, 99)
        await live.work()
    assert [e.restart_from for e in live.epochs(job)][2:] == [2, 2, 2, 2]
    assert not {"move.failed", "job.not-movable", "checkpoint.given-up"} & set(live.kinds(job))


async def test_a_rank_that_hangs_after_a_restart_goes_back_to_the_checkpoint_before_once(live: LiveWorld) -> None:
    """R hung after a move, and the job did nothing until its time was up."""
    job, worker = await moved_often(live, 3)
    await live.poll(15)
    await worker.report("stuck", epoch=4, rank=2, seconds=70.0)
    await live.work()
    assert [e.restart_from for e in live.epochs(job)][3:] == [3, 2]
    assert live.epochs(job)[3].reason == "rank 2 stood still for 70 s right after the restart"
    await worker.report("stuck", epoch=5, rank=2, seconds=70.0)
    await live.work()
    assert live.epochs(job)[-1].state == "running" and len(live.epochs(job)) == 5, "once"
    assert live.kinds(job).count("rank.stuck") == 2, "it is told each time"


async def test_a_rank_that_waits_long_after_its_restart_is_only_told(live: LiveWorld) -> None:
    """Its first long wait, hours after a move, had the whole launch begun anew: no checkpoint before was kept."""
    job, worker = await moved_often(live, 3, every_s=150.0)
    await live.poll(121)
    await worker.report("stuck", epoch=4, rank=2, seconds=70.0)
    await live.work()
    assert live.kinds(job).count("rank.stuck") == 1
    assert (live.epochs(job)[-1].number, live.epochs(job)[-1].state) == (4, "running")
    assert live.job(job).state == "running" and "job.not-movable" not in live.kinds(job)


async def test_a_job_with_many_setbacks_still_goes_back_to_the_checkpoint_before(live: LiveWorld) -> None:
    """Setbacks that had come before, whatever they were, let the first bad checkpoint be the job's end."""
    job, worker = await moved_often(live, 3)

    def before(session: Session) -> None:
        session.get_one(Job, session.scalars(select(Job.seq).where(Job.id == job)).one()).setbacks = 5

    await live.store.write(before)
    for epoch in (4, 5):
        await worker.finish_ranks(epoch, 139)
        await live.work()
    assert live.job(job).state == "running"
    assert [e.restart_from for e in live.epochs(job)][3:6] == [3, 3, 2]
