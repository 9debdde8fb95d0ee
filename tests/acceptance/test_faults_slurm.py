"""Slurm and its commands dying, hanging and lying under jobs; the outcome of each is its test's docstring."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only, ours, ranks_of, undisturbed
from tests.acceptance.sites import Site, SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.fakes.slurm_commands import UNREACHABLE, FaultyCommands
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("faults-slurm")]
STEPS = 100
IMPATIENT = "[slurm]\ntimeout_s = 2\nsubmit_timeout_s = 2\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """One for all tests that break commands only."""
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        yield cluster


@pytest.fixture
def breakable() -> Iterator[SlurmCluster]:
    """A cluster of the test's own whose nodes are given up after seconds."""
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(4, 2, "--profile=fail") as cluster:
        yield cluster


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyCommands:
    return FaultyCommands(tmp_path / "bin")


@pytest.fixture
def site(cluster: SlurmCluster, faulty: FaultyCommands, tmp_path: Path) -> SlurmSite:
    return SlurmSite(cluster, tmp_path, path=faulty.path, slurm_settings=IMPATIENT)


def submit(daemon: Daemon, site: Site, name: str = "moved", steps: int = STEPS) -> str:
    """The heat equation on four ranks; its result goes to the file `name`."""
    command = daemon.heat(steps, daemon.folder / name, "40ms")
    return daemon.submit(*command, ranks=4, time="2", overrides=dict(site.layout))


def completed(daemon: Daemon, site: Site, job: str, name: str = "moved", steps: int = STEPS) -> None:
    """The job ends well, with the undisturbed result, and leaves nothing."""
    final = daemon.wait(job, timeout_s=180)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert (daemon.folder / name).read_bytes() == undisturbed(daemon.folder, steps)
    nothing_left(daemon, site, job)


def health(daemon: Daemon) -> dict[str, Any]:
    return dict(daemon.client.get("/v1/health").json())


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.nightly("integration/test_slurm_faults.py hangs; unit/test_manager_journey.py looks it up")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("fault", "how"), [("hang", "submitted"), ("done-then-hang", "adopted")])
def test_sbatch_without_an_answer(
    site: SlurmSite, faulty: FaultyCommands, tmp_path: Path, fault: str, how: str
) -> None:
    """A submission that hangs is given up after its own time-out, and other jobs go on and grow meanwhile.

    One that Slurm had not taken is repeated once its absence is proved; one that it had is adopted by its tag. Either
    way there is exactly one batch job.
    """
    with daemon_on(site, tmp_path) as daemon:
        other = submit(daemon, site, "other", 100)
        daemon.wait_event(other, "epoch.running")
        faulty.fault("sbatch", fault, once=True)
        job = submit(daemon, site, steps=20)
        until(lambda: (faulty.folder / "sbatch.taken").exists(), "sbatch was not called", 60)
        site.more()
        daemon.wait_event(other, "epoch.running", 2)
        until(lambda: bool(ours(site, job)), "it was not submitted", 30)
        done = [e["data"] for e in daemon.events(job) if e["kind"] == "intent.done"]
        until(
            lambda: any(e["kind"] == "subjob.pending" for e in daemon.events(job)),
            "the submission was not settled",
            30,
            lambda: str(done),
        )
        settled = [e["data"] for e in daemon.events(job) if e["kind"].startswith("intent.")]
        assert any(how == data.get("how") for data in settled), settled
        completed(daemon, site, other, "other", 100)
        completed(daemon, site, job, steps=20)
        each_tag_once(daemon, site, job)
        each_tag_once(daemon, site, other)


def sbatches(daemon: Daemon) -> int:
    """How often the daemon has run sbatch."""
    lines = daemon.client.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith('ejb_batch_commands_total{command="sbatch"}')]
    return round(float(found[0].split()[-1])) if found else 0


