"""A partition with OverSubscribe=FORCE:2 of a real Slurm: two jobs start on the same node, and keep to parts of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.sites import POLL_S
from tests.acceptance.test_pool_local import cpus_of, resizes
from tests.fakes.daemon import FAST, ROOT, Daemon, until
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

CPUS = sorted(os.sched_getaffinity(0))


@pytest.mark.skipif(len(CPUS) < 2, reason="ranks are bound where there are two CPUs")
def test_two_jobs_share_a_node_and_their_ranks_no_processor(tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    paced, both = tmp_path / "paced", len(CPUS)
    subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    queue = FAST.replace("[queues.default]\n", "[queues.default]\nmin_processors = 1\n")
    with slurm_cluster(1, both) as cluster:
        cluster.run("scontrol", "update", "PartitionName=batch", "OverSubscribe=FORCE:2")
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{queue}'
        daemon = Daemon(tmp_path, settings, {"SLURM_CONF": str(cluster.conf)})
        daemon.start()
        try:
            words = [str(paced), "--pace", "100ms", "--result"]
            one = daemon.submit(*words, "first", "--steps", "4000", ranks=both, time="15")
            daemon.wait_event(one, "epoch.running")
            two = daemon.submit(*words, "second", "--steps", "4000", ranks=both, time="15")
            daemon.wait_event(two, "epoch.running")
            until(lambda: resizes(daemon, one) == [(both, (both + 1) // 2)], "the first job was not folded")
            first, second = cpus_of("first"), cpus_of("second")
            assert len(first) == (both + 1) // 2 and sorted(first + second) == CPUS
            daemon.client.post(f"/v1/jobs/{two}/cancel")
            until(lambda: cpus_of("first") == CPUS, "the first job was not unfolded")
            part = daemon.submit(*words, "part", "--steps", "4000", ranks=1, time="15")
            daemon.wait_event(part, "epoch.running")
            until(
                lambda: sorted(cpus_of("first") + cpus_of("part")) == CPUS, "a job of a part of the node is beside it"
            )
            assert len(cpus_of("part")) == 1
            daemon.client.post(f"/v1/jobs/{part}/cancel")
            until(lambda: cpus_of("first") == CPUS, "the first job was not unfolded")
            assert daemon.kinds(one).count("epoch.launching") == 1, "no checkpoint"
            daemon.client.post(f"/v1/jobs/{one}/cancel")
        finally:
            daemon.stop()


@pytest.mark.skipif(len(CPUS) == 4, reason="a worker of four processors would bind its ranks to the four CPUs")
def test_a_job_grows_onto_the_rest_of_its_node_without_a_checkpoint(tmp_path: Path) -> None:
    """Eight ranks on four processors of a node of eight; once the other four are free they have them too."""
    if reason := missing_slurm():
        pytest.skip(reason)
    paced, result = tmp_path / "paced", tmp_path / "result"
    subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    words = [str(paced), "--steps", "200", "--pace", "100ms"]
    said = subprocess.run([*words[:3], "--expect", "8"], capture_output=True, text=True, check=True, timeout=60).stdout
    queue = FAST.replace("[queues.default]\n", '[queues.default]\nin_place = "on"\n')
    with slurm_cluster(1, 8) as cluster:
        other = cluster.run("sbatch", "--parsable", "-n4", "-t10", "-o", "/dev/null", "--wrap", "sleep 600").strip()
        until(lambda: cluster.states().get(other) == "RUNNING", "the other job did not start")
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{queue}'
        daemon = Daemon(tmp_path, settings, {"SLURM_CONF": str(cluster.conf)})
        daemon.start()
        try:
            job = daemon.submit(*words, "--result", str(result), ranks=8, time="4")
            daemon.wait_event(job, "epoch.running")
            cluster.run("scancel", other)
            until(lambda: (4, 8) in resizes(daemon, job), "it has not grown in place", trace=daemon.trace(job))
            assert daemon.wait(job)["state"] == "completed"
            assert daemon.kinds(job).count("epoch.launching") == 1, "no checkpoint"
            assert result.read_text() == said
        finally:
            daemon.stop()
