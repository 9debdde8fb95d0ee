"""A partition with OverSubscribe=FORCE:2 of a real Slurm: two jobs start on the same node, and keep to parts of it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.evolving import build_paced
from tests.acceptance.sites import POLL_S
from tests.acceptance.test_pool_local import cpus_of, resizes
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

CPUS = sorted(os.sched_getaffinity(0))
IN_PLACE = FAST.replace("[queues.default]\n", '[queues.default]\nin_place = "on"\n')


def paced(folder: Path, *, steps: int, ranks: int) -> tuple[list[str], str]:
    """The command of a paced program, and the result that it has to have."""
    words = [str(build_paced(folder)), "--steps", str(steps), "--pace", "100ms"]
    expect = [*words[:3], "--expect", str(ranks)]
    return words, subprocess.run(expect, capture_output=True, text=True, check=True, timeout=180).stdout


@pytest.mark.nightly("integration/test_worker_resize.py binds each thread; test_pool_slurm.py shares nodes")
@pytest.mark.skipif(len(CPUS) < 2, reason="ranks are bound where there are two CPUs")
def test_two_jobs_share_a_node_and_their_ranks_no_processor(tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    both = len(CPUS)
    queue = FAST.replace("[queues.default]\n", "[queues.default]\nmin_processors = 1\n")
    with slurm_cluster(1, both) as cluster:
        cluster.run("scontrol", "update", "PartitionName=batch", "OverSubscribe=FORCE:2")
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{queue}'
        daemon = Daemon(tmp_path, settings, {"SLURM_CONF": str(cluster.conf)})
        daemon.start()
        try:
            words = [str(build_paced(tmp_path)), "--pace", "100ms", "--result"]
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


@pytest.mark.nightly(
    "test_pool_slurm.py resizes ranks in place; unit/test_manager_resizing.py takes and leaves a subjob so"
)
@pytest.mark.skipif(len(CPUS) == 4, reason="a worker of four processors would bind its ranks to the four CPUs")
def test_a_job_grows_onto_the_rest_of_its_node_without_a_checkpoint(tmp_path: Path) -> None:
    """Eight ranks on four processors of a node of eight; once the other four are free they have them too."""
    if reason := missing_slurm():
        pytest.skip(reason)
    result = tmp_path / "result"
    words, said = paced(tmp_path, steps=200, ranks=8)
    with slurm_cluster(1, 8) as cluster:
        other = cluster.run("sbatch", "--parsable", "-n4", "-t10", "-o", "/dev/null", "--wrap", "sleep 600").strip()
        until(lambda: cluster.states().get(other) == "RUNNING", "the other job did not start")
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{IN_PLACE}'
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


@pytest.mark.nightly(
    "unit/test_manager_resizing.py has the guard ask for it; test_pool_slurm.py resizes ranks on a Slurm"
)
@pytest.mark.skipif(len(CPUS) in (4, 8), reason="a worker would bind its ranks to the CPUs that there are")
def test_a_waiting_job_gets_what_ranks_leave_in_place(tmp_path: Path) -> None:
    """Sixteen ranks on a node of eight give half of it to a job of four, and no checkpoint is written."""
    if reason := missing_slurm():
        pytest.skip(reason)
    result = tmp_path / "result"
    words, said = paced(tmp_path, steps=300, ranks=16)
    with slurm_cluster(2, 8) as cluster:

        def other(processors: int, node: str = "", minutes: int = 30, seconds: int = 1200) -> str:
            where = [f"--nodelist={node}"] if node else []
            line = ["-n", str(processors), "-N1", "-t", str(minutes), "-o", "/dev/null", "--wrap", f"sleep {seconds}"]
            return cluster.run("sbatch", "--parsable", *where, *line).strip()

        first = [other(8, "n2"), other(4, "n1")]
        until(lambda: all(cluster.states().get(id) == "RUNNING" for id in first), "the other jobs did not start")
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{IN_PLACE}'
        daemon = Daemon(tmp_path, settings, {"SLURM_CONF": str(cluster.conf)})
        daemon.start()
        try:
            job = daemon.submit(*words, "--result", str(result), ranks=16, time="20")
            daemon.stop()
            measured(daemon, job)
            daemon.start()
            daemon.wait_event(job, "epoch.running")
            cluster.run("scancel", first[1])
            until(lambda: (4, 8) in resizes(daemon, job), "it has not grown in place", trace=daemon.trace(job))
            waits = other(4, minutes=1, seconds=5)
            until(lambda: (8, 4) in resizes(daemon, job), "it has left nothing in place", trace=daemon.trace(job))
            until(lambda: cluster.states().get(waits) in ("RUNNING", "COMPLETED"), "the room is not the waiting job's")
            (told,) = [e["data"] for e in daemon.events(job) if e["kind"] == "decision.shrink"]
            assert told["given_to"] == waits and told["decision"]["reason"].endswith("its ranks leave them in place")
            cluster.run("scancel", first[0])
            assert daemon.wait(job, timeout_s=240)["state"] == "completed"
            assert result.read_text() == said
        finally:
            daemon.stop()


def measured(daemon: Daemon, job: str) -> None:
    """An earlier run of the same application at full width, and at degree 2 at Delta .75."""
    with closing(sqlite3.connect(daemon.state / "ejbd.sqlite", timeout=180)) as database, database:
        (application,) = database.execute("SELECT application FROM jobs WHERE id = ?", (job,)).fetchone()
        for processors, degree, units in ((16, 1, 1500.0), (8, 2, 1000.0)):
            row = (application, "w", "0", 0, 1, 0.0, processors, degree, units, 100.0, 9000.0)
            names = "application, work, job_id, launch, epoch, at_s, processors, degree, units, seconds, total"
            database.execute(f"INSERT INTO speeds ({names}) VALUES ({', '.join('?' * len(row))})", row)
