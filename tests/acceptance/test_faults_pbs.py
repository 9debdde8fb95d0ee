"""A mom or the server killed, a walltime exceeded, a job deleted or forgotten, under a job that runs on PBS.

What the moms of either dialect do when they are killed is in no recording: the fake has it from their public sources,
and real ones were seen to do the same.
OpenPBS's gives up what ran when she starts anew (exit status -4), and her server does when she stays away for
`node_fail_requeue` (-20); she kills nothing. Torque's looks after it again (-p). The outcome of each is its test's
docstring.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.pbs_background import PbsBackground, RealPbsBackground
from tests.fakes.daemon import Daemon, until
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones

STEPS = 125
LONGER = pytest.mark.skipif(
    os.environ.get("EJB_TEST_PBS") != "all",
    reason="much the same fault once more takes half a minute: EJB_TEST_PBS=all runs it",
)
EXCEEDED = {"openpbs": -29, "torque": -11}
NODE_FAIL_REQUEUE_S = 8


@pytest.fixture(scope="module")
def fake() -> Iterator[Callable[[str], PbsSite]]:
    """One of a dialect, once it is asked for."""
    with ExitStack() as stack:

        @functools.cache
        def of(dialect: str) -> PbsSite:
            if dialect == "torque":
                return stack.enter_context(pbs_site("torque", maui=True, nodes=4, cpus=2))
            return stack.enter_context(pbs_site(dialect, nodes=4, cpus=2, node_fail_requeue_s=NODE_FAIL_REQUEUE_S))

        yield of


@pytest.fixture(scope="module")
def real_pbs() -> Iterator[Callable[[str], PbsCluster]]:
    with real_ones(4, 2) as cluster:
        yield cluster


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> PbsBackground:
    """Half of it taken by the block, a node by a filler, and a node idle."""
    if request.param not in REAL:
        return PbsBackground(request.getfixturevalue("fake")(request.param), tmp_path, fillers=(2,))
    cluster: PbsCluster = request.getfixturevalue("real_pbs")(request.param)
    if cluster.dialect == "openpbs":
        cluster.run("qmgr", "-c", f"set server node_fail_requeue = {NODE_FAIL_REQUEUE_S}")
    return RealPbsBackground(cluster, tmp_path, fillers=(2,))


def dialects(ordinary: str = "", only: str = "") -> pytest.MarkDecorator:
    """Both (or one of them `only`), or without EJB_TEST_PBS=all the `ordinary` one alone; and the real ones."""
    names = [pytest.param(name, marks=[] if ordinary in ("", name) else [LONGER]) for name in EXCEEDED]
    real = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in REAL]
    wanted = [each for each in (*names, *real) if only in str(each.values[0])]
    return pytest.mark.parametrize("site", wanted, indirect=True)


def submit(daemon: Daemon, steps: int = STEPS, **overrides: object) -> str:
    return daemon.submit(
        *daemon.heat(steps, daemon.folder / "moved", "40ms"), ranks=4, time="5:00", overrides=overrides
    )


def first_subjob(daemon: Daemon, job: str) -> dict[str, Any]:
    """What the ranks are on."""
    return dict(next(s for s in daemon.job(job)["subjobs"] if s["role"] == "subjob"))


def number(subjob: dict[str, Any]) -> int:
    return int(str(subjob["batch_id"]).partition(".")[0])


def status(site: PbsBackground, subjob: dict[str, Any]) -> int | None:
    """What the server tells of an ended batch job."""
    return next(job.status for job in site.jobs() if int(job.id.partition(".")[0]) == number(subjob))


def launches(daemon: Daemon, job: str) -> int:
    return daemon.kinds(job).count("epoch.launching")


def completed(daemon: Daemon, site: PbsBackground, job: str) -> None:
    """The job ends well, with the undisturbed result, and leaves nothing."""
    final = daemon.wait(job, timeout_s=240)
    assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)()
    assert (daemon.folder / "moved").read_bytes() == undisturbed(daemon.folder, STEPS)
    nothing_left(daemon, site, job)


# -- moms -------------------------------------------------------------------------------------------------------------


@dialects(only="openpbs")
@pytest.mark.parametrize("again", [True, pytest.param(False, marks=LONGER)])
def test_a_mom_of_openpbs_is_killed_under_a_running_subjob(site: PbsBackground, tmp_path: Path, again: bool) -> None:
    """Its processes live on where nobody looks after them. The job goes back, never in two copies, and completes."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            subjob = first_subjob(daemon, job)
            (node,) = subjob["nodes"]
            site.site.kill_mom(node)
            try:
                if again:
                    site.site.start_mom(node)
                daemon.wait_event(job, "epoch.failed")
                assert status(site, subjob) == (-4 if again else -20)
                daemon.wait_event(job, "subjob.lost")
                site.unblock()
                completed(daemon, site, job)
            finally:
                if not again:
                    site.site.start_mom(node)
        assert launches(daemon, job) > 1
        each_tag_once(daemon, site, job)


