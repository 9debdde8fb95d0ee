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
    assert few.commands == {"squeue": POLLS}
    assert many.commands == few.commands
    assert many.commands_a_poll <= 3
    assert few.rpcs["REQUEST_JOB_INFO"] == POLLS, "the controller itself counts as many"
    assert many.rpcs == few.rpcs
