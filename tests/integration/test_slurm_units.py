"""What is Slurm's own: whole nodes, planned nodes, layouts, and holes that are backfilled at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.batch.base import Mark, SubmitRequest
from ejbd.batch.slurm import SlurmBatch
from ejbd.core.room.windows import windows
from ejbd.core.shapes import UNLIMITED
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from tests.fakes.me import ME
from tests.integration.background import fill
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = pytest.mark.slurm


def request(folder: Path, processors: int, **more: object) -> SubmitRequest:
    wanted = SubmitRequest(
        tag="ejb-unit",
        comment="",
        queue="batch",
        processors=processors,
        walltime_s=600,
        script="#!/bin/sh\nsleep 300\n",
        workdir=folder,
        output=Path("/dev/null"),
    )
    return replace(wanted, **more)  # type: ignore[arg-type]


async def running(batch: SlurmBatch, id: str) -> BatchJobView:
    return await seen(batch, id, lambda job: job.state is BatchState.RUNNING)


async def seen(batch: SlurmBatch, id: str, right) -> BatchJobView:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 60
    while True:
        job = next(job for job in (await batch.observe()).jobs if job.id == id)
        if right(job):
            return job
        assert time.monotonic() < deadline, job
        await asyncio.sleep(0.1)


def idle(view: ClusterView, queue: str) -> int:
    return windows(view, queue, view.time_s).available(3600)


async def test_a_partition_that_gives_out_whole_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    batch = slurm.batch()
    view = await batch.observe()
    assert {queue.name: queue.processor_quantum for queue in view.queues} == {"batch": 1, "whole": 4}
    assert idle(view, "batch") == idle(view, "whole") == 32
    await running(batch, await batch.submit(ME, request(tmp_path, 1)))
    view = await batch.observe()
    assert (idle(view, "batch"), idle(view, "whole")) == (31, 28)
    whole = await running(batch, await batch.submit(ME, request(tmp_path, 5, queue="whole")))
    assert (whole.processors, len(whole.nodes)) == (8, 2)
    view = await batch.observe()
    assert (idle(view, "batch"), idle(view, "whole")) == (23, 20)


async def test_a_layout_is_kept(slurm: SlurmCluster, tmp_path: Path) -> None:
    batch = slurm.batch()
    id = await batch.submit(ME, request(tmp_path, 6, nodes=3, tasks_per_node=2))
    job = await running(batch, id)
    assert (job.processors, len(job.nodes)) == (6, 3)


async def test_drained_nodes_are_not_idle_and_their_reason_does_no_harm(slurm: SlurmCluster) -> None:
    reason = 'fan|broken = yes "x"\nn9|batch|up'
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", f"Reason={reason}")
    try:
        view = await slurm.batch().observe()
    finally:
        slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    assert {node.name: (node.usable, node.free) for node in view.nodes}["n2"] == (False, 0)
    assert len(view.nodes) == 8 and view.unparsed == 0 and idle(view, "batch") == 28


async def test_somebody_elses_job_is_neither_found_nor_hidden(slurm: SlurmCluster) -> None:
    batch = slurm.batch()
    array = slurm.sbatch("--array=1-9%2", "--time=5", script="sleep 300")
    view = await batch.observe()
    ids = {job.id for job in view.jobs if not job.state.ended}
    assert ids == {f"{array}_1", f"{array}_2", f"{array}_[3-9%2]"} or ids == {f"{array}_[1-9%2]"}
    await batch.cancel(ME, [array])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", [("--ntasks=16",), ("--nodes=4", "--ntasks-per-node=4")])
async def test_a_wide_job_is_planned_on_the_block_and_the_holes_are_open(
    slurm: SlurmCluster, tmp_path: Path, layout: tuple[str, ...]
) -> None:
    batch = slurm.batch()
    background = fill(slurm, tmp_path, free=5)
    wide = slurm.sbatch("--job-name=wide", "--time=10", *layout, script="sleep 300")
    job = await seen(batch, wide, lambda job: job.planned_start_s is not None)
    assert job.planned_nodes == ("n1", "n2", "n3", "n4")
    assert job.planned_start_s is not None and 60 < job.planned_start_s - time.time() <= 360
    view = await batch.observe()
    slots = windows(view, "batch", view.time_s).slots()
    assert [(slot.processors, slot.duration_s) for slot in slots] == [(5, UNLIMITED)]

    first = await running(batch, await batch.submit(ME, request(tmp_path, 5, walltime_s=3600)))
    assert set(first.nodes) == {"n7", "n8"}
    for name, processors in zip(background.fillers, (4, 4, 3), strict=True):
        background.end(name)
        grown = await running(batch, await batch.submit(ME, request(tmp_path, processors, walltime_s=3600)))
        assert grown.nodes == (name,)
    assert (await seen(batch, wide, lambda job: True)).state is BatchState.PENDING
    background.end(background.block)
    assert set((await running(batch, wide)).nodes) == {"n1", "n2", "n3", "n4"}


async def test_where_accounts_are_kept_they_tell_how_jobs_ended(accounting_slurm: SlurmCluster, tmp_path: Path) -> None:
    batch = accounting_slurm.batch()
    failed = await batch.submit(ME, request(tmp_path, 1, script="#!/bin/sh\nexit 7\n"))
    cancelled = await batch.submit(ME, request(tmp_path, 1))
    await running(batch, cancelled)
    await batch.cancel(ME, [cancelled])
    for id in (failed, cancelled):
        await seen(batch, id, lambda job: job.state.ended)
    before = batch.commands.counts["squeue"].calls
    ids = dict.fromkeys((failed, cancelled, "999999"), tmp_path / "no exit file")
    deadline = time.monotonic() + 30
    while len(outcomes := await batch.outcomes(ids)) < 2:  # accounts come a little later
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    assert {id: (o.state, o.source) for id, o in outcomes.items()} == {
        failed: (BatchState.FAILED, "accounting"),
        cancelled: (BatchState.CANCELLED, "accounting"),
    }
    assert outcomes[failed].exit_code == 7
    assert batch.commands.counts["squeue"].calls == before
    submit_s = (await seen(batch, failed, lambda job: True)).submit_s
    assert submit_s is not None
    (one,) = (ids := {failed: tmp_path / "no exit file"})
    assert one in await batch.outcomes(ids, {one: Mark("ejb-a1.0", submit_s)})
    assert await batch.outcomes(ids, {one: Mark("ejb-a1.0", submit_s - 60)}) == {}, "the number was given again"
