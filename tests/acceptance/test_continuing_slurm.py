"""A job that is longer than its partition lets, on a real Slurm: it is checkpointed and goes on in the next J0."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.evolving import PACE, build_paced
from tests.acceptance.journeys import one_copy_only
from tests.fakes.daemon import FAST, Daemon
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]
STEPS = 260  # of a quarter of a second: longer than one minute, and shorter than two


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        partition = cluster.run("sinfo", "--noheader", "--format=%R").split()[0]
        before = cluster.run("sinfo", "--noheader", f"--partition={partition}", "--format=%l").split()[0]
        cluster.run("scontrol", "update", f"PartitionName={partition}", "MaxTime=1")
        try:
            yield cluster
        finally:
            cluster.run("scontrol", "update", f"PartitionName={partition}", f"MaxTime={before.upper()}")


def test_two_minutes_in_a_partition_of_one(cluster: SlurmCluster, tmp_path: Path) -> None:
    program, result = build_paced(tmp_path), tmp_path / "result"
    words = [str(program), "--steps", str(STEPS), "--pace", PACE, "--result", str(result)]
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    daemon.start()
    try:
        job = daemon.submit(*words, overrides={"ntasks": "4", "time": "3", "engine": "application"})
        with one_copy_only(job):
            final = daemon.wait(job, timeout_s=300)
        assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)
        expected = [str(program), "--steps", str(STEPS), "--expect", "4"]
        assert result.read_bytes() == subprocess.run(expected, check=True, capture_output=True, timeout=60).stdout
        j0s = [s for s in final["subjobs"] if s["role"] == "placeholder"]
        assert len(j0s) == 2 and j0s[0]["walltime_s"] == 60.0, daemon.trace(job)
        launched = [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert launched == [None, 1]
        assert "subjob.adopted" in {e["kind"] for e in daemon.events(job)}, "it was queued before the first one ended"
    finally:
        daemon.stop()
        cluster.empty()
