"""What goes wrong under engine `dmtcp`, on the embedded cluster; the outcome of each is its test's docstring.

Each with commands that only behave as DMTCP's (they checkpoint nothing: the program keeps its own count), and again
with DMTCP itself where it is on PATH. docs/faults.md is the table of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only, ranks_of
from tests.acceptance.sites import LocalSite, small_file_system
from tests.fakes.daemon import Daemon, until
from tests.fakes.dmtcp_commands import install, wrap
from tests.fakes.mpi import build_rank, missing_mpich

pytestmark = pytest.mark.xdist_group("dmtcp-faults")
RANKS = 4

# Knows nothing of EJB but its rank. Its count is in its memory, and in a file for those who checkpoint nothing.
COUNTER = """
import os, sys, time
folder, rank = sys.argv[1], os.environ["EJB_RANK"]
path = os.path.join(folder, "count-" + rank)
count = int(open(path).read()) if os.path.exists(path) else 0
print("rank", rank, "begins with", count, flush=True)
while not os.path.exists(os.path.join(folder, "end")):
    count += 1
    with open(path + ".new", "w") as file:
        file.write(str(count))
    os.replace(path + ".new", path)
    time.sleep(0.02)
print("rank", rank, "ends", flush=True)
"""


@dataclass(frozen=True)
class Dmtcp:
    """Commands in a folder that is first on PATH, and their two faults."""

    bin: Path
    real: bool

    def hold_restart(self, rank: int) -> None:
        """The next restart of a rank hangs."""
        (self.bin / f"hold-restart-rank-{rank}").touch()

    def held(self, rank: int) -> bool:
        return not (self.bin / f"hold-restart-rank-{rank}").exists()

    def before_checkpoint(self, line: str) -> None:
        """Run a line of shell each time before `dmtcp_command -kc` is sent."""
        path = self.bin / "before-checkpoint"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def usable(folder: Path, monkeypatch: pytest.MonkeyPatch, real: bool) -> Dmtcp:
    if real and shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    target = wrap(folder / "dmtcp") if real else install(folder / "dmtcp")
    monkeypatch.setenv("PATH", f"{target}:{os.environ['PATH']}")
    return Dmtcp(target, real)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.dmtcp)])
def dmtcp(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dmtcp:
    """The commands, faked and real."""
    return usable(tmp_path, monkeypatch, request.param == "real")


@pytest.fixture
def real_dmtcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dmtcp:
    """Where other tests (of the worker) have shown the same with the fakes."""
    return usable(tmp_path, monkeypatch, True)


def submit(daemon: Daemon, folder: Path, *argv: str, mpi: str = "none") -> str:
    words = argv or (sys.executable, "-c", COUNTER, str(folder))
    overrides = {"engine": "dmtcp", "mpi": mpi, "output": str(folder / "out")}
    return daemon.submit(*words, ranks=RANKS, time="3:00", overrides=overrides)


def begin(daemon: Daemon, folder: Path) -> str:
    """A job whose four ranks count, on one processor."""
    job = submit(daemon, folder)
    daemon.wait_event(job, "epoch.running")
    counting(daemon, folder)
    return job


def counting(daemon: Daemon, folder: Path) -> None:
    """Wait until every rank counts (again): from where it was, or from its start."""
    before = {rank: count(folder, rank) for rank in range(RANKS)}
    until(lambda: all(count(folder, r) != n for r, n in before.items()), "a rank does not count", 60)


def count(folder: Path, rank: int) -> int:
    path = folder / f"count-{rank}"
    return int(path.read_text()) if path.exists() else -1


def epochs(daemon: Daemon, job: str) -> list[int | None]:
    """What each placement was restarted from (None: from the start)."""
    return [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]


def why_failed(daemon: Daemon, job: str) -> list[str]:
    return [e["data"]["reason"] for e in daemon.events(job) if e["kind"] == "epoch.failed"]


def worker(daemon: Daemon, subjob: str) -> psutil.Process:
    found = []
    for process in daemon.processes():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        python = bool(words) and Path(words[0]).name.startswith("python")  # not a shell or a launcher around it
        if python and "agent" in words and any(word.endswith(f"/{subjob}") for word in words):
            found.append(process)
    (one,) = [p for p in found if not any(p.ppid() == other.pid for other in found)]
    return one


def coordinator(job: str) -> psutil.Process:
    """The one coordinator of a job's present placement: a child of one of the job's workers.

    DMTCP's own writes over its command line and ends its name with its port.
    """
    for process in psutil.process_iter():
        try:
            parent = process.parent()
            if parent is None or not any(f"/{job}/subjobs/" in word for word in parent.cmdline()):
                continue
            if process.name().startswith("dmtcp_coor") or "dmtcp_coordinator" in process.cmdline():
                return process
        except psutil.Error:
            continue
    raise AssertionError("there is no coordinator")


def of_rank(job: str, rank: int) -> list[psutil.Process]:
    """The rank's process, and its fake launcher."""
    own = [psutil.Process(pid) for pid, number in ranks_of(job).items() if number == rank]
    above = [parent for process in own if (parent := process.parent()) is not None]
    return own + [parent for parent in above if any("dmtcp_commands.py" in word for word in parent.cmdline())]