@pytest.mark.nightly("unit/test_manager_queue_pause.py has it on the fake world")
def test_a_partition_that_takes_no_jobs(site: SlurmSite, tmp_path: Path) -> None:
    """Its queue is paused after a few refusals and told, whatever the number of jobs, and one trial is made when the
    pause is over. When an operator has it tried again every place holder is there, once."""

    def pauses() -> list[dict[str, Any]]:
        return list(daemon.client.get("/v1/queues/batch").json()["paused"])

    with daemon_on(site, tmp_path) as daemon:
        site.cluster.run("scontrol", "update", "PartitionName=batch", "State=DRAIN")
        try:
            jobs = [submit(daemon, site, f"result-{number}", steps=20) for number in range(10)]
            until(lambda: bool(pauses()), "it was not paused", 30)
            assert "Required partition not available" in pauses()[0]["reason"]
            asked = sbatches(daemon)
            assert asked <= 8, "as many as may be under way at once until it is known, and one look beforehand"
            until(lambda: pauses()[0]["failures"] > 3, "it was not tried again by itself", 60)
            assert sbatches(daemon) == asked + 1, "one trial after 15 s"
            assert "queue batch is paused" in daemon.explain(jobs[0])["now"]
            assert (
                'ejb_queue_paused{queue="batch",what="submissions",whose=""} 1.0' in daemon.client.get("/metrics").text
            )
        finally:
            site.cluster.run("scontrol", "update", "PartitionName=batch", "State=UP")
        assert daemon.client.post("/v1/queues/batch/resume").json()["paused"] == []
        for job in jobs:
            until(lambda job=job: bool(ours(site, job)), "a place holder was lost", 30, daemon.trace(job))  # type: ignore[misc]
            each_tag_once(daemon, site, job)
            assert daemon.client.post(f"/v1/jobs/{job}/cancel").is_success
        for job in jobs:
            nothing_left(daemon, site, job)


