"""A job that outlives its walltime on J0 ends by time-out, once, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

COMMAND: dict[str, Any] = {}
SCRIPT: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}
RESTARTABLE = SCRIPT | {"restartable": True}
KINDS = pytest.mark.parametrize("kind", [COMMAND, SCRIPT, RESTARTABLE], ids=["command", "script", "restartable"])


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def on_j0(live: LiveWorld, kind: dict[str, Any], engine: str = "none") -> str:
    """A job of 16 ranks and 100 s, on J0."""
    live.batch.free = 0
    job = await live.submit(engine=engine, **kind)
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    if kind:
        lead = live.workers[f"{job}.0"]
        await lead.report("launch", ordinal=0, size=16, file=str(live.manager.world.spool.launch_file(job, 0)))
        await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    return job


async def leaves(live: LiveWorld, job: str) -> None:
    """The batch system sends TERM, and the worker tells of it while there is time."""
    exits = {"1": {str(rank): 143 for rank in range(16)}}
    await live.workers[f"{job}.0"].report("leaving", reason="ended by SIGTERM", exits=exits)


async def ended(live: LiveWorld, job: str, state: BatchState) -> None:
    live.batch.end(f"ejb-{job}.0", state, None)
    for _ in range(8):
        await live.poll(30)


def submissions(live: LiveWorld) -> int:
    return sum(call.startswith("submit") for call in live.batch.calls)


@pytest.mark.sampled(3)
@KINDS
async def test_a_job_that_outlives_its_walltime_on_j0_times_out_once(live: LiveWorld, kind: dict[str, Any]) -> None:
    job = await on_j0(live, kind)
    await live.poll(100)
    await leaves(live, job)
    await ended(live, job, BatchState.TIMEOUT)
    row = live.job(job)
    assert (row.state, row.exit_code, row.setbacks) == ("timeout", None, 0)
    assert "time limit of 100 s" in row.reason
    assert submissions(live) == 1


@pytest.mark.parametrize("told", [False, True], ids=["silent", "told"])
async def test_a_limit_that_an_operator_shortened_ends_it_too(live: LiveWorld, told: bool) -> None:
    """Long before what the job asked for: the batch system alone knows that it was the limit."""
    job = await on_j0(live, RESTARTABLE if told else COMMAND, engine="application")
    await live.poll(20)
    if told:
        await leaves(live, job)
        await live.poll(1)
    await ended(live, job, BatchState.TIMEOUT)
    assert live.job(job).state == "timeout"
    assert submissions(live) == 1


async def test_a_node_that_is_lost_is_no_time_out(live: LiveWorld) -> None:
    job = await on_j0(live, COMMAND)
    await live.poll(20)
    await leaves(live, job)
    await ended(live, job, BatchState.NODE_FAIL)
    assert live.job(job).state == "waiting"
    assert submissions(live) == 2


@pytest.mark.parametrize("who", ["rank", "script"])
async def test_what_the_limit_ended_is_no_failure_of_the_program(live: LiveWorld, who: str) -> None:
    """It may catch the TERM, and leave with a code of its own before its worker does."""
    job = await on_j0(live, COMMAND if who == "rank" else SCRIPT)
    await live.poll(101)
    told = {"rank": {"epoch": 1, "rank": 3}, "script": {"run": 1}}[who]
    await live.workers[f"{job}.0"].report(f"{who}-exit", code=7, **told)
    await live.work()
    await ended(live, job, BatchState.TIMEOUT)
    assert live.job(job).state == "timeout"


async def beside_its_j0(live: LiveWorld) -> str:
    """A script without a launch now, in a subjob of 4 that lasts for minutes, whose J0 has started beside it."""
    job = await live.submit(**SCRIPT)
    await live.poll(1)
    await live.begin(f"{job}.1")
    assert live.subjobs(job)[1].anchor and live.job(job).state == "running"
    live.batch.free = 0
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.poll(1)
    assert live.job(job).members == [f"{job}.0"]
    return job


async def test_a_script_that_lives_elsewhere_is_not_ended_by_its_j0s_limit(live: LiveWorld) -> None:
    job = await beside_its_j0(live)
    await live.poll(101)  # no look came before the limit
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(5)
    row = live.job(job)
    assert (row.state, row.members) == ("running", [f"{job}.1"]), row.reason
    await live.workers[f"{job}.1"].report("script-exit", run=1, code=0)
    await live.work()
    assert live.job(job).state == "completed"


async def test_a_j0_on_which_nothing_runs_keeps_its_number_over_its_limit(live: LiveWorld) -> None:
    job = await beside_its_j0(live)
    await live.poll(88)
    assert live.job(job).members == [f"{job}.1"]
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.HELD
    await live.poll(60)
    assert live.job(job).state == "running"


async def test_ranks_on_j0_end_with_its_limit_wherever_the_script_lives(live: LiveWorld) -> None:
    job = await beside_its_j0(live)
    lead = live.workers[f"{job}.1"]
    await lead.report("launch", ordinal=0, size=16, file=str(live.manager.world.spool.launch_file(job, 0)))
    await live.work()
    await live.poll(101)
    await ended(live, job, BatchState.TIMEOUT)
    await live.work()
    assert live.job(job).final_state == "timeout"
