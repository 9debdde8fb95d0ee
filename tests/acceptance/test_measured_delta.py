"""What over-subscription costs an application is measured from the progress that it tells, and its next job begins so.

The example holds its virtual processor for each step, so that a degree of 2 takes twice the time of full width and
little more: Delta comes out near 1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.journeys import made_again, nothing_left
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until

STEPS = 420  # 12 s and more at full width, after 170 or so at half of it


@pytest.mark.nightly("unit/test_manager_overheads.py measures and plans on the fake world")
def test_the_next_job_is_planned_with_the_delta_of_this_one(tmp_path: Path) -> None:
    site = LocalSite(tmp_path, 6, 2, block=8, fillers=())
    daemon = Daemon(tmp_path, site.toml)
    heat = daemon.heat(STEPS, tmp_path / "result", pace="50ms")
    try:
        site.fill()
        daemon.start()
        job = daemon.submit(*heat, ranks=8)
        assert daemon.explain(job)["penalty"]["source"] == "configured"
        until(lambda: bool(daemon.explain(job)["speeds"]), "no speed was measured", 60, daemon.trace(job))
        site.unblock()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final

        again = daemon.submit(*heat, ranks=8)
        found = daemon.explain(again)
        full, over = found["speeds"]
        assert [(s["processors"], s["degree"], s["total"]) for s in (over, full)] == [(4, 2, STEPS), (8, 1, STEPS)]
        penalty = found["penalty"]
        assert (penalty["source"], penalty["samples"]) == ("measured", 1), penalty
        assert 0.5 <= penalty["delta"] <= 2, penalty
        assert daemon.client.post(f"/v1/jobs/{again}/cancel").status_code == 200
        daemon.wait(again)
        assert made_again(daemon, tmp_path)["differing"] == []
        for one in (job, again):
            nothing_left(daemon, site, one)
    finally:
        daemon.stop()
        site.close()
