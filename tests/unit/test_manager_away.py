"""Batch jobs that begin, run and end while no daemon is there: what the job is told, and what it gets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker

NONE: dict[str, Any] = {"engine": "none"}
APPLICATION: dict[str, Any] = {"engine": "application"}
SCRIPT: dict[str, Any] = {"engine": "none", "kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}
ALL = pytest.mark.parametrize("kind", [NONE, APPLICATION, SCRIPT], ids=["none", "application", "script"])


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def waiting(live: LiveWorld, kind: dict[str, Any], **more: Any) -> str:
    """A job of 16 ranks and 100 s that waits for J0, which the batch system starts once the daemon is away."""
    live.batch.free = 0
    job = await live.submit(**kind, **more)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.0")
    return job


async def returns(live: LiveWorld, seconds: float) -> None:
    """The daemon comes back after so long."""
    live.clock.now += seconds
    await live.restart()


async def comes(live: LiveWorld, subjob: str) -> Worker:
    """A worker that has waited for the daemon finds it."""
    worker = Worker(live, subjob, live.batch.of(f"ejb-{subjob}").processors)
    live.workers[subjob] = worker
    await worker.register()
    await live.poll()
    await live.work()
    return worker


def submissions(live: LiveWorld) -> int:
    return sum(call.startswith("submit") for call in live.batch.calls)


def running_epochs(live: LiveWorld, job: str) -> list[str]:
    return [epoch.state for epoch in live.epochs(job) if epoch.state == "running"]


# -- nothing of it ever ran -------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@ALL
@pytest.mark.parametrize("times", [1, 8])
async def test_a_j0_that_was_over_before_the_daemon_came_back_is_submitted_again(
    live: LiveWorld, kind: dict[str, Any], times: int
) -> None:
    """As often as the daemon is away for it: that is no setback of the job."""
    job = await waiting(live, kind)
    for ordinal in range(times):
        live.clock.now += 100
        live.batch.end(f"ejb-{job}.{ordinal}", BatchState.TIMEOUT, None)
        await returns(live, 3600)
        for _ in range(4):
            await live.poll(5)
        row = live.job(job)
        assert (row.state, row.setbacks) == ("waiting", 0), row.reason
        assert submissions(live) == ordinal + 2
        live.batch.start(f"ejb-{job}.{ordinal + 1}")
    again = [data["reason"] for event, data in live.events(job) if event == "job.again"]
    assert len(again) == times and all("no rank ran in it" in reason for reason in again)


async def test_a_j0_that_ends_with_nothing_run_under_a_daemons_eyes_comes_again_and_not_for_ever(
    live: LiveWorld,
) -> None:
    """Its worker never comes, and its time is shorter than what a worker is waited for."""
    live.batch.free = 0
    job = await live.submit(engine="none", walltime_s=20.0)
    for _ in range(400):
        await live.poll(10)
        if live.job(job).state == "failed":
            break
        found = live.batch.of(live.subjobs(job)[-1].tag) if live.batch.live() else None
        if found is not None and found.state is BatchState.PENDING:
            live.batch.start(found.name)
        elif found is not None and found.end_s is not None and found.end_s <= live.clock.now:
            live.batch.end(found.name, BatchState.TIMEOUT, None)
    row = live.job(job)
    assert (row.state, row.setbacks, submissions(live)) == ("failed", 5, 6)
    assert "before it could run" in row.reason


# -- part of its time is gone -----------------------------------------------------------------------------------------


async def test_what_cannot_be_moved_begins_with_the_rest_and_again_from_its_start_where_that_is_too_little(
    live: LiveWorld,
) -> None:
    job = await waiting(live, NONE)
    await returns(live, 60)
    worker = await comes(live, f"{job}.0")
    assert running_epochs(live, job) == ["running"]
    await live.poll(40)
    await worker.report("leaving", reason="ended by SIGTERM", exits={"1": {str(rank): 143 for rank in range(16)}})
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, row.setbacks, submissions(live)) == ("waiting", 1, 2), row.reason
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    await live.poll(100)
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, submissions(live)) == ("timeout", 2), "this one was all its own"
    assert "time limit of 100 s" in row.reason


async def test_a_rank_that_the_limit_ends_after_a_part_of_the_time_is_no_failure(live: LiveWorld) -> None:
    job = await waiting(live, NONE)
    await returns(live, 60)
    worker = await comes(live, f"{job}.0")
    await live.poll(40)
    await worker.report("rank-exit", epoch=1, rank=3, code=7)
    await live.work()
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    for _ in range(8):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, row.exit_code, submissions(live)) == ("waiting", None, 2), row.reason


async def test_what_can_be_moved_is_saved_before_the_end_of_a_j0_that_came_late_and_goes_on_in_another(
    live: LiveWorld,
) -> None:
    job = await waiting(live, APPLICATION)
    await returns(live, 60)
    await comes(live, f"{job}.0")
    for _ in range(7):
        await live.poll(5)
        await live.work()
    row = live.job(job)
    assert (row.state, row.setbacks) == ("waiting", 0)
    assert row.work_s > 0 and live.epochs(job)[0].state == "stopped", "with its work kept"
    await live.poll(30)
    assert submissions(live) == 2
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].restart_from == 1


async def test_what_ends_within_the_rest_has_completed(live: LiveWorld) -> None:
    job = await waiting(live, NONE)
    await returns(live, 60)
    worker = await comes(live, f"{job}.0")
    await live.poll(20)
    await worker.finish_ranks(1)
    await live.work()
    assert (live.job(job).state, submissions(live)) == ("completed", 1)


async def test_a_script_that_can_begin_only_once_does_not_where_much_of_its_time_is_gone(live: LiveWorld) -> None:
    job = await waiting(live, SCRIPT)
    await returns(live, 60)
    await comes(live, f"{job}.0")
    for _ in range(8):
        await live.poll(5)
        await live.work()
    row = live.job(job)
    assert (row.state, row.setbacks, submissions(live)) == ("waiting", 0, 2)
    assert row.script_run == 0 and live.epochs(job) == []


async def test_a_script_that_can_begin_only_once_does_where_little_of_its_time_is_gone_and_is_told_of_it(
    live: LiveWorld,
) -> None:
    job = await waiting(live, SCRIPT, walltime_s=1000.0)
    await returns(live, 60)
    await comes(live, f"{job}.0")
    assert live.job(job).script_run == 1
    await live.poll(940)
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(5)
    row = live.job(job)
    assert (row.state, submissions(live)) == ("timeout", 1)
    assert "the first 60 s of which passed while no daemon was there" in row.reason


# -- the batch system's word and times come first ---------------------------------------------------------------------


async def on_j0(live: LiveWorld, kind: dict[str, Any]) -> tuple[str, Worker]:
    live.batch.free = 0
    job = await live.submit(**kind)
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    if "script" in kind:
        await worker.report("launch", ordinal=0, size=16, file=str(live.manager.world.spool.launch_file(job, 0)))
        await live.work()
    assert running_epochs(live, job) == ["running"]
    return job, worker


def leaves_behind(live: LiveWorld, worker: Worker, *reports: dict[str, Any]) -> None:
    """What a worker tells with no daemon there is in its file."""
    job = worker.subjob.partition(".")[0]
    folder = live.manager.world.spool.subjob_dir(job, worker.subjob) / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for report in reports:
        worker.n += 1
        lines.append(json.dumps({"n": worker.n, "told_s": live.clock.now, **report}) + "\n")
    with (folder / f"n1-a-{worker.subjob}-n1.jsonl").open("a") as file:
        file.writelines(lines)


def left(ranks: int = 16) -> dict[str, Any]:
    return {"kind": "leaving", "reason": "ended by SIGTERM", "exits": {"1": {str(rank): 143 for rank in range(ranks)}}}


@pytest.mark.sampled(3)
@ALL
async def test_a_job_that_was_cancelled_while_the_daemon_was_away_is_cancelled_however_late_it_looks(
    live: LiveWorld, kind: dict[str, Any]
) -> None:
    job, worker = await on_j0(live, kind)
    live.clock.now += 20
    leaves_behind(live, worker, left())
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    await returns(live, 3600)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, submissions(live)) == ("cancelled", 1), row.reason


async def test_a_script_that_is_cancelled_at_the_batch_system_is_told_so_and_not_as_lost(live: LiveWorld) -> None:
    """Its worker leaves before the batch system has said why; the one on another node is told to leave, too."""
    live.batch.starts_on = ("n1", "n2")
    job, worker = await on_j0(live, SCRIPT)
    other = Worker(live, f"{job}.0", 1, node="n2")
    await other.register()
    await live.poll(20)
    await worker.report(**left())
    assert live.job(job).state == "running"
    assert await other.work() == ["exit"]
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    for _ in range(4):
        await live.poll(5)
    assert live.job(job).state == "cancelled", live.job(job).reason


async def test_a_script_whose_j0_ends_otherwise_is_lost(live: LiveWorld) -> None:
    job, worker = await on_j0(live, SCRIPT)
    await live.poll(20)
    await worker.report(**left())
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED, 1)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, submissions(live)) == ("failed", 1) and "script" in row.reason


@pytest.mark.parametrize("kind", [NONE, SCRIPT], ids=["command", "script"])
async def test_what_failed_long_before_its_limit_has_failed_though_it_is_told_after_it(
    live: LiveWorld, kind: dict[str, Any]
) -> None:
    """Its worker waits for a daemon until the batch system ends it."""
    job, worker = await on_j0(live, kind)
    live.clock.now += 20
    if kind is SCRIPT:
        leaves_behind(live, worker, {"kind": "script-exit", "run": 1, "code": 7})
    else:
        exits = [{"kind": "rank-exit", "epoch": 1, "rank": rank, "code": 7} for rank in range(16)]
        leaves_behind(live, worker, *exits)
    live.clock.now += 79
    leaves_behind(live, worker, {"kind": "leaving", "reason": "ended by SIGTERM", "exits": {}})
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await returns(live, 3600)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, row.exit_code, submissions(live)) == ("failed", 7, 1), row.reason


@pytest.mark.parametrize("told", [False, True], ids=["left-behind", "told"])
async def test_a_subjob_that_ends_before_the_daemon_is_back_to_suspend_it_is_no_time_out(
    live: LiveWorld, told: bool
) -> None:
    """It completes for a while (an Epilog); J0 waits on, and the job with it."""
    job = await live.submit(engine="application", walltime_s=1000.0)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    assert running_epochs(live, job) == ["running"]
    live.batch.free = 0
    end_s = live.batch.of(f"ejb-{job}.1").end_s
    assert end_s is not None
    live.clock.now = end_s
    found = live.batch.of(f"ejb-{job}.1")
    live.batch.jobs[found.id] = replace(found, state=BatchState.ENDING, end_s=live.clock.now)
    await returns(live, 6)
    if told:  # its worker finds the daemon before it goes
        await worker.register()
        await worker.report(**left())
    else:
        leaves_behind(live, worker, left())
    for _ in range(3):
        await live.poll(2)
        assert live.job(job).state in ("running", "waiting"), live.job(job).reason
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    for _ in range(4):
        await live.poll(5)
    row = live.job(job)
    assert (row.state, row.overruns) == ("waiting", 0), row.reason
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING, "J0 keeps its place"


async def test_a_job_that_had_begun_before_the_daemon_went_away_has_had_its_time(live: LiveWorld) -> None:
    """What its workers could not tell is in their files."""
    live.batch.free = 0
    job = await live.submit(engine="none")
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert running_epochs(live, job) == ["running"] and worker.id
    live.clock.now += 99
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await returns(live, 3600)
    for _ in range(4):
        await live.poll(5)
    assert (live.job(job).state, submissions(live)) == ("timeout", 1)
