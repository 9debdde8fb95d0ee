"""A real Slurm while no daemon is there: jobs begin, run and end, are cancelled, and are told rightly afterwards.

One small Slurm for all of it, whose Epilog takes as long as a test says.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.shortruns import FEWEST_RUNS
from tests.acceptance.journeys import nothing_left
from tests.acceptance.sites import POLL_S, SlurmSite
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import EPILOG, SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("alone-slurm")]
ALONE_S = 3  # instead of a minute
SCRIPT = """#!/bin/bash
#SBATCH --job-name=mine --nodes=2 --ntasks-per-node=1 --time=5
#SBATCH --output=%x-%j.out
echo "$SLURM_JOB_NAME $SLURM_NTASKS_PER_NODE $GREETING"
srun sh -c 'echo task $SLURM_PROCID'
exit 5
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(2, 2, more=EPILOG) as cluster:
        cluster.epilog_takes(0)
        yield cluster


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Daemon]:
    fast = FAST.replace("alone_after_s = 0", f"alone_after_s = {ALONE_S}")
    assert fast != FAST
    top = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
    daemon = Daemon(tmp_path, top + fast, {"SLURM_CONF": str(cluster.conf)})
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        cluster.epilog_takes(0)
        cluster.empty()


def full(cluster: SlurmCluster) -> str:
    """Somebody's job on the whole cluster; its id."""
    id = cluster.sbatch("--ntasks=4", "--time=60", script="sleep 3600")
    cluster.until(lambda: cluster.states().get(id) == "RUNNING", "the cluster is not taken")
    return id


def waits(cluster: SlurmCluster, daemon: Daemon, *jobs: str) -> list[str]:
    """The batch ids of J0s of jobs that wait in Slurm's queue."""

    def ids() -> list[str]:
        return [daemon.job(job)["subjobs"][0].get("batch_id") or "" for job in jobs]

    until(lambda: all(ids()), "J0 was not submitted", 60, daemon.trace(jobs[0]))
    found = ids()
    assert all(cluster.states()[id] == "PENDING" for id in found)
    return found


def ended(cluster: SlurmCluster, ids: list[str]) -> Callable[[], bool]:
    over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    return lambda: all(cluster.states().get(id, "gone") in over for id in ids)


def script_job(daemon: Daemon, **body: Any) -> str:
    env = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    request = {
        "script": SCRIPT,
        "cwd": str(daemon.folder),
        "env": env,
        "overrides": {"engine": "none", "elastic": "on"},
        **body,
    }
    answer = daemon.client.post("/v1/jobs", json=request)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


@pytest.mark.nightly(
    "test_crash_matrix.py has one that begins alone and is taken up; integration/test_worker_alone.py ends so"
)
def test_jobs_whose_j0_starts_while_nobody_is_there_run_as_under_sbatch(cluster: SlurmCluster, daemon: Daemon) -> None:
    """A script and a command begin, and end, without a daemon. It is killed twice more on its way to take them up."""
    others = full(cluster)
    script = script_job(daemon)
    command = daemon.submit(
        "sh", "-c", "echo rank $SLURM_PROCID; exit 0", ranks=2, time="5", overrides={"engine": "none"}
    )
    ids = waits(cluster, daemon, script, command)
    daemon.kill()
    cluster.run("scancel", others)
    cluster.until(ended(cluster, ids), "they did not begin by themselves", 120)
    for point in ("alone.before-commit", "tick.after-commit"):
        daemon.start(EJBD_CRASH_AT=point)
        until(daemon.ended, f"{point} was not reached", 60)
    daemon.start()
    first, second = daemon.wait(script), daemon.wait(command)
    assert (first["state"], first["exit_code"]) == ("failed", 5), first
    assert (second["state"], second["exit_code"]) == ("completed", 0), second
    said = (daemon.folder / f"mine-{ids[0]}.out").read_text().splitlines()
    assert said[0] == "mine 1 hello" and sorted(said[1:]) == ["task 0", "task 1"], said
    (output,) = (path for path in daemon.folder.glob("*.out") if not path.name.startswith("mine"))
    assert sorted(output.read_text().split("\n")) == ["", "rank 0", "rank 1"]
    assert daemon.client.get(f"/v1/jobs/{script}/logs").text.splitlines() == said
    for job, id in zip((script, command), ids, strict=True):
        assert daemon.kinds(job).count("job.alone") == 1
        assert [subjob["batch_id"] for subjob in daemon.job(job)["subjobs"]] == [id], "it is run once"
        times = cluster.run("scontrol", "show", "job", id)
        assert re.search(r"StartTime=\S+", times)
        row = daemon.job(job)
        assert row["submit_s"] <= row["start_s"] <= row["end_s"]
    nothing_left(daemon, SlurmSite(cluster, daemon.folder), script)


def test_what_nothing_can_move_runs_in_its_j0_as_under_sbatch(cluster: SlurmCluster, daemon: Daemon) -> None:
    """No worker is started: its steps are srun's own, its code and output are the script's. It can be cancelled."""
    told = "#!/bin/bash\n#SBATCH --ntasks=4 --time=5 --output=%j.out\n"
    ends = f"{told}echo $GREETING $SLURM_NTASKS $(env | grep -c EJB.SUB)\nsrun sleep 0\nexit 79\n"
    job = script_job(daemon, script=ends)
    row = daemon.wait(job)
    assert (row["state"], row["exit_code"], row["elastic"]) == ("failed", 79, False), daemon.trace(job)()
    (id,) = (subjob["batch_id"] for subjob in row["subjobs"])
    assert (daemon.folder / f"{id}.out").read_text() == "hello 4 0\n"
    kinds = daemon.kinds(job)
    assert kinds.count("job.alone") == 1 and "worker.registered" not in kinds
    lasts = script_job(daemon, script=f"{told}trap 'echo heard; exit 3' TERM\nsrun sleep 300\n")
    until(lambda: daemon.job(lasts)["state"] == "running", "it does not begin", 60, daemon.trace(lasts))
    assert daemon.client.post(f"/v1/jobs/{lasts}/cancel").is_success
    assert daemon.wait(lasts)["state"] == "cancelled"
    nothing_left(daemon, SlurmSite(cluster, daemon.folder), lasts)


