"""A program whose checkpoints take their time leaves a subjob in time: no rank of it is killed by that subjob's end.

Nothing tells beforehand how long its checkpoints take, and the configured cost of a move is less than that. It is its
application's first move that shows it, and every later subjob keeps so much room.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until

CHECKPOINT_S = 5.0

SLOW = """
import os, signal, sys, time

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
saved = os.path.join(os.environ.get("EJB_RESTART_DIR", ""), "rank-" + os.environ["EJB_RANK"])
moves = int(open(saved).read()) if "EJB_RESTART_DIR" in os.environ else 0
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
    if asked:
        time.sleep(float(sys.argv[2]))  # a large state on a slow disk
        with open(os.path.join(os.environ["EJB_CHECKPOINT_DIR"], "rank-" + os.environ["EJB_RANK"]), "w") as file:
            file.write(str(moves + 1))
        sys.exit(85)
sys.exit(0 if moves == int(open(sys.argv[1]).read()) else 3)
"""
"""Computes until a file appears that says how often it should have been moved by then; fails if that is not so."""


def left_by(daemon: Daemon, job: str) -> dict[str, Any] | None:
    """The first decision to leave a subjob."""
    kinds = ("decision.shrink", "decision.suspend")
    return next((e["data"] for e in daemon.events(job) if e["kind"] in kinds), None)


@pytest.mark.nightly("unit/test_manager_journey.py moves off before the end; test_journey_local.py moves")
def test_a_slow_checkpoint_is_over_before_its_subjob_ends(tmp_path: Path) -> None:
    site = LocalSite(tmp_path, 4, 2, block=6, fillers=(1,))
    daemon = Daemon(tmp_path, site.toml)
    program, finish = tmp_path / "slow.py", tmp_path / "finish"
    program.write_text(SLOW)
    command = (sys.executable, str(program), str(finish), str(CHECKPOINT_S))
    try:
        site.fill()
        daemon.start()
        first = daemon.submit(*command, ranks=4)
        daemon.wait_event(first, "epoch.running", 1)
        site.more()
        daemon.wait_event(first, "epoch.running", 2)  # it has grown, by its first checkpoint
        cost = daemon.explain(first)["cost"]
        assert cost["source"] == "measured" and cost["checkpoint_s"] > CHECKPOINT_S > 3, "more than lambda_s"
        assert cost["reserve_s"] > 1.5 * CHECKPOINT_S
        assert daemon.client.post(f"/v1/jobs/{first}/cancel").status_code == 200
        daemon.wait(first)
        site.unblock()

        # 2 of 8 processors are idle until an ordinary job of 6 starts, and 1 of them afterwards, too. The job has both.
        # On a busy machine the short subjob may be late for its slot, and take the long one's: then it is suspended.
        site.start("filler", 1)
        site.start("other", 5, walltime_s=50)
        site.start("wide", 6)
        job = daemon.submit(*command, ranks=4)
        with one_copy_only(job):
            until(lambda: left_by(daemon, job) is not None, "it was not left", 90)
            daemon.wait_event(job, "epoch.running", 2)
            until(lambda: site.state("wide") == "running", "the job that was first did not start when promised", 60)
            finish.write_text("1")
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), "moved once, and told so by its own state"
        events = daemon.events(job)
        decision = left_by(daemon, job)
        assert decision is not None
        stopped = next(e for e in events if e["kind"] == "epoch.stopped")
        (left,) = decision["leaves"]
        short = next(s for s in final["subjobs"] if s["id"] == left)
        assert stopped["data"]["seconds"] > CHECKPOINT_S
        assert stopped["at_s"] < short["start_s"] + short["walltime_s"], "the checkpoint was there before the end"
        assert short["state"] == "completed", "and its workers have left: the batch system had nothing to end"
        assert not {"epoch.failed", "job.timeout"} & {e["kind"] for e in events}
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
