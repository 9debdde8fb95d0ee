"""A job that may have any width, on the embedded cluster: it starts with as many ranks as fit, widens, and moves to J0.

Its ranks share out what is left among as many as there are; the sum at the end is the same whatever their numbers were.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.journeys import made_again, nothing_left
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until
from tests.integration.test_worker_checkpoint import SHARED_OUT

PIECES = 240


@pytest.mark.nightly("test_journey_profile.py widens twice; unit/test_manager_reshaping.py has its J0")
def test_it_starts_on_what_is_free_widens_and_ends_on_all_it_asked_for(tmp_path: Path) -> None:
    site = LocalSite(tmp_path, 4, 4, block=8, fillers=(2, 4))
    daemon = Daemon(tmp_path, site.toml, as_program=True)
    program = tmp_path / "shared_out.py"
    program.write_text(SHARED_OUT)
    try:
        site.fill()
        daemon.start()
        script = (
            "#!/bin/sh\n#SBATCH -n 8 -t 2 -o out.txt\n#EJB engine=application widths=any restartable\n"
            f"export PACE=0.5\nsrun '{sys.executable}' '{program}'\n"
        )
        job = daemon.submit(script=script, ranks=8, time="2:00", overrides={})
        daemon.wait_event(job, "epoch.running", 1)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        until(lambda: daemon.job(job)["progress"] > 0.1, "it does not get on")
        site.unblock()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        epochs = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        widths = [one["ranks"] for one in epochs]
        assert widths == [one["processors"] for one in epochs], "each rank has a processor of its own"
        assert widths == sorted(set(widths)) and widths[0] == 2 and widths[-1] <= 8, widths
        sums = [line.split()[1] for line in (tmp_path / "out.txt").read_text().splitlines() if line.startswith("sum")]
        assert sum(map(int, sums)) == sum(range(PIECES)) and len(sums) == widths[-1]
        assert made_again(daemon, tmp_path)["differing"] == [], "its decisions are made again, rungs and all"
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