@dialects("torque", only="openpbs")
def test_a_mom_of_openpbs_is_killed_under_the_shell_of_a_script(site: PbsBackground, tmp_path: Path) -> None:
    """A script that only launches is begun again behind its launches; one that does more is told beforehand."""
    with daemon_on(site, tmp_path) as daemon:
        heat = " ".join(daemon.heat(STEPS, daemon.folder / "moved", "40ms"))
        only = daemon.post_job(ranks=4, time="5:00", script=f"#!/bin/sh\nsrun echo first > begun\nsrun {heat}\n")
        job = str(only["id"])
        assert not any("begun again" in note for note in only["notes"])
        with one_copy_only(job):
            until(lambda: launches(daemon, job) == 2, "no second launch", 90, daemon.trace(job))
            until(lambda: daemon.kinds(job).count("epoch.running") == 2, "it does not run", 90, daemon.trace(job))
            (node,) = first_subjob(daemon, job)["nodes"]
            site.site.kill_mom(node)
            site.site.start_mom(node)
            daemon.wait_event(job, "subjob.lost")
            site.unblock()
            completed(daemon, site, job)
        assert daemon.kinds(job).count("lead.appointed") == 2 and daemon.kinds(job).count("launch.asked") == 2
        told = daemon.post_job(ranks=4, time="5:00", script="#!/bin/sh\nsrun sleep 0.1\ncp begun again\n")
        assert any("not begun again" in note and "'cp' is work" in note for note in told["notes"])
        daemon.wait(str(told["id"]))


@pytest.mark.nightly("test_the_server_is_killed_under_a_running_subjob has ranks that go on")
@dialects(only="torque")
def test_a_mom_of_torque_is_killed_under_a_running_subjob(site: PbsBackground, tmp_path: Path) -> None:
    """The ranks go on while she is away and when she is back, and the job completes where it is."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            (node,) = first_subjob(daemon, job)["nodes"]
            site.site.kill_mom(node)
            site.site.start_mom(node)
            completed(daemon, site, job)
        assert "epoch.failed" not in daemon.kinds(job)
        each_tag_once(daemon, site, job)


# -- walltimes --------------------------------------------------------------------------------------------------------


@pytest.mark.nightly("integration/test_batch_contract.py exceeds one; unit/test_manager_outcomes.py is told")
@pytest.mark.sampled(2)
@dialects()
def test_a_walltime_is_exceeded(site: PbsBackground, tmp_path: Path) -> None:
    """Of a job that nobody can move: the server's number is the job's time-out, and not an exit code."""
    site.block, site.fillers = 1, ()
    with daemon_on(site, tmp_path) as daemon:
        wishes = {"elastic": "off", "engine": "none"}
        job = daemon.submit("sh", "-c", "exec sleep 300", ranks=1, time="0:10", overrides=wishes)
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("timeout", None), daemon.trace(job)()
        assert [status(site, s) for s in final["subjobs"]] == [EXCEEDED[site.site.dialect]]
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_outside.py has it; integration/test_batch_contract.py exceeds one on PBS")
@dialects("openpbs")
def test_a_subjobs_walltime_is_exceeded(site: PbsBackground, tmp_path: Path) -> None:
    """Somebody has cut it: that is no time-out of the job, which waits for J0 and completes on it."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            subjob = first_subjob(daemon, job)
            site.site.shorten(str(subjob["batch_id"]), 1)
            ends = ("timeout", "completed")  # the second where a look at the queue, or the warning, came before the end
            until(lambda: first_subjob(daemon, job)["state"] in ends, "no end", 90, daemon.trace(job))
            if first_subjob(daemon, job)["state"] == "timeout":
                assert status(site, subjob) == EXCEEDED[site.site.dialect]
            site.unblock()
            completed(daemon, site, job)
        assert launches(daemon, job) > 1
        each_tag_once(daemon, site, job)


