"""Programs that DMTCP does not hold, or not at their start: under engine=auto they end as without it.

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

CANNOT_BEGIN = {  # what the ranks end with under DMTCP
    "environment of its own": 134,
    "inotify": 1,
    "timer of C (thread)": 1,
    "SIGUSR2 of its own": 1,
    "pidfd of a child": 1,
}
SEEN = {
    "static program behind a shell": "which DMTCP does not hold",
    "io_uring": "has an io_uring",
    "userfaultfd": "has a userfaultfd",
    "file in memory": "a file in memory open",
    "main thread that has ended": "main thread has ended before the others",
    "few open files": "may have no more than 256 files open",
}
FEW, FEW_SEEN = ("environment of its own", "pidfd of a child"), ("static program behind a shell",)


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


def test_what_cannot_begin_under_dmtcp_ends_as_without_it(tmp_path: Path) -> None:
    """It had failed with a code that only DMTCP gave it."""
    site = LocalSite(tmp_path)
    with daemon_on(site, tmp_path) as daemon:
        for name in CANNOT_BEGIN if ALL else FEW:
            job, mine = begun(daemon, tmp_path, name)
            daemon.wait_event(job, "epoch.running", 2)
            events = ended_well(daemon, job, mine, 20)
            (told,) = [e["data"] for e in events if e["kind"] == "job.not-movable"]
            why = f"ended with code {CANNOT_BEGIN[name]} in its first seconds under DMTCP"
            assert told["how"] == "start" and told["reason"].endswith(why), told  # type: ignore[index]
            assert "rank.failed" not in {e["kind"] for e in events}
            nothing_left(daemon, site, job)


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
