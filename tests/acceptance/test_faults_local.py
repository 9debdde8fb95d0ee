"""Things that die, hang or fill up under a job on the embedded cluster; the outcome of each is its test's docstring."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.acceptance.journeys import (
    daemon_on,
    each_tag_once,
    met,
    nothing_left,
    one_copy_only,
    ranks_of,
    undisturbed,
)
from tests.acceptance.sites import LocalSite, small_file_system
from tests.fakes.daemon import Daemon, until

STEPS = 75


def submit(daemon: Daemon, folder: Path, steps: int = STEPS, size: int = 32) -> str:
    """The heat equation on four ranks."""
    return daemon.submit(*daemon.heat(steps, folder / "moved", "40ms", size), ranks=4, time="2:00")


def workers(daemon: Daemon, subjob: str) -> list[psutil.Process]:
    """The worker processes of one subjob."""
    found = []
    for process in daemon.processes():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        # Steps and wardens have the worker's words among theirs; the program that a worker runs by -c is its own.
        program = words[words.index("-c") + 1] if "-c" in words else "ejb_worker"
        if "agent" in words and any(word.endswith(f"/{subjob}") for word in words) and "ejb_worker" in program:
            found.append(process)
    return [p for p in found if not any(p.ppid() == other.pid for other in found)]


def completed(daemon: Daemon, site: LocalSite, folder: Path, job: str, steps: int = STEPS) -> None:
    """The job ends well, with the undisturbed result, and leaves nothing."""
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert (folder / "moved").read_bytes() == undisturbed(folder, steps)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


def epochs(daemon: Daemon, job: str) -> list[int | None]:
    """What each placement was restarted from (None: from the start)."""
    return [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]


@pytest.mark.nightly("test_a_killed_worker_beside_others_of_its_subjob starts over, too")
def test_a_killed_worker_without_a_checkpoint(tmp_path: Path) -> None:
    """A worker dies by SIGKILL before any checkpoint: its ranks die with it, the job starts over and completes."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            (worker,) = workers(daemon, f"{job}.1")
            worker.kill()
            daemon.wait_event(job, "epoch.running", 2)
            assert epochs(daemon, job) == [None, None]
            completed(daemon, site, tmp_path, job)


def test_a_killed_worker_after_a_checkpoint(tmp_path: Path) -> None:
    """One of two subjobs loses its worker by SIGKILL: the job goes back to its last checkpoint and completes."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, 125)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.more()
            daemon.wait_event(job, "epoch.running", 2)
            (worker,) = workers(daemon, f"{job}.2")
            worker.kill()
            daemon.wait_event(job, "epoch.running", 3)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            completed(daemon, site, tmp_path, job, 125)


@pytest.mark.nightly("unit/test_manager_periodic.py loses a node; the one before a real worker")
def test_a_killed_worker_of_a_job_with_periodic_checkpoints(tmp_path: Path) -> None:
    """A job that never moves loses its only worker by SIGKILL: it goes back by what it computed since the last one."""
    site = LocalSite(tmp_path)
    every_s = 3.0
    with daemon_on(site, tmp_path) as daemon:
        command = daemon.heat(150, tmp_path / "moved", "40ms")
        job = daemon.submit(*command, ranks=4, time="2:00", overrides={"checkpoint": f"{every_s:g}"})
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running", 3)
            (worker,) = workers(daemon, f"{job}.1")
            worker.kill()
            daemon.wait_event(job, "epoch.failed")
            lost = daemon.events(job)
            saved = [e for e in lost if e["kind"] == "epoch.stopped"]
            runs = [e for e in lost if e["kind"] == "epoch.running"]
            again = len(epochs(daemon, job))
            until(lambda: len(epochs(daemon, job)) > again, "it is not started again", 60)
            assert epochs(daemon, job)[again] == len(saved) >= 2, "from the newest of the checkpoints"
            fault = next(e for e in lost if e["kind"] == "epoch.failed")
            assert fault["at_s"] - runs[-1]["at_s"] < every_s + 10, "the interval, and what it took to be noticed"
            told = daemon.explain(job)
            assert told["checkpoints"]["why"] == "every 3 s: the job says so"
            assert [d["kind"] for d in told["decisions"]].count("checkpoint") >= 2
            completed(daemon, site, tmp_path, job, 150)


@pytest.mark.nightly("test_a_killed_worker_after_a_checkpoint loses one; unit/test_manager_journey.py starts over")
def test_a_killed_worker_beside_others_of_its_subjob(tmp_path: Path) -> None:
    """One of a subjob's two workers dies by SIGKILL: the whole subjob is given back, and the job starts over."""
    site = LocalSite(tmp_path, nodes=8, cpus=1, block=4, fillers=(2,))
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            first, second = workers(daemon, f"{job}.1")
            first.kill()
            daemon.wait_event(job, "epoch.running", 2)
            assert not second.is_running()
            assert epochs(daemon, job)[:2] == [None, None]
            completed(daemon, site, tmp_path, job)


