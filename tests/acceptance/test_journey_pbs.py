"""The first journey behind qsub: start at once on what is idle, grow twice, decide about J0, and leave nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.pbs_background import PbsBackground, RealPbsBackground
from tests.fakes.daemon import Daemon, until
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones

# Which of them ends first depends on how long a move takes on this machine.
ABOUT_J0 = ("decision.move_to_placeholder", "decision.keep_subjobs", "decision.start_on_placeholder")


@pytest.fixture(params=["openpbs", "torque-maui", *REAL])
def site(request: pytest.FixtureRequest) -> Iterator[PbsSite | PbsCluster]:
    if request.param in REAL:
        with real_ones(4, 4) as cluster:
            yield cluster(request.param)
        return
    if request.param == "openpbs" and os.environ.get("EJB_TEST_PBS") != "all":
        pytest.skip("the journey on a second dialect takes half a minute: EJB_TEST_PBS=all runs it")
    dialect, _, maui = request.param.partition("-")
    with pbs_site(dialect, maui=bool(maui), nodes=4, cpus=4) as site:
        yield site


def test_starts_at_once_grows_twice_and_finishes(site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    """8 ranks begin on 1 processor of 4 x 4, grow to 2 and to 4; then J0 starts."""
    kind = RealPbsBackground if isinstance(site, PbsCluster) else PbsBackground
    background = kind(site, tmp_path, block=8, fillers=(1, 2, 4))  # type: ignore[arg-type]
    daemon = Daemon(tmp_path, background.toml)
    try:
        background.fill()
        daemon.start()
        steps, result = 400, tmp_path / "moved"
        job = daemon.submit(*daemon.heat(steps, result, pace="50ms"), ranks=8)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running", 1)
            offered = daemon.client.get("/v1/windows").json()["windows"]
            assert ("estimates" if site.dialect == "openpbs" else "showbf") in offered[0]["by"]
            for count in (2, 3):
                background.more()
                daemon.wait_event(job, "epoch.running", count)
            background.unblock()
            until(
                lambda: any(kind in daemon.kinds(job) for kind in ABOUT_J0),
                "J0's start was not decided on",
                90,
            )
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)
        kinds = [d["kind"] for d in daemon.explain(job)["decisions"] if d["kind"] != "nothing"]
        assert kinds[:3] == ["start", "expand", "expand"]
        nothing_left(daemon, background, job)
        each_tag_once(daemon, background, job)
    finally:
        daemon.stop()
        background.close()
