"""Workers that could not be heard: the daemon stood still, or its database was away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ejbd.errors import Code, EjbError
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

PATIENCE_S = 20.0


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running(live: LiveWorld) -> str:
    """A job whose ranks run in a window; a minute of a worker's silence is too much."""
    job = await live.submit(walltime_s=2000.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    assert live.job(job).state == "running"
    return job


async def test_workers_are_not_lost_for_the_time_in_which_the_database_was_away(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They called all the while and were not heard; the job was begun anew after an outage of 90 s."""
    job = await running(live)
    await live.poll(5)

    async def fails(*_: Any) -> Any:
        raise EjbError(Code.STORE, "the database does not answer", transient=True)

    with monkeypatch.context() as away:
        away.setattr(live.store, "read", fails)
        for _ in range(20):
            live.clock.now += 5
            await live.manager.poller.poll()
    await live.poll(5, heartbeats=False)
    assert live.job(job).state == "running" and "worker.lost" not in live.kinds(job)
    await live.poll(50, heartbeats=False)
    assert "worker.lost" not in live.kinds(job), "its silence begins when it can be heard"
    await live.poll(15, heartbeats=False)
    assert "worker.lost" in live.kinds(job), "one that says nothing then is lost, as ever"


async def test_workers_are_not_lost_for_the_time_in_which_the_daemon_stood_still(live: LiveWorld) -> None:
    job = await running(live)
    await live.manager.hearing.listen()
    live.clock.now += 600
    await live.manager.hearing.listen()  # its timer is the first to go off
    await live.poll(5, heartbeats=False)
    assert live.job(job).state == "running" and "worker.lost" not in live.kinds(job)


async def test_a_worker_that_was_given_up_and_calls_again_is_told_to_end(live: LiveWorld) -> None:
    """Its ranks are begun elsewhere by then. It was answered with a fault of the daemon, and its ranks ran on."""
    job = await running(live)
    worker = live.workers[f"{job}.1"]
    await live.poll(65, heartbeats=False)
    assert "worker.lost" in live.kinds(job)
    with pytest.raises(EjbError) as refused:
        await worker.register()
    assert refused.value.code is Code.FORBIDDEN


async def test_a_worker_of_another_subjob_is_answered_with_nothing(live: LiveWorld) -> None:
    first, second = await running(live), await live.submit(walltime_s=2000.0)
    worker = live.workers[f"{first}.1"]
    with pytest.raises(EjbError) as refused:
        await live.manager.worker_operations(f"{second}.0", worker.id, 0, 0)
    assert refused.value.code is Code.FORBIDDEN
    with pytest.raises(EjbError) as refused:
        await live.manager.worker_operations(f"{first}.1", "another", 0, 0)
    assert refused.value.code is Code.NOT_FOUND


async def test_a_call_that_waits_ends_with_the_operation_that_comes(live: LiveWorld) -> None:
    job = await running(live)
    worker = live.workers[f"{job}.1"]
    assert await live.manager.worker_operations(worker.subjob, worker.id, 0, 0) == []
    call = asyncio.create_task(live.manager.worker_operations(worker.subjob, worker.id, 0, PATIENCE_S))
    done, _ = await asyncio.wait({call}, timeout=0.2)
    assert not done, "a worker would ask again and again"
    await live.manager.cancel(job, "ada")
    assert [one["kind"] for one in await asyncio.wait_for(call, PATIENCE_S)] == ["stop"]


async def test_what_is_kept_of_a_worker_goes_with_its_job(live: LiveWorld) -> None:
    """The daemon runs for months, and workers are many."""
    job = await running(live)
    memory, calls = live.manager.world.memory, live.manager.calls
    ids = {worker.id for worker in live.workers.values()}
    assert ids and ids <= memory.seen.keys()
    call = asyncio.create_task(calls.operations(f"{job}.1", min(ids), 0, PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        while set(calls._waiting) != {min(ids)}:  # noqa: ASYNC110  # a call that waits sets no event
            await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.wait({call})
    assert calls._waiting == {}
    memory.seen["of a job that ended long ago"] = live.clock.now
    await live.poll(1)
    assert set(memory.seen) == ids, "those that live stay"
