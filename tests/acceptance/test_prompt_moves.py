"""A move waits for no timer: what has to be known is told by those who know it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.journeys import nothing_left, undisturbed
from tests.acceptance.sites import POLL_S, LocalSite
from tests.fakes.daemon import Daemon, until

TIMER_S = 600  # between two polls of the timer: longer than this test waits for anything


@pytest.mark.nightly("unit/test_manager_looks.py has what workers tell looked at without the timer")
def test_with_a_timer_of_minutes_a_job_starts_and_moves_and_gives_back_at_once(tmp_path: Path) -> None:
    """A daemon that starts looks at once, which stands here for the poll that finds a window; whatever comes after it
    comes by what workers tell: a subjob that has started, and one that is left."""
    site = LocalSite(tmp_path, 4, 2, block=4, fillers=(2,))
    daemon = Daemon(tmp_path, site.toml.replace(f"poll_s = {POLL_S}", f"poll_s = {TIMER_S}"))
    try:
        site.fill()
        daemon.start()
        steps, result = 100, tmp_path / "moved"
        job = daemon.submit(*daemon.heat(steps, result, pace="40ms"), ranks=8)
        daemon.wait_event(job, "subjob.pending", timeout_s=120)
        daemon.stop()
        daemon.start()
        daemon.wait_event(job, "epoch.running", timeout_s=200)
        site.more()
        daemon.stop()
        daemon.start()
        daemon.wait_event(job, "epoch.running", 2, timeout_s=200)
        final = daemon.wait(job, timeout_s=200)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)
        until(
            lambda: daemon.kinds(job).count("subjob.completed") == 2,
            "nobody looked for the subjobs that were left",
            200,
            daemon.trace(job),
        )
        assert daemon.client.get("/v1/health").json()["polls"] <= 5, "looks are few"
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
