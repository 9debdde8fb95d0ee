"""Periodic checkpoints: when they are made, when not, and what a lost node costs then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.checkpoint_interval import daly
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, some


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., LiveWorld]:
    return lambda **queue: LiveWorld(tmp_path, store, **queue)


async def started(live: LiveWorld, **spec: Any) -> str:
    """A job of 16 that takes 4000 s on 4 processors."""
    job = await live.submit(walltime_s=1000.0, **spec)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    assert live.epochs(job)[-1].state == "running"
    return job


def made(live: LiveWorld, job: str) -> list[dict[str, Any]]:
    return [data for kind, data in live.events(job) if kind == "decision.checkpoint"]


async def polls(live: LiveWorld, count: int, seconds: float = 10.0) -> None:
    for _ in range(count):
        await live.poll(seconds)
        await live.work()


async def test_ranks_are_saved_where_they_are(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every=100)
    job = await started(live)
    await polls(live, 9)
    assert made(live, job) == [] and len(live.epochs(job)) == 1
    await polls(live, 2)
    (told,) = made(live, job)
    assert (told["epoch"], told["interval_s"]) == (1, 100.0)
    assert told["reason"] == "every 100 s: queue batch says so"
    first, second = live.epochs(job)
    assert (first.state, second.state, second.restart_from) == ("stopped", "running", 1)
    assert second.members == first.members and second.placement == first.placement
    await polls(live, 30)
    assert len(made(live, job)) == 4, "each begins the time anew"
    assert live.job(job).setbacks == 0 and not live.job(job).reason


async def test_a_lost_node_costs_what_was_computed_since(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every=100)
    job = await started(live)
    await polls(live, 35)
    saved = live.epochs(job)[-1]
    assert saved.restart_from == 3 and saved.work_at_start_s > 60
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    row = live.job(job)
    assert row.work_s == saved.work_at_start_s, "a quarter of the 400 s, less what was computed since"
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].restart_from == 3


async def test_the_job_goes_before_its_queue(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every=20)
    job = await started(live, checkpoint="off")
    await polls(live, 10)
    assert made(live, job) == []
    told = (await live.manager.explain(job))["checkpoints"]
    assert told == {"interval_s": None, "why": "no periodic checkpoints: the job says off", "next_s": None}


async def test_off_unless_asked_for_and_never_without_an_engine(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    await polls(live, 30)
    assert made(live, job) == []
    live.batch.free = 4
    other = await live.submit(walltime_s=1000.0, engine="none", checkpoint="20")
    told = some((await live.manager.explain(other))["checkpoints"])
    assert told["why"] == "no periodic checkpoints: engine none has none"


async def test_auto_by_cost_and_failures(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every="auto", node_mtbf_s=2000.0)
    job = await started(live)
    first = some((await live.manager.explain(job))["checkpoints"])
    assert first["interval_s"] == pytest.approx(daly(5.0, 2000.0)), "before the first one by the configured lambda"
    assert first["next_s"] == pytest.approx((live.epochs(job)[-1].running_s or 0) + some(first["interval_s"]))
    await polls(live, 15)
    assert len(made(live, job)) == 1
    later = some((await live.manager.explain(job))["checkpoints"])
    assert later["interval_s"] == pytest.approx(daly(1.0, 2000.0)), "it took less: more often"
    assert "queue batch says auto" in later["why"]


async def test_none_when_the_job_is_nearly_done(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every=396)
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    await polls(live, 40)  # 400 s on 4 processors
    assert made(live, job) == []


async def test_a_failed_one_is_tried_again_later(world: Callable[..., LiveWorld]) -> None:
    live = world(checkpoint_every=100)
    job = await started(live)
    worker = live.workers[f"{job}.1"]
    worker.fail["checkpoint"] = {"exits": {}, "bytes": {}, "seconds": 0.1}
    await polls(live, 10)
    assert len(made(live, job)) == 1 and live.epochs(job)[-1].state == "running", "it goes on where it is"
    await live.poll(5)
    assert len(made(live, job)) == 1, "not at once"
    worker.fail.clear()
    await polls(live, 2)
    assert live.epochs(job)[-1].restart_from == 1
