"""Programs that DMTCP refuses something, or does not bring back: under engine=auto they end as without it.

With DMTCP itself, through the daemon. EJB_TEST_FEATURES=all tries all of them, else a few.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.acceptance.journeys import daemon_on, nothing_left
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until
from tests.fakes.features import BY_NAME, file_name, last_step

pytestmark = [pytest.mark.dmtcp, pytest.mark.xdist_group("dmtcp-faults")]
ALL = os.environ.get("EJB_TEST_FEATURES") == "all"
RANKS = 2
AUTO = {"engine": "auto", "mpi": "none"}

REFUSED = (  # by bare DMTCP, as they ask for it
    *("SIGUSR2 of its own", "environment of its own", "calls that take process ids", "program that is a descriptor"),
)
SEEN = {
    "inotify": "has an inotify",
    "timer of C (thread)": "has a timer that wakes a thread",
    "pidfd of a child": "has a pidfd",
    "static program behind a shell": "which DMTCP does not hold",
    "io_uring": "has an io_uring",
    "userfaultfd": "has a userfaultfd",
    "file in memory": "a file in memory open",
    "main thread that has ended": "main thread has ended before the others",
    "few open files": "may have no more than 256 files open",
}
FEW_REFUSED, FEW_SEEN = ("SIGUSR2 of its own",), ("timer of C (thread)",)


@pytest.fixture(autouse=True)
def there() -> None:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")


def begun(daemon: Daemon, folder: Path, name: str) -> tuple[str, Path]:
    """A job of the program, and the file that ends it."""
    feature = BY_NAME[name]
    mine = folder / file_name(feature)
    mine.mkdir()
    script = mine / f"run-{file_name(feature)}.sh"  # by its name the application is known
    script.write_text('end=$1; mine=$2; shift 2; exec "$@" "$end" "$mine-$EJB_RANK"\n')
    words = ["sh", str(script), str(mine / "end"), str(mine / "mine")]
    words += feature.command(mine, "try-" + file_name(feature))
    overrides = {"engine": "auto", "mpi": "none", "output": str(mine / "out")}
    return daemon.submit(*words, ranks=RANKS, time="10:00", overrides=overrides), mine


def ended_well(daemon: Daemon, job: str, mine: Path, steps: int) -> list[dict[str, object]]:
    """Once it has come so far it is told to end; its events."""
    until(lambda: last_step(mine / "out") >= steps, "it does not get on", 60, daemon.trace(job))
    (mine / "end").touch()
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)()
    return daemon.events(job)


def test_what_dmtcp_would_refuse_something_runs_under_it(tmp_path: Path) -> None:
    """It failed with a code that only DMTCP gave it."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        for name in REFUSED if ALL else FEW_REFUSED:
            job, mine = begun(daemon, tmp_path, name)
            events = ended_well(daemon, job, mine, 20)
            assert {"job.not-movable", "rank.failed", "epoch.failed"}.isdisjoint(e["kind"] for e in events)
            assert daemon.job(job)["engine"] == "dmtcp"
            nothing_left(daemon, site, job)


def test_an_exit_code_is_the_programs_own_and_it_runs_once(tmp_path: Path) -> None:
    """An ordinary script that failed at once was run twice: its files held their lines twice."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        words = ["sh", "-c", "echo line >> lines; exit 3"]
        job = daemon.submit(*words, ranks=1, time="10:00", cwd=str(tmp_path), overrides=AUTO)
        assert daemon.wait(job)["exit_code"] == 3
        assert (tmp_path / "lines").read_text() == "line\n"


def test_what_dmtcp_does_not_bring_back_is_seen_and_left_alone(tmp_path: Path) -> None:
    """It was killed at the first move, after half a minute to two."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        for name in SEEN if ALL else FEW_SEEN:
            job, mine = begun(daemon, tmp_path, name)
            daemon.wait_event(job, "job.not-movable", timeout_s=180)
            events = ended_well(daemon, job, mine, 20)
            (told,) = [e["data"] for e in events if e["kind"] == "job.not-movable"]
            assert told["how"] == "seen" and SEEN[name] in told["reason"], told  # type: ignore[index]
            assert "epoch.stopped" not in {e["kind"] for e in events}
            nothing_left(daemon, site, job)
