"""A signal that a user has sent to a job (scancel --signal)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ejbd.errors import Code, EjbError
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def test_a_signal_reaches_the_ranks_of_a_job_that_runs(live: LiveWorld) -> None:
    job = await live.submit(engine="none")
    with pytest.raises(EjbError, match=r"nothing of job .* runs") as waits:
        await live.manager.signal(job, "USR1", "ranks", "ada")
    assert waits.value.code is Code.CONFLICT
    live.batch.free = 0
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    await live.manager.signal(job, "SIGUSR1", "ranks", "ada")
    await live.work()
    (payload,) = [payload for kind, payload in live.workers[f"{job}.0"].done if kind == "signal"]
    assert payload["signal"] == 10 and payload["epoch"] is not None
    assert ("job.signal-asked", "ranks") in [(kind, data.get("to")) for kind, data in live.events(job)]
    with pytest.raises(EjbError, match="is no signal"):
        await live.manager.signal(job, "SIGNOTHING", "ranks", "ada")
    with pytest.raises(EjbError, match=r"nothing of job .* runs"):
        await live.manager.signal(job, "USR1", "script", "ada")  # a command has no shell
