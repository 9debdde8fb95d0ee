"""--signal: who is told, when, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

SCRIPT: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}
WALLTIME_S = 1000.0
AHEAD_S = 120


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def begun(live: LiveWorld, subjob: str, job: str, script: bool) -> None:
    await live.begin(subjob)
    live.batch.free = 0
    await live.poll(1)
    await live.work()
    if script:
        file = str(live.manager.world.spool.launch_file(job, 0))
        await live.workers[subjob].report("launch", ordinal=0, size=16, file=file)
        await live.work()
    assert live.epochs(job)[-1].state == "running"


async def on_j0(live: LiveWorld, signal: str, **spec: Any) -> str:
    live.batch.free = 0
    job = await live.submit(walltime_s=WALLTIME_S, signal=signal, **spec)
    await begun(live, f"{job}.0", job, "script" in spec)
    return job


def sent(live: LiveWorld, subjob: str) -> list[dict[str, Any]]:
    return [payload for kind, payload in live.workers[subjob].done if kind == "signal"]


async def until(live: LiveWorld, left_s: float, job: str) -> None:
    """To the last look before so many seconds of J0 are left."""
    start_s = next(s.start_s for s in live.subjobs(job) if s.start_s is not None)
    assert start_s is not None
    await live.poll(start_s + WALLTIME_S - left_s - live.clock.now)
    await live.work()


@pytest.mark.parametrize("engine", ["application", "none"])
async def test_ranks_are_told_once_so_long_before_the_end(live: LiveWorld, engine: str) -> None:
    job = await on_j0(live, f"USR1@{AHEAD_S}", engine=engine)
    await until(live, AHEAD_S + 2 * live.settings.poll_s, job)
    assert sent(live, f"{job}.0") == []
    await until(live, AHEAD_S + live.settings.poll_s, job)
    assert sent(live, f"{job}.0") == [{"signal": 10, "epoch": 1}]
    (told,) = [data for kind, data in live.events(job) if kind == "job.signalled"]
    assert (told["signal"], told["script"]) == ("USR1", False)
    assert told["end_s"] - live.clock.now == pytest.approx(AHEAD_S + live.settings.poll_s)
    for _ in range(3):
        await live.poll(live.settings.poll_s)
        await live.work()
    assert len(sent(live, f"{job}.0")) == 1
    await live.restart()
    await live.poll(live.settings.poll_s)
    await live.work()
    assert len(sent(live, f"{job}.0")) == 1, "a daemon that is started anew knows it"


async def test_the_shell_alone_is_told_where_b_is_said(live: LiveWorld) -> None:
    job = await on_j0(live, f"B:TERM@{AHEAD_S}", **SCRIPT)
    await until(live, AHEAD_S, job)
    assert sent(live, f"{job}.0") == [{"signal": 15, "epoch": None}]


async def test_between_launches_the_next_one_is_told(live: LiveWorld) -> None:
    job = await on_j0(live, f"USR1@{AHEAD_S}", **SCRIPT)
    worker = live.workers[f"{job}.0"]
    await worker.finish_ranks(1)
    await live.work()
    await until(live, AHEAD_S, job)
    assert sent(live, f"{job}.0") == []
    await worker.report("launch", ordinal=1, size=16, file=str(live.manager.world.spool.launch_file(job, 1)))
    await live.work()
    await live.poll(1)
    await live.work()
    assert [one["epoch"] for one in sent(live, f"{job}.0")] == [2]


async def test_ranks_that_can_leave_their_subjob_are_not_told_at_its_end(live: LiveWorld) -> None:
    job = await live.submit(walltime_s=WALLTIME_S, signal=f"USR1@{AHEAD_S}", restartable=True, **SCRIPT)
    await live.poll(1)
    await begun(live, f"{job}.1", job, True)
    await live.poll(3 * WALLTIME_S)
    assert "job.signalled" not in live.kinds(job)


async def test_a_shell_on_a_subjob_is_told_before_that_ends(live: LiveWorld) -> None:
    job = await live.submit(walltime_s=WALLTIME_S, signal=f"B:USR1@{AHEAD_S}", **SCRIPT)
    await live.poll(1)
    await begun(live, f"{job}.1", job, True)
    anchor = live.subjobs(job)[1]
    assert anchor.anchor and anchor.start_s is not None
    end_s = anchor.start_s + anchor.walltime_s
    await live.poll(end_s - 2 * AHEAD_S - live.clock.now)
    await live.work()
    assert sent(live, anchor.id) == []
    await live.poll(end_s - AHEAD_S - live.clock.now)
    await live.work()
    assert sent(live, anchor.id) == [{"signal": 10, "epoch": None}]
