"""The daemon killed with SIGKILL at the boundaries of a move under engine `dmtcp`, and started again.

Four ranks count on one processor and move to two. Wherever the daemon dies between the decision and the new placement:
the move completes (or is not begun), no rank is lost or doubled. With DMTCP itself where it is on PATH, and two of them
with commands that behave as DMTCP's; EJB_TEST_CRASHES=all has all of them with both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.manager.crashpoints import CrashPoint
from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only
from tests.acceptance.sites import LocalSite
from tests.acceptance.test_faults_dmtcp import begin, completes, usable
from tests.fakes.daemon import Daemon, until

pytestmark = pytest.mark.xdist_group("dmtcp-crashes")

# In the order of the move: the n-th time from the moment on at which the processors come free.
MOMENTS = [
    (CrashPoint.TICK_BEFORE_COMMIT, 2),
    (CrashPoint.TICK_AFTER_COMMIT, 2),
    (CrashPoint.SUBMIT_BEFORE_BEGIN, 1),  # the subjob to move to
    (CrashPoint.SUBMIT_AFTER_BEGIN, 1),
    (CrashPoint.SUBMIT_AFTER_CALL, 1),
    (CrashPoint.SUBMIT_AFTER_RECORD, 1),
    (CrashPoint.OPERATION_AFTER_LEASE, 1),  # the checkpoint is handed out, and the worker has not got it
    (CrashPoint.REPORT_BEFORE_COMMIT, 1),  # the ranks are stopped and their images whole, and nobody knows
    (CrashPoint.REPORT_AFTER_COMMIT, 1),  # the checkpoint is recorded
    (CrashPoint.OPERATION_AFTER_LEASE, 2),  # the restart is handed out to the first worker
    (CrashPoint.OPERATION_AFTER_LEASE, 3),  # and to the second
    (CrashPoint.REPORT_BEFORE_COMMIT, 2),  # one worker's ranks are back
    (CrashPoint.REPORT_AFTER_COMMIT, 2),
    (CrashPoint.REPORT_BEFORE_COMMIT, 3),  # all ranks run
    (CrashPoint.REPORT_AFTER_COMMIT, 3),
]
ALWAYS = ((CrashPoint.REPORT_BEFORE_COMMIT, 1), (CrashPoint.OPERATION_AFTER_LEASE, 2))


ON_THE_FAKE = pytest.mark.nightly(
    "test_crash_matrix.py kills the daemon under workers; test_the_coordinator_is_killed moves on the fake"
)


def _parameters() -> Iterator[object]:
    for point, nth in MOMENTS:
        if (point, nth) in ALWAYS or os.environ.get("EJB_TEST_CRASHES") == "all":
            yield pytest.param(point, nth, False, id=f"fake-{point.value}:{nth}", marks=ON_THE_FAKE)
        yield pytest.param(point, nth, True, marks=pytest.mark.dmtcp, id=f"real-{point.value}:{nth}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("point", "nth", "real"), list(_parameters()))
def test_a_move_survives_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: CrashPoint, nth: int, real: bool
) -> None:
    usable(tmp_path, monkeypatch, real)
    site = LocalSite(tmp_path)
    # The workers' own time-outs go on while there is no daemon: on a busy machine it takes half a minute to start.
    daemon = Daemon(tmp_path, site.toml, {"EJBD_LIMITS__LAUNCH_TIMEOUT_S": "90"})
    try:
        site.fill()
        daemon.start()
        job = begin(daemon, tmp_path)
        with one_copy_only(job):
            daemon.kill()
            daemon.start(EJBD_CRASH_AT=f"{point.value}:{nth}")
            site.more()
            until(daemon.ended, f"the daemon never came to {point.value} for the {nth}. time", 60)
            assert daemon.process is not None and daemon.process.returncode == -signal.SIGKILL
            daemon.start()
            daemon.wait_event(job, "epoch.running", 2)
            completes(daemon, site, tmp_path, job)
        assert not {"epoch.failed", "job.fault", "checkpoint.given-up"} & set(daemon.kinds(job))
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
