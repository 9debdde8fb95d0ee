"""What the windows do not say by themselves: J0 is not listed yet, and who was waiting goes first."""

from __future__ import annotations

from pathlib import Path

from ejbd.core.view import BatchJobView, BatchState
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


def asked_for(live: LiveWorld, job: str) -> list[int]:
    return [subjob.processors for subjob in live.subjobs(job) if subjob.role == "subjob"]


async def test_nothing_is_asked_for_before_the_batch_system_shows_j0(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    await live.poll()
    live.batch.hang_submissions = 1
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == []
    for _ in range(10):
        await live.poll(5)
    assert asked_for(live, job) == [8]


async def test_a_waiting_job_that_fits_goes_first_but_not_for_ever(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 6, 3600.0)]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == [2], "six of the eight are the other's at the next pass"


async def test_one_that_fits_and_does_not_start_is_not_made_room_for_for_ever(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 8, 3600.0)]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == []
    for _ in range(4):
        await live.poll(5)
    assert asked_for(live, job) == [8], "it waits for something else than room"


async def test_a_job_that_waits_for_something_else_holds_nobody_up(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [
        BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 8, 3600.0, reason="Dependency", blocked=True)
    ]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == [8]
