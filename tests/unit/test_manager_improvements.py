"""What goes beyond the paper, live: suspension and the order of visits.

With a batch system in memory and workers that obey.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., LiveWorld]:
    return lambda **queue: LiveWorld(tmp_path, store, **queue)


def until_shadow(live: LiveWorld, free: int, seconds: float) -> None:
    """`free` processors are idle, and the head of the queue, which wants all there are, starts in `seconds`."""
    now = live.clock()
    live.batch.free = free
    busy = live.batch.total - free
    live.batch.others = [
        BatchJobView("1", "other", "eve", "batch", BatchState.RUNNING, busy, end_s=now + seconds),
        BatchJobView(
            "2", "head", "eve", "batch", BatchState.PENDING, live.batch.total, 3600.0, planned_start_s=now + seconds
        ),
    ]


def without_others(live: LiveWorld, free: int) -> None:
    live.batch.others = []
    live.batch.free = free


async def started(live: LiveWorld, **spec: Any) -> str:
    """A 16-rank job of 100 s on 8 processors that are idle for 60 s: a third of what it would need."""
    until_shadow(live, 8, 60)
    job = await live.submit(**spec)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    return job


async def test_a_slot_too_short_is_used_until_its_end_and_the_work_kept(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    subjob = live.subjobs(job)[1]
    assert (subjob.processors, subjob.walltime_s) == (8, 54), "submitted within a poll, it ends by the shadow time"
    start = next(d["decision"] for k, d in live.events(job) if k == "decision.start")
    assert start["reason"].startswith("start by suspend: 8 processors (degree 2) for 47 s, then back to waiting")
    assert subjob.usable_s == 47, "a look at it and the way to its workers are kept free beyond lambda"

    await live.poll(31)
    assert live.job(job).state == "running" and "decision.suspend" not in live.kinds(job)
    await live.poll(2)  # 21 s before its end: lambda, a poll and 2 s to tell its workers, and two polls
    assert "decision.suspend" in live.kinds(job)
    await live.work()
    await live.act()
    row = live.job(job)
    assert (row.state, row.overruns, row.setbacks) == ("waiting", 0, 0)
    assert row.work_s == pytest.approx(33 / 2)
    assert row.reason == "suspended, with its work kept"
    assert live.epochs(job)[-1].state == "stopped"
    assert live.workers[f"{job}.1"].done[-1][0] == "exit", "it is given back before the shadow time"
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    assert live.subjobs(job)[0].state == "pending", "J0 keeps its place"
    told = await live.manager.explain(job)
    assert told["now"].startswith("waiting with 16 s of work kept: ")
    assert next(d for d in told["decisions"] if d["kind"] == "suspend")["decision"]["reason"] == (
        f"all subjobs ({job}.1) end before the application completes"
    )

    live.batch.others = []
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    epoch = live.epochs(job)[-1]
    assert (epoch.state, epoch.restart_from, epoch.members) == ("running", 1, [f"{job}.0"])
    assert epoch.work_at_start_s == pytest.approx(16.5)


async def test_a_suspended_job_resumes_on_new_room_for_a_lambda(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    await live.poll(45)
    await live.work()
    live.batch.end(f"ejb-{job}.1")
    without_others(live, 4)
    await live.poll(1)
    again = live.subjobs(job)[2]
    decision = [d["decision"] for k, d in live.events(job) if k == "decision.start"][-1]
    assert decision["expected_completion_s"] - decision["now_s"] == 1 + 4 * 77.5, "a measured lambda, and what is left"
    live.batch.free = 0
    await live.begin(again.id)
    await live.poll(1)
    await live.work()
    epoch = live.epochs(job)[-1]
    assert (epoch.restart_from, epoch.members) == (1, [again.id])
    await live.workers[again.id].finish_ranks(2)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"


async def test_it_may_be_suspended_again_and_again(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live, walltime_s=500.0)
    for ordinal in (1, 2, 3):
        await live.poll(45)
        await live.work()
        assert live.job(job).state == "waiting"
        live.batch.end(f"ejb-{job}.{ordinal}")
        until_shadow(live, 8, 60)
        await live.poll(1)
        live.batch.free = 0
        await live.begin(f"{job}.{ordinal + 1}")
        await live.poll()
        await live.work()
    row = live.job(job)
    assert (row.state, row.overruns) == ("running", 0)
    assert [e.restart_from for e in live.epochs(job)] == [None, 1, 2, 3]
    assert row.work_s > 60


async def test_a_suspension_whose_checkpoint_fails_goes_back_to_the_last_one(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    worker = live.workers[f"{job}.1"]
    worker.fail["checkpoint"] = {}
    await live.poll(45)
    await live.work()
    assert live.epochs(job)[-1].state == "running", "nobody stopped: it computes on while it can"
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(15)
    row = live.job(job)
    assert (row.state, row.overruns, row.work_s) == ("waiting", 0, 0.0)
    live.batch.others = []
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert (live.epochs(job)[-1].state, live.epochs(job)[-1].restart_from) == ("running", None)


async def test_a_suspended_run_that_finds_more_room_is_not_suspended(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    until_shadow(live, 8, 10_000)
    await live.poll(10)
    more = live.subjobs(job)[2]
    assert "decision.expand" in live.kinds(job) and more.walltime_s > 60
    live.batch.free = 0
    await live.begin(more.id)
    await live.work()
    await live.poll(40)
    await live.work()
    await live.poll(1)
    await live.work()
    assert live.job(job).state == "running"
    assert "decision.shrink" in live.kinds(job) and "decision.suspend" not in live.kinds(job)
    assert live.epochs(job)[-1].members == [more.id]


async def test_the_paper_leaves_a_slot_alone_that_is_too_short(world: Callable[..., LiveWorld]) -> None:
    live = world(suspend=False)
    until_shadow(live, 8, 60)
    job = await live.submit()
    await live.poll(1)
    assert [s.role for s in live.subjobs(job)] == ["placeholder"]
    decision = next(d["decision"] for k, d in live.events(job) if k == "decision.nothing")
    assert decision["reason"].startswith("no slot carries the job to its end")


@pytest.mark.parametrize(
    "spec",
    [{"engine": "none"}, {"kind": JobKind.SCRIPT, "script": "#!/bin/sh\nsrun ./a\n", "argv": ()}],
    ids=["no engine", "a shell"],
)
async def test_what_cannot_be_kept_is_not_suspended(world: Callable[..., LiveWorld], spec: dict[str, Any]) -> None:
    live = world()
    until_shadow(live, 8, 60)
    job = await live.submit(**spec)
    await live.poll(1)
    assert [s.role for s in live.subjobs(job)] == ["placeholder"]


async def test_a_restartable_script_is_suspended_between_its_launches(world: Callable[..., LiveWorld]) -> None:
    live = world()
    script = "#!/bin/sh\nsrun ./a\nsrun ./b\n"
    job = await started(live, kind=JobKind.SCRIPT, script=script, argv=(), restartable=True)
    worker = live.workers[f"{job}.1"]
    await worker.report("launch", ordinal=0, size=16, file="/x")
    await live.work()
    await worker.finish_ranks(1)
    await live.work()
    await live.poll(45)
    await live.poll(1)
    assert live.job(job).state == "waiting"
    assert [kind for kind in live.kinds(job) if kind == "decision.suspend"] == ["decision.suspend"]


async def test_a_job_that_cannot_be_moved_takes_one_subjob_that_carries_it(world: Callable[..., LiveWorld]) -> None:
    """Case 3 would have it leave the shorter of two."""
    live = world(suspend=False)
    now = live.clock()
    live.batch.free = 16
    live.batch.others = [
        BatchJobView("1", "other", "eve", "batch", BatchState.RUNNING, 16, end_s=now + 60),
        BatchJobView("2", "head", "eve", "batch", BatchState.PENDING, 28, 3600.0, planned_start_s=now + 60),
    ]
    movable = await live.submit(processes=16, walltime_s=100.0, hold=True)
    plans = {}
    for engine in ("application", "none"):
        job = await live.submit(processes=16, walltime_s=100.0, engine=engine)
        await live.poll(1)
        plans[engine] = [s.processors for s in live.subjobs(job)][1:]
        await live.manager.cancel(job, "ada")
        await live.act()
    assert plans == {"application": [4, 12], "none": [4]}
    assert len(live.subjobs(movable)) == 1


@pytest.mark.parametrize(("order", "first"), [("least-work", 1), ("arrival", 0)])
async def test_order_of_visits(world: Callable[..., LiveWorld], order: str, first: int) -> None:
    """Room for one: under least-work the one with the least processors x seconds left takes it, not the first."""
    live = world(order=order)
    live.batch.free = 0
    jobs = [await live.submit(walltime_s=seconds) for seconds in (1000.0, 100.0, 200.0)]
    await live.poll(20)
    live.batch.free = 2
    await live.poll(1)
    assert [len(live.subjobs(job)) - 1 for job in jobs] == [int(i == first) for i in range(3)]


async def test_waiting_jobs_look_for_room_before_running_ones(world: Callable[..., LiveWorld]) -> None:
    live = world(order="least-work")
    live.batch.free = 4
    running = await live.submit(walltime_s=100.0)
    await live.poll(1)
    live.batch.free = 0
    await live.begin(f"{running}.1")
    waiting = await live.submit(walltime_s=1000.0)
    await live.poll(20)
    live.batch.free = 4
    await live.poll(1)
    assert (len(live.subjobs(running)), len(live.subjobs(waiting))) == (2, 2)


async def test_settings_of_a_queue_reach_the_policy(world: Callable[..., LiveWorld]) -> None:
    live = world()
    await live.poll()
    changes = {"suspend": "off", "order": "arrival", "guard": "off", "omax": 4}
    queue = await live.manager.set_queue("batch", changes, "root")
    assert queue["settings"]["order"] == "arrival" and queue["settings"]["suspend"] is False
    live.batch.free = 4
    job = await live.submit()
    await live.poll(1)
    asked = next(d["question"] for k, d in live.events(job) if k == "decision.start")["parameters"]
    told = ("suspend", "order", "guard", "omax")
    assert [asked[key] for key in told] == [False, "arrival", "off", 4]