@pytest.mark.nightly("integration/test_slurm_faults.py reads it; unit/test_manager_health.py tells of it")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", ["garbage", "hang", UNREACHABLE], ids=["garbage", "hang", "unreachable"])
def test_squeue_that_cannot_be_read(site: SlurmSite, faulty: FaultyCommands, tmp_path: Path, fault: str) -> None:
    """Nobody's job fails however long it lasts; health says so, and is ok again afterwards."""
    with daemon_on(site, tmp_path, missing_grace_s=2) as daemon:
        job = submit(daemon, site)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            assert health(daemon)["ok"] is True
            faulty.fault("squeue", fault)
            until(lambda: health(daemon)["ok"] is False, "health does not say so", 60)
            assert daemon.client.get("/v1/health").status_code == 503 and health(daemon)["batch_error"]
            time.sleep(4)
            assert daemon.job(job)["state"] == "running"
            faulty.mend("squeue")
            until(lambda: health(daemon)["ok"] is True, "health does not recover", 60)
            completed(daemon, site, job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly(
    "integration/test_slurm_faults.py has both answers; unit/test_manager_outside.py workers that speak"
)
@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", ["torn", "nothing"])
def test_squeue_that_leaves_jobs_out(site: SlurmSite, faulty: FaultyCommands, tmp_path: Path, fault: str) -> None:
    """Answers without rows, or cut short, for longer than the grace: subjobs whose workers speak are not given up."""
    with daemon_on(site, tmp_path, missing_grace_s=3) as daemon:
        job = submit(daemon, site)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            faulty.fault("squeue", fault)
            time.sleep(6)
            assert daemon.job(job)["state"] == "running"
            faulty.mend("squeue")
            completed(daemon, site, job)
        launched = [e for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert len(launched) == 1, "it was never started again"


# -- daemons of Slurm -------------------------------------------------------------------------------------------------


def kill(cluster: SlurmCluster, name: str) -> None:
    pid = cluster.pids()[name]
    os.kill(pid, signal.SIGKILL)
    until(lambda: name not in cluster.pids(), f"{name} lives", 60)


def power_off(cluster: SlurmCluster, daemon: Daemon, name: str) -> None:
    """A node dies, on which all that runs of the daemon's jobs is: nobody there sees another one end."""
    there = [psutil.Process(cluster.pids()[name]), *daemon.processes()]
    there += {p for one in there[1:] for p in one.parents() if p.name().startswith("slurmstepd")}
    for end in (psutil.Process.suspend, psutil.Process.kill):
        for process in there:
            with suppress(psutil.NoSuchProcess):
                end(process)


def comes_back(cluster: SlurmCluster, daemon: Daemon, state: bytes | None = None) -> None:
    """The controller is killed and comes back with what it knew when it saved `state` (default: what it saved last)."""
    kill(cluster, "slurmctld")
    until(lambda: health(daemon)["ok"] is False, "health does not say so", 30)
    if state is not None:
        cluster.job_state.write_bytes(state)
    cluster.up_again("--profile=fail")
    until(lambda: health(daemon)["ok"] is True, "health does not recover", 30)


def launches(daemon: Daemon, job: str) -> int:
    return daemon.kinds(job).count("epoch.launching")


@pytest.mark.nightly("integration/test_slurm_faults.py kills it; unit/test_manager_looks.py is away")
def test_the_controller_killed_under_a_running_job(breakable: SlurmCluster, tmp_path: Path) -> None:
    """slurmctld dies by SIGKILL and comes back, knowing of the subjob that runs: the application goes on."""
    site = SlurmSite(breakable, tmp_path, slurm_settings=IMPATIENT, shared=False)
    with daemon_on(site, tmp_path, missing_grace_s=5) as daemon:
        job = submit(daemon, site, steps=150)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            breakable.saved()
            comes_back(breakable, daemon)
            assert daemon.job(job)["state"] == "running"
            completed(daemon, site, job, steps=150)
        assert launches(daemon, job) == 1


@pytest.mark.nightly("integration/test_slurm_faults.py misses rows; unit/test_manager_outside.py loses one")
def test_the_controller_forgets_a_running_subjob(breakable: SlurmCluster, tmp_path: Path) -> None:
    """It comes back as it was before the job was submitted.

    It ends the processes of what it takes for nobody's, and gives their ids to the next jobs. The application goes
    back, never twice, under a new J0, and completes.
    """
    site = SlurmSite(breakable, tmp_path, slurm_settings=IMPATIENT, shared=False)
    with daemon_on(site, tmp_path, missing_grace_s=5) as daemon:
        before = breakable.saved().read_bytes()
        job = submit(daemon, site, steps=150)  # longer than a busy machine takes to start a controller
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            comes_back(breakable, daemon, before)
            completed(daemon, site, job, steps=150)
        assert launches(daemon, job) > 1
        subjobs = daemon.job(job)["subjobs"]
        j0s = [s["state"] for s in subjobs if s["role"] == "placeholder"]
        assert len(j0s) == 2 and j0s[0] == "lost", subjobs
        # Where slurmd has ended its processes before it is asked after, its exit file tells of that.
        assert next(s["state"] for s in subjobs if s["role"] == "subjob") in ("lost", "failed"), subjobs


@pytest.mark.nightly(
    "integration/test_slurm_faults.py kills the controller and misses rows; test_a_dead_node waits and goes on"
)
def test_the_controller_takes_a_running_subjob_for_pending(
    breakable: SlurmCluster, faulty: FaultyCommands, tmp_path: Path
) -> None:
    """It comes back as it was a moment before the subjob started, and starts it once more.

    Its node still has the first copy, refuses the second and is drained by Slurm as "Duplicate jobid", for an operator
    to look at. The job waits on as long as there is no other room, and uses the node when it is given back.
    """
    site = SlurmSite(breakable, tmp_path, path=faulty.path, slurm_settings=IMPATIENT, shared=False)

    def drained() -> bool:
        return "Duplicate jobid" in breakable.run("sinfo", "--noheader", "--nodes=n4", "--format=%E", check=False)

    with daemon_on(site, tmp_path, missing_grace_s=5) as daemon:
        faulty.fault("sbatch", "late")
        job = submit(daemon, site, steps=150)  # longer than a busy machine takes to start a controller
        daemon.wait_event(job, "subjob.pending", 2)
        before = breakable.saved().read_bytes()
        faulty.mend("sbatch")
        assert breakable.states()[str(daemon.job(job)["subjobs"][1]["batch_id"])] == "PENDING", "saved too late"
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            comes_back(breakable, daemon, before)
            # A node that was rid of the first copy in time takes the second one.
            until(lambda: drained() or launches(daemon, job) > 1, "the subjob was not started again", 60)
            if launches(daemon, job) == 1:
                daemon.wait(job, "waiting", timeout_s=60)
                breakable.run("scontrol", "update", "NodeName=n4", "State=RESUME")
            completed(daemon, site, job, steps=150)
        assert launches(daemon, job) > 1


@pytest.mark.nightly(
    "integration/test_slurm_faults.py misses rows; unit/test_manager_outside.py has a J0 that comes again"
)
def test_the_controller_forgets_a_waiting_placeholder(breakable: SlurmCluster, tmp_path: Path) -> None:
    """slurmctld dies right after J0 was submitted, and forgets it (it saves its state lazily): J0 comes again.

    Slurm counts its jobs from 1 again, and may fail the second J0: a node may still have a forgotten job of its number.
    """
    site = SlurmSite(breakable, tmp_path, slurm_settings=IMPATIENT, shared=False)
    with daemon_on(site, tmp_path, missing_grace_s=3) as daemon:
        breakable.sbatch("--job-name=last", "--nodelist=n4", "--ntasks=1", "--time=60", script="sleep 600")
        job = submit(daemon, site, steps=30)
        daemon.wait_event(job, "subjob.pending")
        kill(breakable, "slurmctld")
        for state in ("job_state", "job_state.old"):
            (breakable.directory / "state" / state).unlink(missing_ok=True)
        breakable.up_again("--profile=fail")
        until(lambda: health(daemon)["ok"] is True, "health does not recover", 30)
        completed(daemon, site, job, steps=30)
        j0s = [s for s in daemon.job(job)["subjobs"] if s["role"] == "placeholder"]
        assert [s["state"] for s in j0s][:-1] in (["lost"], ["lost", "failed"]), j0s


def test_a_dead_node(breakable: SlurmCluster, tmp_path: Path) -> None:
    """A node dies with both subjobs on it: back to waiting as soon as Slurm says so, however long a worker may be
    silent, and from the last checkpoint on another node."""
    site = SlurmSite(breakable, tmp_path, slurm_settings=IMPATIENT, shared=False)
    with daemon_on(site, tmp_path, worker_silence_s=600) as daemon:
        job = submit(daemon, site, steps=200)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.more()
            daemon.wait_event(job, "epoch.running", 2)
            assert {node for s in daemon.job(job)["subjobs"] for node in s["nodes"]} == {"n4"}
            power_off(breakable, daemon, "n4")
            daemon.wait(job, "waiting", timeout_s=120)
            site.more()
            daemon.wait_event(job, "epoch.running", 3)
            completed(daemon, site, job, steps=200)
        lost = [e["data"] for e in daemon.events(job) if e["kind"] in ("subjob.lost", "worker.lost", "epoch.failed")]
        # Slurm has two: of the job's state, and of its reason.
        assert "NODE_FAIL" in str(lost) or "NodeDown" in str(lost), (
            "the batch system's word, not the silence of its workers"
        )
        launched = [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert launched[:3] == [None, 1, 1]
        ends = {s["id"]: s["state"] for s in daemon.job(job)["subjobs"]}
        assert (ends[f"{job}.1"], ends[f"{job}.2"]) == ("lost", "lost")
        assert ranks_of(job) == {}


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly("test_faults_local.py ends what ignores TERM; test_users_slurm.py cancels on a Slurm")
def test_cancelling_a_running_job_leaves_nothing(site: SlurmSite, tmp_path: Path) -> None:
    """A job that runs on two subjobs is cancelled: CANCELLED, and no batch job, worker or rank is left."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site, steps=1000)
        daemon.wait_event(job, "epoch.running")
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        assert daemon.client.post(f"/v1/jobs/{job}/cancel").status_code == 200
        assert daemon.wait(job)["state"] == "cancelled"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly("test_manager_away.py is away; test_a_dead_node loses one of a real Slurm")
def test_a_node_is_lost_while_the_daemon_is_away(breakable: SlurmCluster, tmp_path: Path) -> None:
    """NODE_FAIL, and what ran there lives on for as long as its slurmd is gone. The daemon comes back to a job without
    its batch job: it goes back, and is complete, with one copy at a time."""
    site = SlurmSite(breakable, tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        site.unblock()
        job = submit(daemon, site, steps=200)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            subjob = next(s for s in daemon.job(job)["subjobs"] if s["state"] == "running")
            daemon.kill()
            os.kill(breakable.pids()[subjob["nodes"][0]], signal.SIGKILL)
            gone = ("NODE_FAIL", "COMPLETED", "absent")
            until(lambda: breakable.states().get(subjob["batch_id"], "absent") in gone, "no NODE_FAIL", 60)
            assert breakable.states().get(subjob["batch_id"]) == "NODE_FAIL"
            breakable.up_again("--profile=fail")
            daemon.start()
            completed(daemon, site, job, steps=200)
        assert daemon.kinds(job).count("epoch.running") >= 2, "it was not sent back"


@pytest.mark.nightly("unit/test_manager_suspensions.py has it on the fake world")
def test_an_operators_suspension_is_not_undone(site: SlurmSite, tmp_path: Path) -> None:
    """`scontrol suspend` of a running subjob: its job waits for it, whatever room comes free, longer than workers may
    be silent for, and goes on when it is resumed."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, site)
        daemon.wait_event(job, "epoch.running")

        def subjobs() -> list[tuple[str, str]]:
            return [(s["batch_id"], s["state"]) for s in daemon.job(job)["subjobs"] if s["role"] == "subjob"]

        (id, _), *_ = subjobs()
        site.cluster.run("scontrol", "suspend", id)
        until(lambda: (id, "suspended") in subjobs(), "it is not told", 30, daemon.trace(job))
        until(lambda: "suspended" in daemon.job(job)["reason"], "its job does not say why", 30, daemon.trace(job))
        site.more()
        time.sleep(18.0)  # worker_silence_s is 15 here
        assert (id, "suspended") in subjobs() and daemon.job(job)["state"] == "running", daemon.trace(job)()
        site.cluster.run("scontrol", "resume", id)
        completed(daemon, site, job)
        kinds = [e["kind"] for e in daemon.events(job)]
        assert not {"worker.lost", "epoch.failed"} & set(kinds[: kinds.index("job.completed")]), kinds
        until(lambda: (id, "completed") in subjobs(), "its subjob does not end", 30, daemon.trace(job))
