"""Elasticity that goes on and off reaches the jobs that wait, and costs none of them its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.acts.subjobs import add_subjob
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Job
from ejbd.store.store import Store
from ejbd.wire.kinds import SubjobRole
from tests.fakes.live import LiveWorld


def others(live: LiveWorld, count: int) -> None:
    """So many jobs of others wait, for something else than room."""
    live.batch.others = [
        BatchJobView(str(i), "other", "eve", "batch", BatchState.PENDING, 8, 3600.0, reason="Dependency", blocked=True)
        for i in range(count)
    ]


def asked_for(live: LiveWorld, job: str) -> int:
    return sum(1 for subjob in live.subjobs(job) if subjob.role == "subjob")


async def test_a_queue_that_grows_makes_those_who_wait_elastic(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity="auto", auto_queue_length=6)
    live.batch.free = 4
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    found = live.job(job)
    assert found.elastic, "it has to wait, and may be helped yet"
    for _ in range(3):
        await live.poll(5)
    assert asked_for(live, job) == 0
    now = (await live.manager.explain(job))["now"]
    assert "it is not started early: 1 jobs wait in queue batch; elasticity begins at 6" in now
    j0 = live.batch.of(f"ejb-{job}.0").id
    others(live, 5)
    await live.poll(5)
    assert asked_for(live, job) == 1
    assert live.batch.of(f"ejb-{job}.0").id == j0, "in the place that it had"


async def test_off_lets_them_wait_as_they_are_and_not_for_a_moment(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity="auto", auto_queue_length=6)
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    others(live, 6)
    await live.poll(5)
    others(live, 3)  # and the job itself: more than half
    await live.poll(5)
    live.batch.free = 4
    await live.poll(5)
    assert asked_for(live, job) == 1, "fewer than six wait, and it is on yet"
    await live.begin(f"{job}.1")
    others(live, 0)
    await live.poll(5)
    await live.work()
    assert live.job(job).state == "running", "what runs goes on"
    live.batch.free = 4
    later = await live.submit(walltime_s=1000.0)
    for _ in range(3):
        await live.poll(5)
    assert asked_for(live, later) == 0 and live.job(later).state == "waiting"


async def test_an_administrator_switches_it_for_those_who_wait(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    await live.manager.set_queue("batch", {"elasticity": "off"}, "root")
    live.batch.free = 4
    for _ in range(3):
        await live.poll(5)
    assert asked_for(live, job) == 0 and len(live.batch.live()) == 1
    await live.manager.set_queue("batch", {"elasticity": "on"}, "root")
    await live.poll(5)
    assert asked_for(live, job) == 1


async def test_what_could_start_at_once_is_passed_through(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity="auto", auto_queue_length=6)
    live.batch.free = 32
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    assert not live.job(job).elastic


async def test_of_one_job_the_longest_subjob_is_submitted_first(tmp_path: Path, store: Store) -> None:
    """However long its own submission takes: the shorter ones wait for it, and other jobs' do not."""
    live = LiveWorld(tmp_path, store)
    live.batch.free = 0
    jobs = [await live.submit(walltime_s=1000.0) for _ in range(2)]
    submit, order = live.batch.submit, list[float | None]()
    others_turn = asyncio.Event()

    async def slow(identity: Identity, request: SubmitRequest) -> str:
        first = request.tag.startswith(f"ejb-{jobs[0]}.")
        if not first:
            others_turn.set()
        elif request.walltime_s == 500.0:
            await asyncio.wait_for(others_turn.wait(), 60)
        order.append(request.walltime_s)
        return await submit(identity, request)

    live.batch.submit = slow  # type: ignore[method-assign]

    def ask(session: object) -> None:
        ctx = live.manager.world.context(session)  # type: ignore[arg-type]
        for job, lengths in zip(jobs, ((10.0, 500.0, 200.0), (20.0,)), strict=True):
            world = JobWorld(ctx, ctx.session.query(Job).filter_by(id=job).one())
            for length in lengths:
                add_subjob(world, SubjobRole.SUBJOB, 1, length)

    await store.write(ask)
    await live.executor.run_due()
    assert order == [20.0, 500.0, 200.0, 10.0]
