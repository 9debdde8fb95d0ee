"""The embedded cluster as a pool: the next job starts by folding the one that runs, which is unfolded when none waits.

No checkpoint is made of either, and both compute what they would have computed alone.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ejbd.manager.crashpoints import CrashPoint
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import ROOT, Daemon, until

CPUS = len(os.sched_getaffinity(0))


@dataclass
class PoolSite(LocalSite):
    pool_settings: str = ""

    @property
    def toml(self) -> str:
        queues = '[queues.default]\npolicy = "fcfs-malleable"\n'
        return f"{super().toml}pool = true\n{self.pool_settings}".replace("[queues.default]\n", queues)


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paced") / "paced"
    subprocess.run(["cc", "-O2", "-o", made, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    return made


@contextmanager
def running(site: PoolSite) -> Iterator[Daemon]:
    daemon = Daemon(site.folder, site.toml, as_program=True)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        site.close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Daemon]:
    with running(PoolSite(tmp_path, 2, 4)) as daemon:
        yield daemon


def alone(paced: Path, steps: int, ranks: int) -> bytes:
    words = [str(paced), "--steps", str(steps), "--expect", str(ranks)]
    return subprocess.run(words, check=True, capture_output=True, timeout=180).stdout


def resizes(daemon: Daemon, job: str) -> list[tuple[int, int]]:
    events: list[dict[str, Any]] = daemon.events(job)
    return [(e["data"]["was"], e["data"]["processors"]) for e in events if e["kind"] == "epoch.resized"]


@pytest.mark.nightly("test_pool_slurm.py folds and unfolds in an allocation of a real Slurm, and computes the same")
def test_the_next_job_starts_by_folding_the_first(pool: Daemon, paced: Path, tmp_path: Path) -> None:
    daemon = pool
    first, second = tmp_path / "first", tmp_path / "second"
    words = [str(paced), "--pace", "100ms", "--result"]
    one = daemon.submit(*words, str(first), "--steps", "120", ranks=8)
    daemon.wait_event(one, "epoch.running")
    two = daemon.submit(*words, str(second), "--steps", "40", ranks=4)
    daemon.wait_event(two, "epoch.running")
    until(lambda: resizes(daemon, one) == [(8, 4)], "the first job was not folded")
    assert daemon.wait(two)["state"] == "completed"
    until(lambda: resizes(daemon, one) == [(8, 4), (4, 8)], "the first job was not unfolded")
    assert daemon.wait(one)["state"] == "completed"
    assert first.read_bytes() == alone(paced, 120, 8)
    assert second.read_bytes() == alone(paced, 40, 4)
    for job in (one, two):
        assert daemon.kinds(job).count("epoch.launching") == 1, "no checkpoint, and no second placement"
    assert resizes(daemon, two) == [], "it started whole"


@pytest.mark.nightly(
    "integration/test_worker_resize.py binds every thread; unit/test_manager_resizing.py has the halves of a node"
)
@pytest.mark.skipif(CPUS < 2, reason="ranks are bound where there are two CPUs")
def test_two_jobs_on_a_node_keep_to_processors_of_their_own(paced: Path, tmp_path: Path) -> None:
    """The affinity of every thread of every rank, read back from outside."""
    with running(PoolSite(tmp_path, 1, CPUS, pool_settings='node_names = ["n1"]\nstep = "env"\n')) as daemon:
        words = [str(paced), "--pace", "100ms", "--steps", "300", "--result"]
        one = daemon.submit(*words, "first", ranks=CPUS)
        daemon.wait_event(one, "epoch.running")
        until(lambda: cpus_of("first") == sorted(os.sched_getaffinity(0)), "the first job is not on all")
        two = daemon.submit(*words, "second", ranks=CPUS)
        daemon.wait_event(two, "epoch.running")
        until(lambda: resizes(daemon, one) == [(CPUS, (CPUS + 1) // 2)], "the first job was not folded")
        first, second = cpus_of("first"), cpus_of("second")
        assert len(first) == (CPUS + 1) // 2 and len(second) == CPUS - len(first) and not set(first) & set(second)
        daemon.client.post(f"/v1/jobs/{two}/cancel")
        until(lambda: cpus_of("first") == sorted(os.sched_getaffinity(0)), "the first job is not on all again")
        daemon.client.post(f"/v1/jobs/{one}/cancel")


@pytest.mark.nightly("test_manager_resizing.py and test_manager_crashes.py have it in a fake world")
@pytest.mark.skipif(CPUS < 2, reason="ranks are bound where there are two CPUs")
def test_a_daemon_killed_between_the_decision_to_fold_and_its_answer(paced: Path, tmp_path: Path) -> None:
    """The cluster starts the second job while no daemon is there; the first one's ranks leave before it is launched."""
    first, second = tmp_path / "first", tmp_path / "second"
    words = [str(paced), "--pace", "100ms", "--steps", "20", "--result"]
    enough, half = tmp_path / "enough", (CPUS + 1) // 2
    held = ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.2; done; exec "$@"', str(enough)]
    with running(PoolSite(tmp_path, 1, CPUS, pool_settings='node_names = ["n1"]\nstep = "env"\n')) as daemon:
        daemon.kill()
        daemon.start(EJBD_CRASH_AT=CrashPoint.RESIZE_AFTER_LEASE)
        one = daemon.submit(*held, *words, str(first), ranks=CPUS, time="10:00")
        daemon.wait_event(one, "epoch.running")
        with both_watched(str(first), str(second)) as shared:
            two = daemon.submit(*words, str(second), ranks=CPUS, time="10:00")
            until(daemon.ended, "the daemon never asked for a resize", 60)
            until(lambda: has_worker(two), "the second job was not started", 60)
            assert len(cpus_of(str(first))) == CPUS and not cpus_of(str(second)), "decided, and nothing done"
            daemon.start()
            assert daemon.wait(two)["state"] == "completed"
        assert not shared, "no processor was both jobs' at any time"
        until(lambda: resizes(daemon, one) == [(CPUS, half), (half, CPUS)], "not once each way", 60, daemon.trace(one))
        enough.touch()
        assert daemon.wait(one)["state"] == "completed"
        for job, result in ((one, first), (two, second)):
            assert result.read_bytes() == alone(paced, 20, CPUS)
            assert daemon.kinds(job).count("epoch.launching") == 1, "no checkpoint, and no second placement"


@contextmanager
def both_watched(first: str, second: str) -> Iterator[list[set[int]]]:
    """What both jobs' ranks may use, whenever they do. The second is looked at before and after: it runs meanwhile."""
    found: list[set[int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            before = set(cpus_of(second))
            shared = before & set(cpus_of(first)) if before else set()
            if shared & set(cpus_of(second)):
                found.append(shared)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(60)


def has_worker(job: str) -> bool:
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"agent" in words and any(f"/{job}".encode() in word for word in words):
            return True
    return False


def cpus_of(result: str) -> list[int]:
    """Those that any thread of a job's ranks may use, by the result's name in their command."""
    found: set[int] = set()
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            words = (task / "cmdline").read_bytes().split(b"\0")
            if result.encode() in words and any(word.endswith(b"paced") for word in words):
                found |= os.sched_getaffinity(int(task.name))
        except (OSError, ValueError):
            continue
    return sorted(found)