# -- the server, and whoever may delete --------------------------------------------------------------------------------


@pytest.mark.nightly("integration/test_pbs_fake.py kills the server; the mom above is a harder loss")
@dialects("openpbs")
def test_the_server_is_killed_under_a_running_subjob(site: PbsBackground, tmp_path: Path) -> None:
    """The ranks go on while nobody answers, and the job completes where it is, or on what it grows to."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.site.kill()
            time.sleep(5)  # some polls in vain
            assert daemon.job(job)["state"] == "running" and "epoch.failed" not in daemon.kinds(job)
            site.site.start()
            completed(daemon, site, job)
        assert "epoch.failed" not in daemon.kinds(job)
        each_tag_once(daemon, site, job)


@pytest.mark.nightly("unit/test_manager_outside.py has it; integration/test_batch_contract.py tells of it")
@dialects("openpbs")
def test_a_running_subjob_is_deleted_behind_our_back(site: PbsBackground, tmp_path: Path) -> None:
    """The job goes back to wait, and completes on J0."""
    with daemon_on(site, tmp_path) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.site.run("qdel", str(first_subjob(daemon, job)["batch_id"]))
            until(lambda: first_subjob(daemon, job)["state"] == "cancelled", "no end", 90, daemon.trace(job))
            site.unblock()
            completed(daemon, site, job)
        assert launches(daemon, job) > 1
        each_tag_once(daemon, site, job)


# -- what the server forgot -------------------------------------------------------------------------------------------


@pytest.mark.nightly("unit/test_manager_outside.py has one that is not listed while its workers speak")
@pytest.mark.parametrize("site", ["torque", pytest.param("openpbs", marks=LONGER)], indirect=True)
def test_the_server_forgets_a_running_subjob(site: PbsBackground, tmp_path: Path) -> None:
    """`qstat` knows no such job while its workers speak: it is not lost, and completes.

    To the server its processors are free, so that the job may well move once more.
    """
    with daemon_on(site, tmp_path, missing_grace_s=3) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            subjob = first_subjob(daemon, job)
            site.site.control("forget", job=number(subjob))
            done = site.site.run("qstat", str(subjob["batch_id"]))
            assert done.returncode == 153 and "Unknown Job Id" in done.stderr
            daemon.wait_event(job, "subjob.missing")
            completed(daemon, site, job)
        assert first_subjob(daemon, job)["state"] != "lost" and "epoch.failed" not in daemon.kinds(job)


@pytest.mark.nightly("unit/test_manager_outside.py has one that is not listed; the mom above loses what runs")
@pytest.mark.parametrize("site", ["openpbs", pytest.param("torque", marks=LONGER)], indirect=True)
def test_the_server_forgets_a_running_subjob_and_its_mom_ends_it(site: PbsBackground, tmp_path: Path) -> None:
    """A mom that is told that nobody knows the job kills it: the application goes back, and completes."""
    with daemon_on(site, tmp_path, missing_grace_s=3) as daemon:
        job = submit(daemon)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            site.site.control("forget", job=number(first_subjob(daemon, job)), kill=True)
            daemon.wait_event(job, "epoch.failed")
            site.unblock()
            completed(daemon, site, job)
        assert first_subjob(daemon, job)["state"] == "lost"
        assert launches(daemon, job) > 1
