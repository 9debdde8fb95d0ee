"""What a site does to its own cluster while elastic jobs run on it: maintenance that is coming, jobs that preempt.

One small Slurm for all of it, with a partition whose jobs are preempted: TERM first, and GraceTime later the end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.sites import SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("site-plans-slurm")]
GRACE_S = 20
PREEMPTION = f"""
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=low Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=1 GraceTime={GRACE_S}
PartitionName=high Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(4, 4, more=PREEMPTION) as cluster:
        yield cluster


@dataclass
class Bare(SlurmSite):
    """The cluster with nobody else on it."""

    def fill(self) -> None: ...


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Daemon]:
    site = Bare(cluster, tmp_path)
    daemon = Daemon(tmp_path, site.toml, site.environment)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        site.close()


def submit(daemon: Daemon, steps: int, time: str = "10", pace: str = "20ms", **overrides: Any) -> str:
    """The heat equation on 16 ranks; its result goes to the file `moved`."""
    return daemon.submit(*daemon.heat(steps, daemon.folder / "moved", pace), time=time, overrides=overrides)


def completed(daemon: Daemon, cluster: SlurmCluster, job: str, steps: int) -> None:
    final = daemon.wait(job, timeout_s=180)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert (daemon.folder / "moved").read_bytes() == undisturbed(daemon.folder, steps)
    site = Bare(cluster, daemon.folder)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


def window(daemon: Daemon, queue: str = "batch") -> dict[str, Any]:
    return dict(daemon.client.get("/v1/windows", params={"queue": queue}).json()["windows"][0])


@pytest.mark.nightly("integration/test_batch_contract.py has a maintenance; unit/test_manager_windows.py what it ends")
def test_a_coming_maintenance_ends_windows_and_subjobs(cluster: SlurmCluster, daemon: Daemon) -> None:
    """A job that would not be over by then waits for the end of the maintenance; EJB uses the time before it."""
    reservation = "starttime=now+4minutes duration=30 nodes=ALL flags=maint,ignore_jobs users=root"
    name = cluster.run("scontrol", "create", "reservation", *reservation.split()).split()[-1]
    try:
        daemon.stop()
        daemon.start()  # a daemon that runs sees it within a minute
        until(lambda: bool(window(daemon)["slots"]), "nothing is free")
        (slot,) = window(daemon)["slots"]
        assert slot["processors"] == 16 and slot["duration_s"] in (120, 180, 240)
        assert slot["why"] == f"maintenance {name}"
        job = submit(daemon, steps=300)
        with one_copy_only(job):
            completed(daemon, cluster, job, 300)
    finally:
        cluster.run("scontrol", "delete", f"reservationname={name}")
    j0, *subjobs = daemon.job(job)["subjobs"]
    assert j0["start_s"] is None, "it could not start before"
    assert subjobs and all(s["walltime_s"] <= 180 for s in subjobs)
    assert "subjob.lost" not in daemon.kinds(job)
    assert len(subjobs) <= 2, "what cannot start is not asked for again and again"


def preempt(cluster: SlurmCluster) -> str:
    """Somebody's job that needs the whole cluster, on the partition whose jobs go first; its id."""
    return cluster.sbatch("--partition=high", "--ntasks=16", "--time=5", script="sleep 5")


def test_the_grace_of_a_preemption_saves_the_work(cluster: SlurmCluster, daemon: Daemon) -> None:
    """It is preempted on its J0, and in the subjob that it resumes on: both times with its work kept."""
    job = submit(daemon, steps=160, time="5", pace="60ms", partition="low")
    with one_copy_only(job):
        daemon.wait_event(job, "epoch.running")
        until(lambda: daemon.job(job)["progress"] > 0.01, "it does not get on", 60, daemon.trace(job))
        first = preempt(cluster)
        daemon.wait_event(job, "subjob.warned", 1)
        daemon.wait_event(job, "epoch.stopped", 1)
        cluster.until(lambda: cluster.states().get(first) in ("RUNNING", "COMPLETED"), "nobody made room")
        completed(daemon, cluster, job, 160)
    events = daemon.events(job)
    kinds = [event["kind"] for event in events]
    assert "epoch.failed" not in kinds, daemon.trace(job)()
    launches = [event["data"]["restart_from"] for event in events if event["kind"] == "epoch.launching"]
    assert launches[:2] == [None, 1]
    assert kinds.count("decision.suspend") >= 1
    assert daemon.job(job)["incarnation"] == 1 or "placeholder.again" in kinds