@pytest.mark.nightly("integration/test_worker_ranks.py tells the signal; unit/test_manager_outcomes.py the end")
def test_a_killed_rank_fails_the_job(tmp_path: Path) -> None:
    """A rank dies by SIGKILL: that is the application's own end, and the job FAILED with 137. Nothing is left."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, 1000)
        daemon.wait_event(job, "epoch.running")
        ranks = ranks_of(job)
        assert sorted(ranks.values()) == [0, 1, 2, 3]
        os.kill(next(pid for pid, rank in ranks.items() if rank == 2), 9)
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("failed", 137), final
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_away.py has it; test_crash_matrix.py starts daemons again beside real workers")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("steps", "ends"), [(50, True), (200, False)], ids=["ends meanwhile", "outlasts it"])
def test_the_daemon_away_for_20_s(tmp_path: Path, steps: int, ends: bool) -> None:
    """The application goes on without the daemon, and may even end; what happened is told afterwards."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, steps)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            daemon.kill()
            before = set(ranks_of(job))
            assert len(before) == 4
            time.sleep(20)
            assert set(ranks_of(job)) == (set() if ends else before)
            assert (tmp_path / "moved").exists() == ends
            daemon.start()
            completed(daemon, site, tmp_path, job, steps)
        assert epochs(daemon, job) == [None]
        lost = [e["data"]["reason"] for e in daemon.events(job) if e["kind"] == "worker.lost"]
        assert all("silent" not in reason for reason in lost), lost


@pytest.mark.nightly("integration/test_local_cluster.py kills the server under jobs")
def test_the_cluster_server_killed(tmp_path: Path) -> None:
    """The embedded cluster's server dies by SIGKILL, twice: the next poll starts it again, jobs go on and can grow."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, 125)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.kill_server()
            site.more()
            daemon.wait_event(job, "epoch.running", 2)
            site.kill_server()
            completed(daemon, site, tmp_path, job, 125)
        assert epochs(daemon, job) == [None, 1]


@pytest.mark.nightly("test_faults_slurm.py cancels the same; the next one kills what does not end")
def test_cancelling_a_running_job_leaves_nothing(tmp_path: Path) -> None:
    """A job that runs on two subjobs is cancelled: CANCELLED, and no batch job, worker or rank is left."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, 1000)
        daemon.wait_event(job, "epoch.running")
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        assert daemon.client.post(f"/v1/jobs/{job}/cancel").status_code == 200
        assert daemon.wait(job)["state"] == "cancelled"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
        assert not (tmp_path / "moved").exists()


def test_a_tree_that_ignores_term_is_killed_at_cancel(tmp_path: Path) -> None:
    """Ranks, their children and a grandchild in a session of its own, all of which ignore TERM: KILL ends them."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        stubborn = "trap '' TERM INT HUP; (sleep 600; :) & setsid sleep 600 & echo up; while :; do sleep 1; done"
        job = daemon.submit("sh", "-c", stubborn, ranks=4, time="2:00")
        daemon.wait_event(job, "epoch.running")
        tree = partial(ranks_of, job, forks=True)
        until(lambda: len(tree()) >= 16, "the tree did not grow", 20, lambda: str(tree()))
        assert daemon.client.post(f"/v1/jobs/{job}/cancel").status_code == 200
        assert daemon.wait(job)["state"] == "cancelled"
        nothing_left(daemon, site, job)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB of its own: the worker's archive and what a job writes take most of one."""
    with small_file_system(tmp_path / "disk", "4m") as folder:
        yield folder


def leave(folder: Path, free: int) -> None:
    """Write a file that leaves about `free` bytes of the file system."""
    ballast = folder / "ballast"
    ballast.unlink(missing_ok=True)
    room = os.statvfs(folder)
    size = room.f_bavail * room.f_bsize - free
    ballast.write_bytes(b"\0" * size)


@pytest.mark.nightly(
    "integration/test_worker_checkpoint.py has a full spool and a time-out that leaves the ranks running"
)
def test_a_checkpoint_that_does_not_fit(tmp_path: Path, small_disk: Path) -> None:
    """No room for a checkpoint: it fails by its time-out, the ranks run on where they are, and the job completes."""
    steps = 2 * STEPS  # it must not be at its end when the time-out is over
    site = LocalSite(tmp_path, settings=f'spool = "{small_disk}/spool"\n')
    with daemon_on(site, tmp_path, checkpoint_timeout_s=3) as daemon:
        job = submit(daemon, tmp_path, steps, size=96)  # 72 kB of state
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            until(lambda: met(ranks_of(job)), "the ranks did not meet")
            ranks = set(ranks_of(job))
            leave(small_disk, 48 * 1024)
            site.more()
            daemon.wait_event(job, "epoch.stopping")
            until(
                lambda: daemon.kinds(job).count("epoch.running") == 2,
                "the checkpoint did not fail",
                60,
                daemon.trace(job),
            )
            told = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.running"][-1]
            assert told["reason"].startswith("checkpoint failed: "), told
            assert set(ranks_of(job)) == ranks
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert epochs(daemon, job) == [None]
        assert (tmp_path / "moved").read_bytes() == undisturbed(tmp_path, steps, 96)
        nothing_left(daemon, site, job)


@pytest.mark.nightly("integration/test_worker_checkpoint.py has a full spool; unit/test_manager_health.py is told")
def test_a_subjob_that_does_not_fit_is_postponed(tmp_path: Path, small_disk: Path) -> None:
    """No room at all: a subjob's submission is postponed and the event says why; with room again the job grows."""
    site = LocalSite(tmp_path, settings=f'spool = "{small_disk}/spool"\n')
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, 300)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            until(lambda: met(ranks_of(job)), "the ranks did not meet")
            ranks = set(ranks_of(job))
            leave(small_disk, 0)
            site.more()
            daemon.wait_event(job, "intent.postponed")
            told = next(e["data"] for e in daemon.events(job) if e["kind"] == "intent.postponed")
            assert "No space left on device" in told["reason"], told
            assert set(ranks_of(job)) == ranks, "the application runs on"
            (small_disk / "ballast").unlink()
            daemon.wait_event(job, "epoch.running", 2)
            completed(daemon, site, tmp_path, job, 300)
