"""A job uses processors that are idle for too short a time to finish on: it is suspended, and goes on later.

The head of the queue wants the whole cluster and is promised a start. Until then 8 processors are idle. A 16-rank job
computes on them, has its ranks checkpointed before that start, gives the processors back, and goes on from there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


def was_suspended(daemon: Daemon, job: str) -> dict[str, Any]:
    """What the journeys have in common: a suspension, nothing counted against the job. The event that tells it.

    There may be a second one: before the first checkpoint its cost is a careful guess (by memory, and by how busy the
    disk was), and where it took far less, what is left before the head's start is worth using.
    """
    told = daemon.explain(job)["decisions"]
    assert told[0]["kind"] == "start", told
    assert told[0]["decision"]["reason"].startswith("start by suspend: 8 processors (degree 2) for ")
    assert [d["kind"] for d in told].count("suspend") in (1, 2)
    events = daemon.events(job)
    kinds = [event["kind"] for event in events]
    assert "epoch.failed" not in kinds and "job.timeout" not in kinds
    suspension = next(event for event in events if event["kind"] == "decision.suspend")
    stopped = next(event for event in events if event["kind"] == "epoch.stopped")
    back = next(event for event in events if event["kind"] == "job.waiting" and event["data"].get("incarnation"))
    assert suspension["at_s"] <= stopped["at_s"] <= back["at_s"] < suspension["data"]["end_s"], "before the shadow time"
    assert back["data"]["reason"] == "suspended, with its work kept"
    assert suspension["data"]["work_s"] > 0
    epochs = [event["data"] for event in events if event["kind"] == "epoch.launching"]
    assert epochs[0]["restart_from"] is None
    assert [e["restart_from"] for e in epochs[1:]] == list(range(1, len(epochs))), "each goes on where the last stopped"
    return suspension


@pytest.mark.nightly("unit/test_manager_improvements.py suspends on the fake world")
def test_on_the_embedded_cluster_it_goes_on_on_j0(tmp_path: Path) -> None:
    site = LocalSite(tmp_path, 8, 4)
    daemon = Daemon(tmp_path, site.toml)
    steps, result = 1000, tmp_path / "moved"
    try:
        daemon.start()
        site.start("block", 24, walltime_s=25)
        site.start("head", 32)
        promised = time.time() + 25
        job = daemon.submit(*daemon.heat(steps, result))
        with one_copy_only(job):
            daemon.wait_event(job, "job.waiting", 2)
            until(lambda: site.state("head") == "running", "the head of the queue did not start when promised", 40)
            assert time.time() < promised + 10
            assert daemon.job(job)["progress"] > 0
            assert " of work kept: " in daemon.explain(job)["now"]
            site.end("head")
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)
        was_suspended(daemon, job)
        last = daemon.events(job)
        assert [e["data"]["subjobs"] for e in last if e["kind"] == "epoch.launching"][-1] == [f"{job}.0"], "on J0"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        site.close()


@pytest.mark.nightly("unit/test_manager_improvements.py suspends; test_site_plans_slurm.py saves work and goes on")
@pytest.mark.slurm
@pytest.mark.xdist_group("journey-suspend-slurm")
def test_on_slurm_it_delays_nobody_and_goes_on_on_other_processors(cluster: SlurmCluster, tmp_path: Path) -> None:
    site = SlurmSite(cluster, tmp_path)
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    daemon = Daemon(tmp_path, toml, site.environment)
    steps, result = 2000, tmp_path / "moved"

    def ends_when_told(name: str, *options: str) -> str:
        script = f"until [ -e '{tmp_path}/end-{name}' ]; do sleep 0.3; done"
        return cluster.sbatch(f"--job-name={name}", "--ntasks-per-node=4", *options, script=script)

    try:
        daemon.start()
        block = ends_when_told("block", "--nodelist=n[1-6]", "--nodes=6", "--time=2")
        cluster.until(lambda: cluster.states().get(block) == "RUNNING", "the block did not start")
        head = ends_when_told("head", "--nodes=8", "--time=60")
        cluster.until(lambda: promised_start(cluster, head) is not None, "nothing is promised to the head of the queue")
        promised = promised_start(cluster, head) or 0.0
        job = daemon.submit(*daemon.heat(steps, result), time="2", overrides={"nodes": 4, "ntasks_per_node": 4})
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running", 1)
            assert (promised_start(cluster, head) or 0.0) <= promised, "J0 and its subjob put the head off"
            daemon.wait_event(job, "job.waiting", 2, timeout_s=90)
            assert step_kept(daemon, job) > 100, "a second of computing is 25 steps"
            until(lambda: not ours_running(cluster, job), "the processors are not given back", 30)
            (tmp_path / "end-block").touch()
            cluster.until(lambda: cluster.states().get(head) == "RUNNING", "the head of the queue does not start")
            assert time.time() <= promised, "it starts no later than it was promised"
            (tmp_path / "end-head").touch()
            final = daemon.wait(job, timeout_s=180)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)
        suspension = was_suspended(daemon, job)
        assert suspension["data"]["end_s"] <= promised + 1
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        cluster.empty()


def promised_start(cluster: SlurmCluster, id: str) -> float | None:
    """When Slurm means to start a pending job."""
    text = cluster.run("squeue", "--noheader", f"--jobs={id}", "--format=%S").strip()
    return None if text in ("", "N/A") else time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def step_kept(daemon: Daemon, job: str) -> int:
    """The step at which the application's checkpoint stands, by its own word."""
    (file,) = (daemon.state / "spool" / "jobs" / job).glob("**/checkpoint/rank-0.ckpt")
    with file.open("rb") as checkpoint:
        return int(json.loads(checkpoint.readline())["step"])


def ours_running(cluster: SlurmCluster, job: str) -> list[str]:
    rows = cluster.run("squeue", "--noheader", "--states=RUNNING,COMPLETING", "--format=%k").split()
    return [name for name in rows if name.startswith(f"ejb-{job}.")]
