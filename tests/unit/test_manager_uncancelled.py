"""A batch system that took a cancellation and forgot it: it is asked again, at a pace, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.core.view import BatchState
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    world = LiveWorld(tmp_path, store)
    world.batch.free = 0
    return world


async def cancelled_and_forgotten(live: LiveWorld, state: BatchState = BatchState.PENDING) -> str:
    """A cancelled job, of whose J0's cancellation the batch system knows nothing any more; its batch id."""
    job = await live.submit()
    before = live.batch.of(f"ejb-{job}.0")
    await live.manager.cancel(job, "ada")
    await live.act()
    assert [intent.state for intent in live.intents("cancel")] == ["done"]
    live.batch.jobs[before.id] = replace(before, state=state)
    return before.id


async def test_a_cancellation_that_a_restarted_controller_has_forgotten_is_asked_for_again(live: LiveWorld) -> None:
    id = await cancelled_and_forgotten(live)
    await live.poll(30)
    await live.act()
    assert live.batch.jobs[id].state is BatchState.PENDING, "it may only be slow"
    await live.poll(31)
    await live.act()
    assert live.batch.jobs[id].state is BatchState.CANCELLED
    await live.poll(1)
    (j0,) = live.subjobs(live.intents("cancel")[0].job_id)
    assert j0.state == "cancelled"


async def test_what_is_never_cancelled_is_asked_for_ever_more_rarely(live: LiveWorld) -> None:
    id = await cancelled_and_forgotten(live)
    waits = live.batch.jobs[id]
    asked = []
    for minute in range(1, 20):
        await live.poll(60)
        await live.act()
        live.batch.jobs[id] = waits
        asked.append(len(live.intents("cancel")))
        assert len(asked) == minute
    assert asked[0] == 2 and asked[-1] == 5, "after 1, 3, 7 and 15 minutes"


@pytest.mark.parametrize("state", [BatchState.ENDING, BatchState.UNKNOWN])
async def test_what_is_on_its_way_out_is_left_to_the_batch_system(live: LiveWorld, state: BatchState) -> None:
    await cancelled_and_forgotten(live, state)
    for _ in range(3):
        await live.poll(100)
        await live.act()
    assert len(live.intents("cancel")) == 1
