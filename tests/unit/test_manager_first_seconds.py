"""Programs that end in their first seconds under DMTCP, which nobody asked for: they are begun once more without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
    assert live.job(job).engine in ("dmtcp", "none")
    return job, worker


def engines(worker: Worker) -> list[str]:
    return [payload["engine"] for kind, payload in worker.done if kind == "launch"]


async def test_a_program_that_cannot_begin_under_dmtcp_is_begun_without_it_before_anything_is_told(
    live: LiveWorld,
) -> None:
    """`env -i PROG` ended with 134 under engine=auto, and the job had failed."""
    job, worker = await running(live)
    await live.poll(2)
    await worker.finish_ranks(1, 134)
    await live.work()
    assert engines(worker) == ["dmtcp", "none"]
    assert live.job(job).state == "running" and "rank.failed" not in live.kinds(job)
    assert live.job(job).setbacks == 0
    assert "first seconds under DMTCP" in some((await live.manager.explain(job))["movable"])["why"]
    await worker.finish_ranks(2)
    await live.work()
    assert (live.job(job).state, live.job(job).exit_code) == ("completed", 0)


async def test_the_next_job_of_such_a_program_begins_without_dmtcp(live: LiveWorld) -> None:
    job, worker = await running(live)
    await worker.finish_ranks(1, 134)
    await live.work()
    await worker.finish_ranks(2)
    await live.work()
    assert live.job(job).state == "completed"
    live.batch.end(f"ejb-{job}.1")
    await live.poll(5)
    _second, worker = await running(live)
    assert engines(worker) == ["none"]


async def test_a_program_that_fails_without_dmtcp_too_has_failed_with_its_own_code(live: LiveWorld) -> None:
    job, worker = await running(live)
    await worker.finish_ranks(1, 3)
    await live.work()
    await worker.finish_ranks(2, 3)
    await live.work()
    assert engines(worker) == ["dmtcp", "none"]
    assert (live.job(job).state, live.job(job).exit_code) == ("failed", 3)
    assert live.kinds(job).count("rank.failed") == 1
    live.batch.end(f"ejb-{job}.1")
    await live.poll(5)
    _second, worker = await running(live)
    assert engines(worker) == ["dmtcp"], "DMTCP was not to blame"


async def test_what_was_asked_for_or_ran_for_long_is_not_begun_again(live: LiveWorld) -> None:
    asked, worker = await running(live, engine="dmtcp")
    await worker.finish_ranks(1, 134)
    await live.work()
    assert (live.job(asked).state, live.job(asked).exit_code, engines(worker)) == ("failed", 134, ["dmtcp"])
    live.batch.end(f"ejb-{asked}.1")
    await live.poll(5)
    long, worker = await running(live)
    await live.poll(40)
    await worker.finish_ranks(1, 134)
    await live.work()
    assert (live.job(long).state, engines(worker)) == ("failed", ["dmtcp"])
