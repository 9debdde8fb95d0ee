"""What stands by on a real Slurm: it keeps its place in the queue, and runs after a time-out and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.sites import daemon_on_slurm
from tests.fakes.daemon import Daemon, until
from tests.fakes.known_runs import learn
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("kept-place-slurm")]

# Its first run goes on until it is ended, or as the file beside it says; a later one ends soon.
NAP = 'echo begun >>"$1"; [ "$(wc -l <"$1")" -ge 2 ] && exit 0; while [ ! -e "$1.code" ]; do sleep 0.2; done; exit 3'


@dataclass
class Place:
    cluster: SlurmCluster
    daemon: Daemon
    folder: Path

    def submit(self, name: str) -> tuple[str, Path]:
        """A job with a learned walltime that takes the whole cluster; the file that tells how often it ran."""
        begun = self.folder / name
        wishes = {"elastic": "off", "engine": "none", "walltime": "auto", "rerunnable": True, "app": "nap"}
        answer = self.daemon.post_job("sh", "-c", NAP, "nap", str(begun), ranks=1, time="8:00", overrides=wishes)
        job = str(answer["id"])
        self.daemon.wait(job, "running")
        until(lambda: self.subjob(job, 1) is not None, "nothing stands by", 60, self.daemon.trace(job))
        until(begun.exists, "it did not begin", 60)
        return job, begun

    def subjob(self, job: str, ordinal: int) -> dict[str, Any] | None:
        """One that the batch system has."""
        found = [s for s in self.daemon.job(job)["subjobs"] if s["ordinal"] == ordinal and s["batch_id"] is not None]
        return found[0] if found else None

    def batch_id(self, job: str, ordinal: int) -> str:
        found = self.subjob(job, ordinal)
        assert found is not None
        return str(found["batch_id"])

    def ends_in(self, job: str, seconds: float) -> None:
        """The walltime of its first run is over so soon."""
        self.cluster.run("scontrol", "update", f"JobId={self.batch_id(job, 0)}", f"EndTime=now+{seconds:g}")

    def state(self, job: str, ordinal: int) -> str:
        return self.cluster.states().get(self.batch_id(job, ordinal), "")

    def reason(self, job: str, ordinal: int) -> str:
        return self.cluster.run("squeue", "--noheader", "--format=%r", f"--jobs={self.batch_id(job, ordinal)}").strip()

    def started(self, *ids: str) -> list[str]:
        """These batch jobs in the order of their starts."""
        words = ("squeue", "--noheader", "--states=all", "--Format=JobID:12,StartTime:24", "--jobs=" + ",".join(ids))
        rows = [line.split() for line in self.cluster.run(*words).splitlines()]
        return [row[0] for row in sorted(rows, key=lambda row: row[1])]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("kept-place")
    with daemon_on_slurm(folder, 1, "[limits]\nsettle_s = 1\n") as (cluster, daemon):
        learn(daemon, "nap", 480.0, [60.0 + 5 * at for at in range(12)])
        yield Place(cluster, daemon, folder)


@pytest.fixture(autouse=True)
def afterwards(place: Place) -> Iterator[None]:
    yield
    place.cluster.empty()


def test_after_a_time_out_it_goes_before_those_who_came_while_the_first_run_went_on(place: Place) -> None:
    """The first of the others takes the processors at once: what stands by has to be let begin. It is the next."""
    job, begun = place.submit("first")
    others = [place.cluster.sbatch("-n1", "-t5", script=f"sleep {seconds}") for seconds in (6, 1, 1)]
    assert place.reason(job, 1) == "Dependency"
    place.ends_in(job, 2)
    place.daemon.wait(job, "completed", timeout_s=180)
    assert begun.read_text() == "begun\n" * 2
    assert place.daemon.kinds(job).count("subjob.adopted") == 1
    place.cluster.until(lambda: place.cluster.states().get(others[2]) == "COMPLETED", "the others did not end", 120)
    order = place.started(place.batch_id(job, 1), *others)
    print("order of starts:", order, "stood by:", place.batch_id(job, 1), "others:", others)
    assert order.index(place.batch_id(job, 1)) <= 1 and order[-2:] == others[1:], order


@pytest.mark.nightly("unit/test_manager_standby.py has every other end on the fake world")
def test_a_run_that_fails_while_the_daemon_is_away_is_not_run_again(place: Place) -> None:
    """The dependency is met by its failure; the begin that lies ahead keeps it from running."""
    job, begun = place.submit("fails")
    place.daemon.kill()
    begun.with_name("fails.code").touch()
    first, second = place.cluster.states(), ""
    place.cluster.until(lambda: "FAILED" in place.cluster.states().values(), "it did not fail", 60)
    second = str(max(map(int, first)))
    time.sleep(5)  # Slurm looks at its queue meanwhile
    row = place.cluster.run("squeue", "--noheader", "--format=%T %r", f"--jobs={second}").split()
    assert row == ["PENDING", "BeginTime"] and begun.read_text() == "begun\n"
    place.daemon.start()
    done = place.daemon.wait(job, "failed", timeout_s=60)
    assert done["exit_code"] == 3
    place.cluster.until(lambda: place.cluster.states().get(second) == "CANCELLED", "it still stands by", 60)
    assert begun.read_text() == "begun\n"


@pytest.mark.nightly("unit/test_manager_standby.py has a daemon that is away; the first one a real Slurm")
def test_a_time_out_while_the_daemon_is_away_goes_on_once_it_is_back(place: Place) -> None:
    job, begun = place.submit("away")
    place.ends_in(job, 2)
    place.daemon.kill()
    place.cluster.until(lambda: "TIMEOUT" in place.cluster.states().values(), "it did not time out", 120)
    time.sleep(3)
    assert begun.read_text() == "begun\n"
    place.daemon.start()
    place.daemon.wait(job, "completed", timeout_s=120)
    assert begun.read_text() == "begun\n" * 2 and place.daemon.kinds(job).count("subjob.adopted") == 1
    assert len([s for s in place.daemon.job(job)["subjobs"] if s["role"] == "rigid"]) == 2


@pytest.mark.nightly("unit/test_manager_standby.py cancels both on the fake world")
def test_scancel_of_the_run_ends_the_job_and_what_stands_by(place: Place) -> None:
    job, begun = place.submit("cancelled")
    place.cluster.run("scancel", place.batch_id(job, 0))
    place.daemon.wait(job, "cancelled", timeout_s=60)
    place.cluster.until(lambda: place.state(job, 1) == "CANCELLED", "it still stands by", 60)
    assert begun.read_text() == "begun\n"
