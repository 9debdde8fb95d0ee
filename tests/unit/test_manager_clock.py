"""The machine's clock is set while jobs run: it is told once, and nobody is harmed. Silent workers, over restarts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.core.view import BatchState
from ejbd.manager.facts.clock import SteadyClock
from ejbd.store.models import Event
from ejbd.store.models import Worker as WorkerRow
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql

HOUR = 3600.0
SET = pytest.mark.parametrize("by_s", [HOUR, -HOUR], ids=["forward", "back"])
WHOSE = pytest.mark.parametrize("together", [False, True], ids=["daemon-alone", "batch-system-too"])


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def set_clock(live: LiveWorld, by_s: float, together: bool = False) -> None:
    live.set_by_s += by_s
    if together:
        live.batch.clock = lambda: live.clock.now + live.set_by_s  # type: ignore[assignment]


async def running(live: LiveWorld) -> str:
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    await live.poll(5)
    assert [e.state for e in live.epochs(job)] == ["running"]
    return job


def set_events(live: LiveWorld) -> list[float]:
    rows = live.store.read_sync(lambda s: [e for e in s.query(Event) if e.kind == "clock.set"])
    return [row.data["by_s"] for row in rows]


@pytest.mark.sampled(4)
@SET
@WHOSE
async def test_a_running_job_does_not_notice_that_the_clock_is_set(
    live: LiveWorld, by_s: float, together: bool
) -> None:
    job = await running(live)
    before = live.job(job).work_s
    live.batch.free = 0
    set_clock(live, by_s, together)
    for _ in range(6):
        await live.poll(5)
        await live.work(2)
    row = live.job(job)
    assert row.state == "running" and [e.state for e in live.epochs(job)] == ["running"]
    assert not {"worker.lost", "subjob.released", "decision.suspend"} & set(live.kinds(job))
    world_s = live.daemon_clock()
    assert world_s == pytest.approx(live.clock.now + by_s)
    assert (row.work_as_of_s or 0) > world_s - 100 and row.work_s >= before
    assert set_events(live) == [by_s], "told once"
    worker = live.workers[f"{job}.1"]
    await worker.finish_ranks(1)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"


@pytest.mark.sampled(3)
@SET
@WHOSE
async def test_jobs_are_submitted_and_grow_after_the_clock_was_set(
    live: LiveWorld, by_s: float, together: bool
) -> None:
    job = await running(live)
    set_clock(live, by_s, together)
    other = await live.submit()  # before the next poll has noticed anything
    assert live.batch.of(f"ejb-{other}.0").state is BatchState.PENDING
    await live.poll(10)
    await live.work(2)
    last = await live.submit()
    assert live.batch.of(f"ejb-{last}.0").state is BatchState.PENDING
    asked = [s.id for s in live.subjobs(job) if s.role == "subjob"]
    assert len(asked) == 2, "the job grows onto what is free"
    await live.begin(asked[1])
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["stopped", "running"]


@pytest.mark.sampled(2)
@SET
async def test_pauses_last_as_long_as_they_would_have(live: LiveWorld, by_s: float) -> None:
    """A submission of unknown outcome, and a back-off."""
    live.batch.hang_submissions = 1
    job = await live.submit()
    assert live.intents("submit")[0].state == "unknown"
    set_clock(live, by_s)
    await live.poll(1)
    assert live.batch.calls.count("find") == 0, "not before its pause is over"
    for _ in range(3):
        await live.poll(6)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


async def test_a_slow_restart_under_way_is_given_its_time(live: LiveWorld) -> None:
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    worker = await live.arrive(f"{job}.1")
    worker.deaf.add("launch")
    await live.work(2)
    assert [e.state for e in live.epochs(job)] == ["launching"]
    set_clock(live, HOUR)
    await live.poll(5)
    assert [e.state for e in live.epochs(job)] == ["launching"]
    await live.poll(60)
    assert live.epochs(job)[0].state == "failed", "its time-out still comes"


async def test_a_clock_that_cannot_be_noted_is_noted_later(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await running(live)
    set_clock(live, HOUR)
    monkeypatch.setattr("ejbd.manager.poll.clockset.shift", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await live.poll(5)
    assert live.daemon_clock() == live.clock.now
    monkeypatch.undo()
    await live.poll(5)
    assert set_events(live) == [HOUR] and live.job(job).state == "running"


async def test_next_year_ages_nothing(live: LiveWorld) -> None:
    """A clock that is set a year ahead by mistake deletes no jobs."""
    live.batch.free = 0
    job = await live.submit()
    await live.manager.cancel(job, "ada")
    await live.act()
    await live.poll(5)
    set_clock(live, 365 * 86400.0)
    await live.poll(5)
    await live.manager.prune()
    assert live.job(job).state == "cancelled"


def test_small_differences_are_no_jump() -> None:
    ticks = itertools.count()
    wall = [1000.0]
    clock = SteadyClock(lambda: wall[0], lambda: next(ticks) * 0.0)
    wall[0] += 1.5
    assert clock.drift() == 0.0
    wall[0] += 1.0
    assert clock.drift() == 2.5
    clock.step(2.5)
    assert (clock(), clock.drift()) == (1002.5, 0.0)


# -- workers over restarts of the daemon ------------------------------------------------------------------------------


async def test_a_dead_worker_is_noticed_by_a_daemon_that_is_restarted_again_and_again(live: LiveWorld) -> None:
    """More often than `worker_silence_s` (60 s): what the daemons have waited for it adds up."""
    job = await running(live)
    for _ in range(4):
        for _ in range(4):
            await live.poll(6, heartbeats=False)
        if "worker.lost" in live.kinds(job):
            break
        await live.restart()
    assert "worker.lost" in live.kinds(job)


async def test_a_living_worker_is_never_taken_for_dead_over_restarts(live: LiveWorld) -> None:
    job = await running(live)
    for _ in range(5):  # 90 s of waiting in all
        for _ in range(3):
            await live.poll(6, heartbeats=False)
        live.clock.now += 70  # the daemon is away
        await live.restart()
        await live.workers[f"{job}.1"].work()
    await live.poll(6, heartbeats=False)
    assert "worker.lost" not in live.kinds(job) and live.job(job).state == "running"
    assert live.store.read_sync(lambda s: list(s.scalars(select(WorkerRow.silent_s)))) == [None]
