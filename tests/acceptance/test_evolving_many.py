"""Evolving jobs beside each other on the embedded cluster, and tails that are replaced, also from inside the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.evolving import GRACE, Paced, a_tail_is_replaced_from_inside, build_paced, peaks_interlock
from tests.acceptance.journeys import nothing_left
from tests.acceptance.sites import LocalSite
from tests.acceptance.test_faults_local import workers
from tests.fakes.daemon import Daemon, until

ALL = pytest.mark.skipif(
    os.environ.get("EJB_TEST_EVOLVING") != "all", reason="half a minute each: EJB_TEST_EVOLVING=all runs them"
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    site = LocalSite(tmp_path, 4, 4)
    yield site
    site.close()


@pytest.fixture
def paced(tmp_path: Path, site: LocalSite) -> Iterator[Paced]:
    daemon = Daemon(tmp_path, site.toml.replace("[limits]\n", GRACE))
    daemon.start()
    yield Paced(daemon, build_paced(tmp_path), tmp_path)
    daemon.stop()


@pytest.mark.nightly("unit/test_manager_evolving_guaranteed.py has it on the fake world, and Slurm's own comes with it")
def test_two_jobs_whose_peaks_interlock(paced: Paced, site: LocalSite) -> None:
    """Two peaks of 12 on 16 processors."""
    peaks_interlock(replace(paced, steps=90), "4:6s,12:8s,4:5m")
    for row in site.jobs():
        assert not row.live, row


@pytest.mark.nightly("test_evolving_slurm.py asks from inside; unit/test_manager_evolving.py has the tail")
def test_a_tail_is_replaced_from_inside_the_job(paced: Paced, site: LocalSite) -> None:
    """Planned were 4 for minutes and then 12; the script asks for 12 at once, and for 4 again after 8 s."""
    job = a_tail_is_replaced_from_inside(paced, "4:4m,12:1m", "now:12,+8s:4")
    assert paced.epochs(job) == [4, 12, 4]
    nothing_left(paced.daemon, site, job)


@pytest.mark.nightly("unit/test_manager_evolving_guaranteed.py loses that of J0 and of an increment")
@pytest.mark.parametrize("step", [pytest.param(1, marks=ALL), 2, pytest.param(3, marks=ALL)])
def test_a_node_is_lost(paced: Paced, site: LocalSite, step: int) -> None:
    """As on Slurm; a worker that is killed takes its batch job with it here. In its narrow steps that is J0's, in the
    wide one the increment's."""
    daemon = paced.daemon
    job = paced.submit("result", "4:8s,12:6s,4:5m" if step == 3 else "4:8s,12:2m,4:5m")
    daemon.wait_event(job, "epoch.running", step)
    lost = daemon.job(job)["subjobs"][step == 2]
    for worker in workers(daemon, lost["id"]):
        worker.kill()

    def another() -> bool:
        asked = [s for s in daemon.job(job)["subjobs"] if s["processors"] == lost["processors"]]
        return len(asked) > 1 and asked[-1]["start_s"] is not None

    until(another, "no other one comes in its place", 90, daemon.trace(job))
    paced.ended_well("result", job)
    assert paced.epochs(job) == {1: [4, 4, 12], 2: [4, 12, 4, 12], 3: [4, 12, 4, 4]}[step]
    nothing_left(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_evolving_guaranteed.py has it on the fake world")
def test_a_job_that_does_not_give_back_is_ended_and_was_told_so(tmp_path: Path, site: LocalSite) -> None:
    """Its ranks ignore the signal by which they are asked to move, once they are 12 wide."""
    toml = site.toml.replace("[limits]\n", GRACE).replace("checkpoint_timeout_s = 30", "checkpoint_timeout_s = 2")
    daemon = Daemon(tmp_path, toml)
    daemon.start()
    try:
        deaf = "if [ -n \"$EJB_RESTART_DIR\" ]; then trap '' USR1; else trap 'exit 85' USR1; fi; "
        words = ["sh", "-c", deaf + "while :; do sleep 0.2; done"]
        overrides = {"profile": "4:6s,12:4s,4:5m", "ntasks": None, "time": "10", "engine": "application"}
        job = daemon.submit(*words, overrides=overrides)
        daemon.wait_event(job, "epoch.running", 2)
        assert "a width that is not left 4 s after its last step ends the job" in daemon.explain(job)["now"]
        final = daemon.wait(job, timeout_s=90)
        assert final["state"] == "failed", final
        assert "it still holds 8 places 4 s after the end of step 2, as it was told not to" in final["reason"]
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
