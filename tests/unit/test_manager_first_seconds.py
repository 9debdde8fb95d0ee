"""Programs that end in their first seconds under DMTCP, which nobody asked for: the code is their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.errors import EjbError
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, Worker, some


@pytest.fixture
def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")
    value = LiveWorld(tmp_path, store)
    value.engines = ["application", "dmtcp", "none"]
    return value


async def running(live: LiveWorld, **spec: Any) -> tuple[str, Worker]:
    live.batch.free = 4
    job = await live.submit(**{"engine": "auto", "walltime_s": 1000.0, **spec})
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    return job, worker


def engines(worker: Worker) -> list[str]:
    return [payload["engine"] for kind, payload in worker.done if kind == "launch"]


async def test_a_program_that_fails_at_once_runs_once_and_its_code_is_its_own(live: LiveWorld) -> None:
    """It was run twice: its files held their lines twice."""
    job, worker = await running(live)
    await live.poll(2)
    await worker.finish_ranks(1, 134)
    await live.work()
    assert engines(worker) == ["dmtcp"]
    assert (live.job(job).state, live.job(job).exit_code) == ("failed", 134)
    assert "job.not-movable" not in live.kinds(job)
    assert "`--engine none`" in live.epochs(job)[0].reason


@pytest.mark.parametrize(("spec", "lasts_s"), [({"engine": "dmtcp"}, 2), ({}, 40)], ids=["asked for", "later"])
async def test_of_what_was_asked_for_or_ran_for_long_no_other_engine_is_named(
    live: LiveWorld, spec: dict[str, Any], lasts_s: int
) -> None:
    job, worker = await running(live, **spec)
    await live.poll(lasts_s)
    await worker.finish_ranks(1, 1)
    await live.work()
    assert (live.job(job).state, engines(worker)) == ("failed", ["dmtcp"])
    assert "`--engine none`" not in live.epochs(job)[0].reason


@pytest.mark.parametrize("argv", [("nice", "/usr/bin/env", "-i", "./prog"), ("./prog",)])
async def test_dmtcp_is_what_a_site_has_with_ejbs_library_for_it(live: LiveWorld, argv: tuple[str, ...]) -> None:
    """Programs ended with errors that only DMTCP gave them: `env -i PROG` with 134, others where it refused a call."""
    job, worker = await running(live, argv=argv, signal="USR2@60")
    payload = next(payload for kind, payload in worker.done if kind == "launch")
    library = live.manager.world.spool.root / "dmtcp" / "libejbcalls.so"
    assert (payload["engine"], payload["dmtcp"]["calls"]) == ("dmtcp", str(library))
    live.batch.end(f"ejb-{job}.1")
    library.unlink()
    _job, worker = await running(live, argv=argv)
    assert engines(worker) == ["none"]
    assert "ejb doctor --build-plugin" in some(live.events(_job)[0][1])["reason"]
    with pytest.raises(EjbError, match="ejb doctor --build-plugin"):
        await live.submit(engine="dmtcp")