def ejb(daemon: Daemon, *words: str) -> str:
    environment = {**daemon.environment, "EJB_SOCKET": str(daemon.state / "ejbd.sock")}
    argv = [sys.executable, "-m", "ejbd.cli.main", *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly("unit/test_manager_drains.py has it; the one before leaves its nodes on a real Slurm")
def test_an_operator_gets_nodes_free_and_a_job_goes_on_beside_them(cluster: SlurmCluster, daemon: Daemon) -> None:
    """Its subjobs are on n1 and n2; it is on n3 and n4 in time. J0, as wide as the cluster, is kept off by Slurm's own
    drain, which docs/operators.md asks for."""
    blocks = [
        cluster.sbatch("--ntasks=4", "--nodes=1", f"--nodelist=n{i}", "--time=30", script="sleep 900") for i in (3, 4)
    ]
    cluster.until(lambda: all(cluster.states().get(id) == "RUNNING" for id in blocks), "nobody is there")
    job = submit(daemon, steps=800, time="10")
    with one_copy_only(job):
        daemon.wait_event(job, "epoch.running")
        assert {node for s in daemon.job(job)["subjobs"] for node in s["nodes"]} == {"n1", "n2"}
        cluster.run("scancel", *blocks)
        said = ejb(daemon, "drain", "n[1-2]", "--by", "now+20")
        assert f"elastic jobs there: {job}" in said, said
        cluster.run("scontrol", "update", "nodename=n[1-2]", "state=drain", "reason=maintenance")
        try:
            until(lambda: "no elastic job is there" in ejb(daemon, "drain"), "it stays", 60, daemon.trace(job))
            ran = [e["data"]["subjobs"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
            completed(daemon, cluster, job, 800)
        finally:
            cluster.run("scontrol", "update", "nodename=n[1-2]", "state=resume")
    nodes = {s["id"]: set(s["nodes"]) for s in daemon.job(job)["subjobs"]}
    last = [e["data"]["subjobs"] for e in daemon.events(job) if e["kind"] == "epoch.launching"][-1]
    assert set().union(*(nodes[id] for id in last)) <= {"n3", "n4"}, (ran, nodes)
    assert "epoch.failed" not in daemon.kinds(job)
    assert ejb(daemon, "drain", "n[1-2]", "--cancel").strip() == "EJB drains no nodes"


@pytest.mark.nightly("unit/test_manager_giving.py has it on the fake world")
def test_who_waits_gets_what_is_held_over_subscribed(cluster: SlurmCluster, daemon: Daemon) -> None:
    """Sixteen ranks on the four processors that were free; a job that needs four comes, and is served first."""
    blocks = [
        cluster.sbatch("--ntasks=4", "--nodes=1", f"--nodelist=n{i}", "--time=40", script="sleep 900")
        for i in (1, 2, 3)
    ]
    cluster.until(lambda: all(cluster.states().get(id) == "RUNNING" for id in blocks), "nobody is there")
    job = submit(daemon, steps=900, time="10")  # it must not end before it is asked, however slow this machine is
    with one_copy_only(job):
        daemon.wait_event(job, "epoch.running")
        until(lambda: daemon.job(job)["progress"] > 0.002, "it does not get on", 60, daemon.trace(job))
        rigid = cluster.sbatch("--ntasks=4", "--nodes=1", "--time=2", script="sleep 6")
        cluster.until(lambda: cluster.states().get(rigid) == "PENDING", "it does not wait", 30)
        daemon.wait_event(job, "decision.suspend")
        cluster.until(lambda: cluster.states().get(rigid) in ("RUNNING", "COMPLETED"), "nobody made room", 90)
        state = daemon.job(job)["state"]
        assert state == "waiting" or cluster.states().get(rigid) == "COMPLETED", daemon.trace(job)()
        daemon.wait_event(job, "epoch.running", 2, timeout_s=120)
        assert cluster.states().get(rigid) == "COMPLETED"
        cluster.run("scancel", *blocks)
        completed(daemon, cluster, job, 900)
    (told,) = [e["data"] for e in daemon.events(job) if e["kind"] == "decision.suspend" and "given_to" in e["data"]]
    assert told["given_to"] == rigid
    assert f"job {rigid} of " in told["reason"] and "into the 4 processors that this job holds" in told["reason"]
    launches = [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
    assert launches[:2] == [None, 1], "it goes on with its work"
    assert "epoch.failed" not in daemon.kinds(job)
