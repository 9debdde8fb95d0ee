"""What workers are told: only what the protocol carries, since for anything else they would get no answer at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from ejbd.store.models import Operation
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def spoiled(live: LiveWorld, kind: str) -> int:
    """Operations of this kind that wait get a payload that the protocol does not carry; how many there were."""

    def spoil(session: Session) -> int:
        found = [one for one in session.query(Operation) if one.kind == kind and one.state == "queued"]
        for one in found:
            one.payload = {**one.payload, "unheard": 1}
        return len(found)

    return live.store.write_sync(spoil)


@pytest.mark.parametrize("kind", ["lead", "launch", "unlead"])
async def test_what_the_protocol_does_not_carry_has_failed_and_is_said(live: LiveWorld, kind: str) -> None:
    """The daemon answered 500 to that worker for ever, which took it for a daemon that is away."""
    job, done = await live.submit(walltime_s=2000.0), 0
    await live.poll(1)
    worker = await live.arrive(f"{job}.1")
    for _ in range(12):
        done = done or spoiled(live, kind)
        await live.work(rounds=1)
        if worker.ranks:
            await worker.finish_ranks(max(worker.ranks))
        await live.poll(5)
    assert done == 1, "the job came to where it is told so"
    (failed,) = (data for what, data in live.events(job) if what == "operation.failed")
    assert failed["operation"] == kind and f"{kind}.payload.unheard" in failed["reason"]
    assert live.job(job).state == "completed"
