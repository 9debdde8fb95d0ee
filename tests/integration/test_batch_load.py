"""The batch system is asked the same few questions a poll, however many elastic jobs wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.batch_counts import elastic_manager, occupy, poll_load, submit_until
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = pytest.mark.slurm
POLLS = 4


async def test_commands_a_poll_do_not_grow_with_the_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    occupy(slurm)
    async with elastic_manager(slurm, tmp_path) as (manager, batch):
        loads = []
        for waiting in (1, 20):
            await submit_until(manager, waiting, timeout_s=120)
            loads.append(await poll_load(slurm, manager, batch, waiting, POLLS))
    few, many = loads
    for load in loads:  # once a minute, however many polls
        assert 0 <= load.commands.pop("scontrol") - POLLS <= 1 + sum(load.seconds) / 60
        load.rpcs.pop("REQUEST_RESERVATION_INFO", 0)
        asked = load.rpcs.pop("REQUEST_PARTITION_INFO") - 2 * POLLS  # squeue does in each poll, and scontrol for nodes
        assert 0 <= asked <= 1 + sum(load.seconds) / 60
    assert few.commands == {"squeue": POLLS}
    assert many.commands == few.commands
    assert many.commands_a_poll <= 3
    assert few.rpcs["REQUEST_JOB_INFO"] == POLLS, "the controller itself counts as many"
    assert many.rpcs == few.rpcs


async def test_what_becomes_of_partitions_is_seen_though_they_are_seldom_asked_for(slurm: SlurmCluster) -> None:
    batch = slurm.batch()
    before = await batch.observe()
    own = next(queue.name for queue in before.queues if queue.default)
    try:
        slurm.run("scontrol", "create", "PartitionName=new", f"Nodes={before.nodes[0].name}", "State=UP")
        assert (await batch.observe()).queue("new") is not None
        slurm.run("scontrol", "update", f"PartitionName={own}", "State=DOWN")
        waits = slurm.sbatch("--time=1", script="true")
        slurm.until(lambda: waits in slurm.run("squeue", "--format=%i %r"), "the job is not listed")
        await batch.observe()  # here it waits for the partition
        view = await batch.observe()
        assert [queue.up for queue in view.queues if queue.name == own] == [False]
    finally:
        slurm.run("scontrol", "update", f"PartitionName={own}", "State=UP")
        slurm.run("scontrol", "delete", "PartitionName=new")