def test_what_can_be_moved_does_so_where_runs_like_it_are_short(cluster: SlurmCluster, daemon: Daemon) -> None:
    """Runs are learned of, two at a time. Somebody's job comes behind them, so that windows have no room. Its own J0
    waits before the first ends."""
    others = full(cluster)
    told = "#!/bin/bash\n#SBATCH --ntasks=4 --time=5 --output=%j.out\n"
    moves = {"overrides": {"engine": "application", "elastic": "on"}}
    first = [
        script_job(daemon, script=told.replace("=4", "=2") + "srun sleep 0\n", **moves)
        for _ in range(FEWEST_RUNS + FEWEST_RUNS % 2)
    ]
    last = script_job(daemon, script=told + "echo $(env | grep -c EJB.SUB)\nsrun printenv\n", **moves)
    (id,) = waits(cluster, daemon, *first, last)[-1:]
    cluster.run("scontrol", "hold", id)
    behind = cluster.sbatch("--ntasks=4", "--time=60", script="sleep 3600")
    cluster.run("scancel", others)
    for job in first:
        assert daemon.wait(job)["state"] == "completed", daemon.trace(job)()
        assert "worker.registered" in daemon.kinds(job)
    marks = [path for path in (daemon.state / "spool" / "short").rglob("*") if path.is_file()]
    until(lambda: any(path.stat().st_size for path in marks), "no mark says that runs were short", 60)
    cluster.run("scontrol", "release", id)
    cluster.run("scancel", behind)
    row = daemon.wait(last)
    assert (row["state"], row["elastic"]) == ("completed", False), daemon.trace(last)()
    kinds = daemon.kinds(last)
    assert kinds.count("job.alone") == 1 and "epoch.launching" not in kinds, kinds  # a window may have had its workers
    said = (daemon.folder / f"{id}.out").read_text().splitlines()
    assert said[0] == "0", "its script is told nothing"
    for name, values in (
        ("EJB_RANK", {"0", "1", "2", "3"}),
        ("EJB_SIZE", {"4"}),
        ("EJB_PROCESSOR", {f"{last}.0.n{node}.{place}" for node in (1, 2) for place in (0, 1)}),
    ):
        assert {line.partition("=")[2] for line in said if line.startswith(f"{name}=")} == values, name
    (meeting,) = {line.partition("=")[2] for line in said if line.startswith("EJB_RENDEZVOUS=")}
    assert Path(meeting).is_dir() and not any(Path(meeting).iterdir())
    nothing_left(daemon, SlurmSite(cluster, daemon.folder), last)


COMPLETES_S = 8  # well below the silence after which workers are given up: a daemon is back within a second or two


def completing(cluster: SlurmCluster, id: str) -> Callable[[], bool]:
    return lambda: cluster.states().get(id) == "COMPLETING"


@pytest.mark.nightly("unit/test_manager_away.py has a job that was cancelled while the daemon was away")
def test_a_job_that_is_cancelled_while_nobody_is_there_is_cancelled_though_its_j0_still_completes(
    cluster: SlurmCluster, daemon: Daemon
) -> None:
    """The next daemon finds an Epilog that takes its time, and workers that have left without saying why."""
    job = daemon.submit("sh", "-c", "exec sleep 300", ranks=4, time="5", overrides={"engine": "none"})
    daemon.wait_event(job, "epoch.running")
    id = daemon.job(job)["subjobs"][0]["batch_id"]
    daemon.kill()
    cluster.epilog_takes(COMPLETES_S)
    cluster.run("scancel", id)
    cluster.until(completing(cluster, id), "it does not complete for a while")
    daemon.start()
    assert daemon.wait(job)["state"] == "cancelled", daemon.trace(job)()
    assert [subjob["batch_id"] for subjob in daemon.job(job)["subjobs"]] == [id], "it is not submitted again"


@pytest.mark.nightly("unit/test_manager_outside.py has a subjob that completes, on the fake world")
@pytest.mark.slow
def test_a_subjob_that_completes_as_the_daemon_returns_costs_the_job_neither_its_j0_nor_its_end(
    cluster: SlurmCluster, daemon: Daemon
) -> None:
    """It was due to be suspended before the end of its window, and nobody was there to do that."""
    others = cluster.sbatch("--nodes=1", "--exclusive", "--time=2", script="exec sleep 600")
    cluster.until(lambda: cluster.states().get(others) == "RUNNING", "the others do not run")
    result = daemon.folder / "result"
    job = daemon.submit(*daemon.heat(3000, result), ranks=4, time="10", overrides={"nodes": 2, "ntasks_per_node": 2})
    daemon.wait_event(job, "epoch.running")
    j0, subjob = daemon.job(job)["subjobs"][:2]
    assert (j0["role"], j0["state"], subjob["state"]) == ("placeholder", "pending", "running")
    daemon.kill()
    cluster.epilog_takes(COMPLETES_S)
    cluster.until(completing(cluster, subjob["batch_id"]), "its window does not end", 240)
    daemon.start()
    daemon.wait_event(job, "epoch.running", 2, 180)
    row = daemon.job(job)
    assert row["state"] == "running" and row["subjobs"][0]["state"] == "running", "on its own J0"
    assert daemon.client.post(f"/v1/jobs/{job}/cancel").is_success
