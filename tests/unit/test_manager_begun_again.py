"""A script whose shell is lost with its node: begun again behind its launches where it may be, and failed otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker

TEXT = "#!/bin/sh\nsrun ./a\nsrun ./b\n"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def launch(live: LiveWorld, worker: Worker, job: str, ordinal: int) -> None:
    await worker.report(
        "launch", ordinal=ordinal, size=16, file=str(live.manager.world.spool.launch_file(job, ordinal))
    )
    await live.work()


async def in_its_second_launch(live: LiveWorld, **more: Any) -> tuple[str, Worker]:
    """A script whose first launch has ended, and whose second one runs on a subjob of 4."""
    script: dict[str, Any] = {
        "kind": JobKind.SCRIPT,
        "script": TEXT,
        "argv": (),
        "engine": "application",
        "walltime_s": 1000.0,
    }
    job = await live.submit(**script | more)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await launch(live, worker, job, 0)
    await worker.finish_ranks(1)
    await live.work()
    await launch(live, worker, job, 1)
    assert [epoch.state for epoch in live.epochs(job)] == ["ended", "running"]
    return job, worker


async def lose(live: LiveWorld, tag: str) -> None:
    """Its mom dies and comes back, as OpenPBS tells it; its workers end what runs there when they are told to."""
    live.batch.free = 0
    live.batch.end(f"ejb-{tag}", BatchState.NODE_FAIL, None)
    await live.poll()
    await live.work()
    worker = live.workers.pop(tag)
    await worker.report("leaving", reason="told to", exits={})
    await live.poll()


async def test_a_script_that_does_nothing_but_launch_is_begun_again_behind_its_launches(live: LiveWorld) -> None:
    job, _ = await in_its_second_launch(live, begins_again=True)
    assert "begins only once" not in (await live.manager.explain(job))["now"]
    await lose(live, f"{job}.1")
    assert (live.job(job).state, live.job(job).setbacks) == ("waiting", 1)
    live.batch.start(f"ejb-{job}.0")
    worker = await live.begin(f"{job}.0")
    (told,) = [payload for kind, payload in worker.done if kind == "lead"]
    assert (told["run"], told["script"]["ended_launches"]) == (2, {"0": 0})
    await launch(live, worker, job, 1)
    (again,) = [payload for kind, payload in worker.done if kind == "launch"]
    assert again["epoch"] == 3, "the launch that ran goes on, and the one before is not repeated"
    await worker.finish_ranks(3)
    await live.work()
    await worker.report("script-exit", run=2, code=0)
    await live.work()
    assert live.job(job).state == "completed"
    assert [one.exit_code for one in live.launches(job)] == [0, 0]


async def test_a_script_that_may_have_done_more_fails_with_its_node(live: LiveWorld) -> None:
    job, _ = await in_its_second_launch(live)
    assert "its script begins only once" in (await live.manager.explain(job))["now"]
    await lose(live, f"{job}.1")
    await live.work()
    assert live.job(job).state == "failed" and "held the script" in live.job(job).reason


async def test_one_that_loses_its_node_again_and_again_between_its_launches_fails_in_the_end(live: LiveWorld) -> None:
    job = await live.submit(kind=JobKind.SCRIPT, script=TEXT, argv=(), walltime_s=1000.0, begins_again=True)
    most = live.settings.limits.max_setbacks
    for lost in range(most + 1):
        assert live.job(job).setbacks == lost and live.job(job).state in ("waiting", "running")
        live.batch.free = 8
        for _ in range(40):
            await live.poll(30)
            waiting = [s for s in live.subjobs(job) if s.state == "pending" and not s.releasing]
            if waiting:
                break
        tag = f"{job}.{waiting[-1].ordinal}"
        await live.begin(tag)
        assert live.job(job).state == "running", "its script has begun"
        await lose(live, tag)
    assert live.job(job).state == "failed"
