"""The batch system is asked the same few questions a poll, however many elastic jobs wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.batch_counts import elastic_manager, occupy, poll_load, submit_until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("batch-load")]
POLLS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


async def test_commands_a_poll_do_not_grow_with_the_jobs(
    cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    occupy(cluster)
    async with elastic_manager(cluster, tmp_path_factory.mktemp("load")) as (manager, batch):
        loads = []
        for waiting in (1, 40):
            await submit_until(manager, waiting, timeout_s=120)
            loads.append(await poll_load(cluster, manager, batch, waiting, POLLS))
    few, many = loads
    for load in loads:  # once a minute, however many polls
        assert 0 <= load.commands.pop("scontrol") - POLLS <= 1 + sum(load.seconds) / 60
        load.rpcs.pop("REQUEST_RESERVATION_INFO", 0)
    assert few.commands == {"squeue": POLLS}
    assert many.commands == few.commands
    assert many.commands_a_poll <= 3
    assert few.rpcs["REQUEST_JOB_INFO"] == POLLS, "the controller itself counts as many"
    assert many.rpcs == few.rpcs
