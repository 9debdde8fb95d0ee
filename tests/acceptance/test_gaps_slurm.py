"""Rule A on a real Slurm: into a window that ends, and back to the place and the request of before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ejbd.batch.slurm.commands import Shorten
from tests.acceptance.sites import daemon_on_slurm
from tests.fakes.daemon import Daemon, until
from tests.fakes.known_runs import learn
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("gaps-slurm")]

# The first run ends when the file beside it says with which code; a later one at once.
NAP = 'echo begun >>"$1"; [ "$(wc -l <"$1")" -ge 2 ] && exit 0; until [ -e "$1.code" ]; do sleep 0.2; done; exit 0'


@dataclass
class Place:
    """Two nodes of one processor: one runs somebody's job for four minutes, then somebody else waits for both."""

    cluster: SlurmCluster
    daemon: Daemon
    folder: Path

    def crowd(self) -> tuple[str, str]:
        runs = self.cluster.sbatch("-N1", "-n1", "-t4", script="sleep 1000")
        self.cluster.until(lambda: self.cluster.states()[runs] == "RUNNING", "it does not run")
        waits = self.cluster.sbatch("-N2", "-n2", "-t30", script="sleep 1")
        self.cluster.until(lambda: self.told(waits, "%S") != "N/A", "no start is planned", 60)
        return runs, waits

    def told(self, id: str, what: str) -> str:
        return self.cluster.run("squeue", "--noheader", "--states=all", f"--format={what}", f"--jobs={id}").strip()

    def submit(self, name: str) -> tuple[str, Path, str, str]:
        """A job that asks for more than the window has; its batch job, and that of its attempt there."""
        begun = self.folder / name
        wishes = {"elastic": "off", "engine": "none", "rerunnable": True, "app": "gap"}
        answer = self.daemon.post_job("sh", "-c", NAP, "nap", str(begun), ranks=1, time="9:00", overrides=wishes)
        job = str(answer["id"])
        trace = self.daemon.trace(job)
        until(lambda: len(self.batch_ids(job)) == 2, "it was not sent into the gap", 90, trace)
        self.daemon.wait(job, "running", timeout_s=90)
        until(begun.exists, "it did not begin", 60, trace)
        own, attempt = self.batch_ids(job)
        return job, begun, own, attempt

    def batch_ids(self, job: str) -> list[str]:
        return [str(s["batch_id"]) for s in self.daemon.job(job)["subjobs"] if s["batch_id"] is not None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gaps")
    with daemon_on_slurm(folder, 2, '[queues.default]\ngaps = "on"\n') as (cluster, daemon):
        learn(daemon, "gap", 540.0, [30.0 + 4 * at for at in range(20)])
        yield Place(cluster, daemon, folder)


@pytest.fixture(autouse=True)
def afterwards(place: Place) -> Iterator[None]:
    yield
    place.cluster.empty()


def test_a_time_out_leads_back_to_the_place_and_the_request_of_before(place: Place) -> None:
    _, waits = place.crowd()
    job, begun, own, attempt = place.submit("again")
    priority, limit = place.told(own, "%Q"), place.told(own, "%l")
    later = place.cluster.sbatch("-N1", "-n1", "-t30", script="sleep 1")
    assert place.told(attempt, "%T %l") in ("RUNNING 2:00", "RUNNING 3:00") and place.told(own, "%l") == "9:00"
    assert place.told(own, "%T %r") == "PENDING BeginTime"
    print(place.daemon.explain(job)["now"])

    place.cluster.run("scontrol", "update", f"JobId={attempt}", "EndTime=now+2")
    place.daemon.wait(job, "waiting", timeout_s=120)
    place.cluster.until(lambda: place.told(own, "%r") != "BeginTime", "it was not let begin", 60)
    assert place.told(attempt, "%T") == "TIMEOUT" and place.told(own, "%T") == "PENDING"
    assert (place.told(own, "%Q"), place.told(own, "%l")) == (priority, limit)
    assert int(priority) > int(place.told(later, "%Q")), "before whoever came later"
    print("priority before and after:", priority, place.told(own, "%Q"), "of who came later:", place.told(later, "%Q"))
    (gap,) = place.daemon.explain(job)["walltimes"]["gaps"]
    assert gap["end"] == "timed out" and gap["finishes"] == 1.0

    place.cluster.run("scancel", waits)
    place.daemon.wait(job, "completed", timeout_s=120)
    assert begun.read_text() == "begun\n" * 2 and place.batch_ids(job)[:2] == [own, attempt]
    assert place.told(own, "%T") == "COMPLETED"


@pytest.mark.nightly("unit/test_manager_gaps.py has it on the fake world")
def test_what_is_done_in_the_gap_is_not_run_again(place: Place) -> None:
    place.crowd()
    job, begun, own, _attempt = place.submit("done")
    begun.with_name("done.code").touch()
    place.daemon.wait(job, "completed", timeout_s=60)
    place.cluster.until(lambda: place.told(own, "%T") == "CANCELLED", "its own batch job is left", 60)
    assert begun.read_text() == "begun\n"


@pytest.mark.nightly("unit/test_manager_gaps.py has deaths on the way")
def test_a_daemon_that_dies_while_the_attempt_times_out_finds_it_so(place: Place) -> None:
    _, waits = place.crowd()
    job, begun, own, attempt = place.submit("away")
    place.cluster.run("scontrol", "update", f"JobId={attempt}", "EndTime=now+2")
    place.daemon.kill()
    place.cluster.until(lambda: place.told(attempt, "%T") == "TIMEOUT", "it did not time out", 120)
    place.cluster.run("scancel", waits)
    time.sleep(4)
    assert place.told(own, "%T %r") == "PENDING BeginTime" and begun.read_text() == "begun\n"
    place.daemon.start()
    place.daemon.wait(job, "completed", timeout_s=120)
    assert begun.read_text() == "begun\n" * 2 and len(place.batch_ids(job)) in (2, 3)


@pytest.mark.nightly("test_kept_place_slurm.py has a learned walltime; unit/test_manager_gaps.py the gaps")
def test_a_limit_is_lowered_while_a_job_waits_and_raised_while_it_runs(place: Place) -> None:
    """By the last two runs, 102 and 106 s, it would be two minutes: it is three, long enough to be raised in time. With
    these it fits a window of four, for which its nine are too long."""
    place.crowd()
    place.daemon.client.patch("/v1/queues/batch", json={"raised": "all"}).raise_for_status()
    wishes = {"elastic": "off", "engine": "none"}
    job = str(place.daemon.post_job("sleep", "20", ranks=1, time="9:00", overrides=wishes)["id"])
    until(lambda: place.batch_ids(job) != [], "it was not submitted", 60, place.daemon.trace(job))
    (id,) = place.batch_ids(job)
    place.cluster.until(lambda: place.told(id, "%T %l") == "RUNNING 3:00", "it does not run with its plan", 90)
    assert "planned with 180 s, and raised to 540 s before that is over" in place.daemon.explain(job)["now"]
    place.cluster.run(*Shorten(id, 540.0).argv())
    assert place.told(id, "%T %l") == "RUNNING 9:00", "Slurm raises the limit of what runs"
    place.daemon.wait(job, "completed", timeout_s=60)
    assert place.daemon.explain(job)["walltimes"]["raised"]["first_s"] == 180.0
    place.daemon.client.patch("/v1/queues/batch", json={"raised": None}).raise_for_status()
