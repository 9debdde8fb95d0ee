"""Somebody else takes subjobs away on a real Slurm: an operator, a preemption, a node that is drained or removed.

No job ends as a false time-out, none loses its place in the queue, and the result is the undisturbed one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only, ours, undisturbed
from tests.acceptance.sites import SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("faults-outside")]
STEPS = 250
EPILOG_S = 6
FINISHED = ("completed", "failed", "timeout", "cancelled")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """4 x 2, with an Epilog that takes its time, and a partition whose jobs preempt those of `batch`."""
    if reason := missing_slurm():
        pytest.skip(reason)
    partition = "PartitionName=urgent Nodes=n[1-4] MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=10"
    more = f"Epilog=$dir/epilog\nPreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n{partition}\n"
    with slurm_cluster(4, 2, "--profile=fail", more=more) as cluster:
        epilog = cluster.directory / "epilog"
        epilog.write_text(f"#!/bin/sh\nsleep {EPILOG_S}\n")
        epilog.chmod(0o755)
        yield cluster


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path) -> SlurmSite:
    return SlurmSite(cluster, tmp_path)


def submit(daemon: Daemon, site: SlurmSite, steps: int = STEPS, **overrides: object) -> str:
    command = daemon.heat(steps, daemon.folder / "moved")
    return daemon.submit(*command, ranks=4, time="5", overrides={**site.layout, **overrides})


def first_subjob(daemon: Daemon, job: str) -> str:
    """The batch id of the subjob that the ranks are on."""
    return str(next(s["batch_id"] for s in daemon.job(job)["subjobs"] if s["role"] == "subjob"))


def j0_states(daemon: Daemon, job: str) -> list[str]:
    return [s["state"] for s in daemon.job(job)["subjobs"] if s["role"] == "placeholder"]


def completed(daemon: Daemon, site: SlurmSite, job: str, steps: int = STEPS) -> None:
    final = daemon.wait(job, *FINISHED, timeout_s=240)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert (daemon.folder / "moved").read_bytes() == undisturbed(daemon.folder, steps)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_outside.py cancels one that completes for a while; test_a_dead_node loses one")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["application", "none"])
def test_a_subjob_cancelled_by_an_operator_under_a_slow_epilog(site: SlurmSite, tmp_path: Path, engine: str) -> None:
    """COMPLETING for as long as the Epilog runs: the job goes back, J0 keeps its place, and it completes on J0."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, engine=engine)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.cluster.run("scancel", first_subjob(daemon, job))
            daemon.wait(job, "waiting", *FINISHED, timeout_s=60)
            assert daemon.job(job)["state"] == "waiting", daemon.trace(job)()
            assert j0_states(daemon, job) == ["pending"]
            site.unblock()
            completed(daemon, site, job)


@pytest.mark.nightly("test_site_plans_slurm.py preempts one, with a grace")
def test_a_subjob_that_is_preempted(site: SlurmSite, tmp_path: Path) -> None:
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            node = daemon.job(job)["subjobs"][1]["nodes"][0]
            urgent = site.cluster.sbatch(
                "--partition=urgent", f"--nodelist={node}", "--ntasks=2", "--time=1", script="sleep 4"
            )
            daemon.wait(job, "waiting", *FINISHED, timeout_s=90)
            assert daemon.job(job)["state"] == "waiting", daemon.trace(job)()
            assert j0_states(daemon, job)[-1] == "pending"
            until(lambda: site.cluster.states().get(urgent) in ("RUNNING", "COMPLETING", "COMPLETED"), "no preemption")
            site.unblock()
            completed(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_outside.py has an end that is brought forward")
def test_a_limit_that_is_cut_under_a_running_subjob(site: SlurmSite, tmp_path: Path) -> None:
    """`scontrol update EndTime`: what can be saved is saved, and it is nobody's time-out."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            id = first_subjob(daemon, job)
            site.cluster.run("scontrol", "update", f"JobId={id}", "EndTime=now+20")
            daemon.wait(job, "waiting", *FINISHED, timeout_s=120)
            assert daemon.job(job)["state"] == "waiting", daemon.trace(job)()
            site.unblock()
            completed(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_drains.py drains nodes; test_faults_slurm.py loses one")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_a_node_set_aside_in_the_middle_of_a_move(site: SlurmSite, tmp_path: Path, state: str) -> None:
    """DRAIN lets what runs go on; DOWN ends it, and Slurm ends the batch job."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, 400)
        node = ""
        try:
            with one_copy_only(job):
                daemon.wait_event(job, "epoch.running")
                site.more()
                daemon.wait_event(job, "epoch.stopping")
                node = str(daemon.job(job)["subjobs"][1]["nodes"][0])
                site.cluster.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=a test")
                time.sleep(3)
                assert daemon.job(job)["state"] in ("running", "waiting"), daemon.trace(job)()
                site.unblock()
                completed(daemon, site, job, 400)
        finally:
            if node:
                site.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)


@pytest.mark.nightly("test_faults_slurm.py has a dead node; unit/test_manager_losing.py what lives on")
def test_a_slurmd_is_killed_and_what_runs_there_lives_on(site: SlurmSite, tmp_path: Path) -> None:
    """Slurm gives the node up and its job with it, NODE_FAIL, and ends nothing there: the workers are told to."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, 2000)
        killed = False
        try:
            with one_copy_only(job):
                daemon.wait_event(job, "epoch.running")
                node = str(daemon.job(job)["subjobs"][1]["nodes"][0])
                os.kill(site.cluster.pids()[node], signal.SIGKILL)
                killed = True
                daemon.wait_event(job, "subjob.lost")
                site.unblock()
                completed(daemon, site, job, 2000)
            released = daemon.kinds(job).index("subjob.released")
            assert released < daemon.kinds(job).index("subjob.lost"), "it was taken for gone while it ran"
        finally:
            if killed:
                site.cluster.up_again("--profile=fail")


@pytest.mark.nightly("unit/test_manager_outside.py has it; test_faults_local.py cancels real processes")
def test_j0_cancelled_while_the_job_runs_elsewhere(site: SlurmSite, tmp_path: Path) -> None:
    """Its number is the job's, to a user and to a script (SLURM_JOB_ID): all of the job is cancelled."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, 3000)
        daemon.wait_event(job, "epoch.running")
        site.cluster.run("scancel", daemon.job(job)["subjobs"][0]["batch_id"])
        assert daemon.wait(job, *FINISHED, timeout_s=90)["state"] == "cancelled"
        nothing_left(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_outside.py has it on the fake world")
def test_everything_cancelled_by_its_owner_is_not_submitted_again(site: SlurmSite, tmp_path: Path) -> None:
    """`scancel` of all that bears the job's name."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, 3000)
        daemon.wait_event(job, "epoch.running")
        ids = [row.id for row in ours(site, job) if row.live]
        site.cluster.run("scancel", *ids)
        assert daemon.wait(job, *FINISHED, timeout_s=90)["state"] == "cancelled"
        nothing_left(daemon, site, job)
        assert len(j0_states(daemon, job)) == 1