def completes(daemon: Daemon, site: LocalSite, folder: Path, job: str) -> None:
    """Told to end it does, well, and leaves nothing."""
    counting(daemon, folder)
    (folder / "end").touch()
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    lines = (folder / "out").read_text().splitlines()
    assert {f"rank {rank} ends" for rank in range(RANKS)} <= set(lines)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


def test_the_coordinator_is_killed(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """Every rank ends with 99, which is not taken for the program's own: back to the last checkpoint."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        with one_copy_only(job):
            site.more()
            daemon.wait_event(job, "epoch.running", 2)
            counting(daemon, tmp_path)
            coordinator(job).kill()
            daemon.wait_event(job, "epoch.running", 3)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            completes(daemon, site, tmp_path, job)
        assert daemon.job(job)["state"] == "completed"


@pytest.mark.dmtcp
def test_one_rank_is_killed(tmp_path: Path, real_dmtcp: Dmtcp) -> None:
    """That is the application's own end: the job FAILED with 137, and nothing is left."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        for process in of_rank(job, 2):
            process.kill()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("failed", 137), final
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_journey.py has it; integration/test_worker_dmtcp.py gives it up")
def test_a_restart_that_never_completes(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """One process does not come back: given up after the time-out, then the old placement from the same checkpoint."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path, launch_timeout_s=8) as daemon:
        job = begin(daemon, tmp_path)
        dmtcp.hold_restart(1)
        with one_copy_only(job):
            site.more()
            daemon.wait_event(job, "epoch.running", 2, timeout_s=90)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            assert "was not up in time" in why_failed(daemon, job)[0]
            completes(daemon, site, tmp_path, job)


@pytest.mark.nightly("integration/test_worker_dmtcp.py spoils images; unit/test_manager_setbacks.py goes back")
def test_a_truncated_image(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """Found before anything is started. There is no other checkpoint here, so that the job starts over, and says so."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        images = daemon.state / "spool" / "jobs" / job / "epochs" / "1" / "checkpoint" / "rank-1"
        (image,) = images.glob("*.dmtcp")
        os.truncate(image, image.stat().st_size - 5)
        with one_copy_only(job):
            worker(daemon, f"{job}.2").kill()
            daemon.wait_event(job, "checkpoint.given-up")
            told = next(e["data"] for e in daemon.events(job) if e["kind"] == "checkpoint.given-up")
            assert "the image of rank-1 is not as it was written" in told["reason"]
            until(lambda: len(ranks_of(job)) == RANKS, "it did not start over")
            completes(daemon, site, tmp_path, job)
        assert epochs(daemon, job)[:5] == [None, 1, 1, 1, None]


@pytest.mark.nightly("test_the_coordinator_is_killed goes back, too")
def test_a_node_lost_in_mid_checkpoint(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """A node goes when the checkpoint has begun: it counts for nothing, and the job restarts from the one before.

    With the fake the other ranks have written their images by then. DMTCP waits until each rank stands still.
    """
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        counting(daemon, tmp_path)
        lost = worker(daemon, f"{job}.2")
        below = {process.pid for process in lost.children(recursive=True)}
        ranks = [rank for pid, rank in ranks_of(job).items() if pid in below]
        with one_copy_only(job):
            for process in of_rank(job, ranks[0]):
                process.send_signal(signal.SIGSTOP)  # it will not write an image
            dmtcp.before_checkpoint(f"touch '{tmp_path}/asked'")
            site.more()
            daemon.wait_event(job, "epoch.stopping", 2)
            checkpoint = daemon.state / "spool" / "jobs" / job / "epochs" / "2" / "checkpoint"
            until(lambda: (tmp_path / "asked").exists(), "no checkpoint was begun", 30)
            if not dmtcp.real:
                until(lambda: any(checkpoint.glob("*/*.dmtcp*")), "no image was begun", 30)
            lost.kill()
            daemon.wait_event(job, "epoch.running", 3)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            completes(daemon, site, tmp_path, job)


@pytest.mark.nightly("unit/test_manager_journey.py has a restart that fails; test_the_coordinator_is_killed a way back")
def test_a_node_lost_in_mid_restart(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """The new node goes while ranks are being restarted: the old placement goes on from the same checkpoint."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        dmtcp.hold_restart(1)
        with one_copy_only(job):
            site.more()
            daemon.wait_event(job, "epoch.launching", 2)
            until(lambda: dmtcp.held(1), "the restart did not begin")
            worker(daemon, f"{job}.2").kill()
            daemon.wait_event(job, "epoch.running", 2)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            completes(daemon, site, tmp_path, job)


@pytest.mark.dmtcp
def test_the_home_is_lost(tmp_path: Path, real_dmtcp: Dmtcp) -> None:
    """The worker that keeps the coordinator is killed: all ranks go with it, and restart where others are."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        counting(daemon, tmp_path)
        with one_copy_only(job):
            home = coordinator(job).parent()
            assert home is not None
            home.kill()
            daemon.wait_event(job, "epoch.running", 3)
            assert epochs(daemon, job)[:3] == [None, 1, 1]
            completes(daemon, site, tmp_path, job)


@pytest.mark.nightly("integration/test_worker_dmtcp.py has an end that is not taken for a stop")
def test_the_application_ends_as_it_is_to_be_stopped(tmp_path: Path, dmtcp: Dmtcp) -> None:
    """An end is not taken for a stop: COMPLETED, and nothing is run twice."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = begin(daemon, tmp_path)
        dmtcp.before_checkpoint(f"touch '{tmp_path}/end'; sleep 0.5")
        site.more()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert (tmp_path / "out").read_text().count(" ends\n") == RANKS
        assert "epoch.stopping" in daemon.kinds(job)
        nothing_left(daemon, site, job)


@pytest.mark.dmtcp
def test_a_plugin_that_does_not_match(tmp_path: Path, real_dmtcp: Dmtcp) -> None:
    """It is not used: on nodes that are one host the job moves without it, elsewhere it would not be split."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        folder = daemon.state / "spool" / "dmtcp"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "libejbmove.so").write_bytes(b"not a library")
        record = {"trusted": True, "version": "4.9", "library": "0", "machine": "x"}
        (folder / "libejbmove.so.json").write_text(json.dumps(record))
        job = begin(daemon, tmp_path)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        completes(daemon, site, tmp_path, job)


@pytest.mark.dmtcp
@pytest.mark.parametrize(("how", "code"), [("abort", 7), ("leave", 1)])
def test_an_mpi_program_that_fails(tmp_path: Path, real_dmtcp: Dmtcp, how: str, code: int) -> None:
    """MPI_Abort keeps its code, a rank that leaves without MPI_Finalize is a failure (1), and nobody waits for ever."""
    if reason := missing_mpich():
        pytest.skip(reason)
    site = LocalSite(tmp_path)
    program = build_rank(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon, tmp_path, str(program), "5", how, mpi="mpich")
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("failed", code), final
        nothing_left(daemon, site, job)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MB of its own."""
    with small_file_system(tmp_path / "disk", "200m") as folder:
        yield folder


@pytest.mark.dmtcp
def test_a_spool_that_fills_up_in_mid_checkpoint(tmp_path: Path, real_dmtcp: Dmtcp, small_disk: Path) -> None:
    """There was room, and then there was none: what was written counts for nothing, and the job starts again."""
    site = LocalSite(tmp_path, settings=f'spool = "{small_disk}/spool"\n')
    with daemon_on(site, tmp_path, checkpoint_timeout_s=10) as daemon:
        job = begin(daemon, tmp_path)
        fill = f"[ -e '{tmp_path}/filled' ] || head -c 200m /dev/zero >'{small_disk}/ballast' 2>/dev/null"
        real_dmtcp.before_checkpoint(f"{fill}; touch '{tmp_path}/filled'")
        with one_copy_only(job):
            site.more()
            until(lambda: (tmp_path / "filled").exists(), "no checkpoint was begun", 60)
            until(lambda: bool(why_failed(daemon, job)), "the checkpoint did not fail", 60)
            (small_disk / "ballast").unlink()
            assert why_failed(daemon, job)[0].startswith("checkpoint incomplete: ")
            daemon.wait_event(job, "epoch.running", 2)
            assert not list((small_disk / "spool" / "jobs" / job / "epochs" / "1" / "checkpoint").glob("manifest-*"))
            completes(daemon, site, tmp_path, job)
