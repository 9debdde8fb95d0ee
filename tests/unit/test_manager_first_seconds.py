"""Programs that end in their first seconds under DMTCP, which nobody asked for.

One that DMTCP has refused something is begun once more without it. Of another the code is its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from ejbd.store.models import Launch
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


async def fails(worker: Worker, epoch: int, code: int, refused: str = "inotify") -> None:
    """Each rank of an epoch; "" for `refused`: DMTCP has refused it nothing."""
    told = {"refused": refused} if refused else {}
    for rank in worker.ranks.pop(epoch):
        await worker.report("rank-exit", epoch=epoch, rank=rank, code=code, **told)


async def test_a_program_that_dmtcp_refuses_something_is_begun_without_it_before_anything_is_told(
    live: LiveWorld,
) -> None:
    """It ended with 1 under engine=auto, and the job had failed."""
    job, worker = await running(live)
    await live.poll(2)
    await fails(worker, 1, 1)
    await live.work()
    assert engines(worker) == ["dmtcp", "none"]
    assert live.job(job).state == "running" and "rank.failed" not in live.kinds(job)
    assert live.job(job).setbacks == 0
    assert "asked for inotify" in some((await live.manager.explain(job))["movable"])["why"]
    await worker.finish_ranks(2)
    await live.work()
    assert (live.job(job).state, live.job(job).exit_code) == ("completed", 0)


async def test_a_program_that_dmtcp_refuses_nothing_runs_once_and_its_code_is_its_own(live: LiveWorld) -> None:
    """It was run twice: its files held their lines twice."""
    job, worker = await running(live)
    await live.poll(2)
    await fails(worker, 1, 134, refused="")
    await live.work()
    assert engines(worker) == ["dmtcp"]
    assert (live.job(job).state, live.job(job).exit_code) == ("failed", 134)
    assert "job.not-movable" not in live.kinds(job)
    assert "`--engine none`" in live.epochs(job)[0].reason


async def test_where_each_rank_goes_on_alone_the_last_end_decides(live: LiveWorld) -> None:
    job, worker = await running(live)

    def alone(session: Session) -> None:
        some(session.get(Launch, (job, 0))).together = False

    await live.store.write(alone)
    first, *rest = worker.ranks[1]
    worker.ranks[1] = [first]
    await fails(worker, 1, 1)
    assert engines(worker) == ["dmtcp"]
    worker.ranks[1] = rest
    await worker.finish_ranks(1)
    await live.work()
    assert engines(worker) == ["dmtcp", "none"]


async def test_a_program_without_an_environment_begins_without_dmtcp(live: LiveWorld) -> None:
    """`env -i PROG` ended with 134 under engine=auto: DMTCP's library does not survive it."""
    _job, worker = await running(live, argv=("nice", "/usr/bin/env", "-i", "./prog"))
    assert engines(worker) == ["none"]


async def test_the_next_job_of_such_a_program_begins_without_dmtcp(live: LiveWorld) -> None:
    job, worker = await running(live)
    await fails(worker, 1, 1)
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
    await fails(worker, 1, 3)
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
    await fails(worker, 1, 1)
    await live.work()
    assert (live.job(asked).state, live.job(asked).exit_code, engines(worker)) == ("failed", 1, ["dmtcp"])
    live.batch.end(f"ejb-{asked}.1")
    await live.poll(5)
    long, worker = await running(live)
    await live.poll(40)
    await fails(worker, 1, 1)
    await live.work()
    assert (live.job(long).state, engines(worker)) == ("failed", ["dmtcp"])
