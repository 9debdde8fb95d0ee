"""The daemon killed with SIGKILL at every crash point of a short journey, on every batch system, and started again.

Four ranks begin on one processor, grow to two, and end; J0 waits all the while and is cancelled at the end. Wherever
the daemon dies: the journey completes, with the undisturbed result, and no job is lost, doubled or orphaned.

Every point, at almost every time, is in tests/unit/test_manager_crashes.py: a manager of the fake world is thrown away
there, in a second. Here is what that cannot show (`NEEDS_A_PROCESS` says why), and all of it with EJB_TEST_CRASHES=all.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from ejbd.manager.crashpoints import CrashPoint
from tests.acceptance.journeys import each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.pbs_background import PbsBackground, RealPbsBackground
from tests.acceptance.sites import LocalSite, Site, SlurmSite
from tests.fakes.daemon import ROOT, Daemon, until
from tests.fakes.known_runs import learn
from tests.fakes.me import ME
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster
from tests.unit.test_manager_crashes import LIVES

STEPS = 80
PATIENCE_S = 300  # with a thirtieth of a processor a daemon takes more than a minute to come up
FINAL = ("completed", "failed", "timeout", "cancelled")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """When the trap is set (from the start on, or when the job is about to grow), and which time it snaps."""

    phase: str  # "start" or "growth"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.phase}:{self.nth}"


START, GROWTH = Moment("start"), Moment("growth")
FIRST_SUBJOB = Moment("start", 2)  # J0 is the first to be submitted
# Every point in at least one moment (a KeyError here: a new point has none yet); the first ones are for Slurm, too.
MOMENTS: dict[CrashPoint, list[Moment]] = {
    CrashPoint.SUBMIT_BEFORE_BEGIN: [GROWTH, START],
    CrashPoint.SUBMIT_AFTER_BEGIN: [FIRST_SUBJOB, START, GROWTH],
    CrashPoint.SUBMIT_AFTER_CALL: [GROWTH, START, FIRST_SUBJOB],
    CrashPoint.SUBMIT_AFTER_RECORD: [FIRST_SUBJOB, GROWTH],
    CrashPoint.CANCEL_BEFORE_BEGIN: [START],  # nothing is cancelled before the end
    CrashPoint.CANCEL_AFTER_BEGIN: [START],
    CrashPoint.CANCEL_AFTER_CALL: [START],
    CrashPoint.CANCEL_AFTER_RECORD: [START],
    CrashPoint.END_AFTER_ASKING: [START],
    CrashPoint.TICK_BEFORE_COMMIT: [Moment("growth", 2), START],
    CrashPoint.TICK_AFTER_COMMIT: [Moment("growth", 2), Moment("start", 2)],
    CrashPoint.OPERATION_AFTER_LEASE: [GROWTH, START],  # the checkpoint; the lead
    CrashPoint.REPORT_BEFORE_COMMIT: [GROWTH, START],
    CrashPoint.REPORT_AFTER_COMMIT: [GROWTH, Moment("growth", 2)],
    CrashPoint.JOB_AFTER_COMMIT: [START],
}
CASES = [("local", point, moment) for point in MOMENTS for moment in MOMENTS[point]]
CASES += [("slurm", point, MOMENTS[point][0]) for point in MOMENTS]
CASES += [("slurm", CrashPoint.SUBMIT_AFTER_CALL, FIRST_SUBJOB)]
# Real ones: where something has been asked of them and nobody knows the answer, and where they have been asked to end
# something. The fake: the same in every run, all of them with EJB_TEST_PBS=all.
CASES += [("openpbs", point, moment) for point in MOMENTS for moment in MOMENTS[point]]
ALWAYS = ((CrashPoint.SUBMIT_AFTER_CALL, FIRST_SUBJOB), (CrashPoint.CANCEL_AFTER_CALL, START))
for real in REAL:
    CASES += [(real, *case) for case in (*ALWAYS, (CrashPoint.TICK_AFTER_COMMIT, Moment("growth", 2)))]


# On the way from a start, or from a time-out where nothing stands by, to the submission with the next walltime, and to
# its beginning; the first submission is the job's own.
RESUBMISSION: dict[str, dict[CrashPoint, int]] = {
    "off": {CrashPoint.AGAIN_BEFORE_COMMIT: 1, CrashPoint.SUBMIT_BEFORE_BEGIN: 2},
    "on": {
        CrashPoint.STANDBY_BEFORE_COMMIT: 1,
        CrashPoint.SUBMIT_BEFORE_BEGIN: 2,
        CrashPoint.SUBMIT_AFTER_CALL: 2,
        CrashPoint.AGAIN_BEFORE_COMMIT: 1,
        CrashPoint.BEGIN_BEFORE_CALL: 1,
        CrashPoint.BEGIN_AFTER_CALL: 1,
    },
}
# Into a gap, and back: the job's own submission is the first, that of its attempt the second.
GAPS: dict[CrashPoint, int] = {
    CrashPoint.STAY_AFTER_CALL: 1,
    CrashPoint.SUBMIT_BEFORE_BEGIN: 2,
    CrashPoint.SUBMIT_AFTER_CALL: 2,
    CrashPoint.BEGIN_BEFORE_CALL: 1,
    CrashPoint.BEGIN_AFTER_CALL: 1,
}
# What takes another job that waits, a J0 that starts late, or a pool (test_pool_local.py has its real processes).
IN_THE_FAKE_WORLD = {
    *(CrashPoint.END_AFTER_CALL, CrashPoint.ASIDE_AFTER_CALL, CrashPoint.WORKFLOW_AFTER_COMMIT),
    *(CrashPoint.STAGE_BEFORE_COMMIT, CrashPoint.STAGE_AFTER_COMMIT, CrashPoint.STAGE_AFTER_JOB),
    CrashPoint.RESIZE_AFTER_LEASE,
}
RESUBMISSIONS = [(keep_place, point) for keep_place, points in RESUBMISSION.items() for point in points]


# What only a killed process shows, and what that is.
ON_DISK = "what was committed is on disk, and what was not is undone: SQLite's log after SIGKILL"
ASKED = "a real batch system has done what was asked, or not, and its own commands tell which"
FILES = "the files of a subjob are in the spool, and the batch system was not called"
WORKERS = "a worker's connection breaks: what it was to get is given again, what it had to tell it keeps on its disk"
ALONE_ONES = "workers begin by themselves, by files that they and the daemon write"
NEEDS_A_PROCESS: dict[tuple[object, ...], str] = {
    ("local", CrashPoint.JOB_AFTER_COMMIT, START): ON_DISK,
    ("local", CrashPoint.TICK_AFTER_COMMIT, Moment("growth", 2)): ON_DISK,
    ("local", CrashPoint.SUBMIT_AFTER_CALL, GROWTH): ASKED,
    ("local", CrashPoint.OPERATION_AFTER_LEASE, GROWTH): WORKERS,
    ("local", CrashPoint.REPORT_AFTER_COMMIT, GROWTH): WORKERS,
    ("slurm", CrashPoint.SUBMIT_AFTER_BEGIN, FIRST_SUBJOB): FILES,
    ("slurm", CrashPoint.SUBMIT_AFTER_CALL, FIRST_SUBJOB): ASKED,
    ("slurm", CrashPoint.CANCEL_AFTER_CALL, START): ASKED,
    ("slurm", CrashPoint.REPORT_BEFORE_COMMIT, GROWTH): WORKERS,
    **{(batch, *case): ASKED for batch in ("openpbs", *REAL) for case in ALWAYS},
    **{(real, CrashPoint.TICK_AFTER_COMMIT, Moment("growth", 2)): ON_DISK for real in REAL},
    ("on", CrashPoint.STANDBY_BEFORE_COMMIT): ON_DISK,  # in the middle of a transaction
    ("on", CrashPoint.BEGIN_AFTER_CALL): ASKED,
    ("gap", CrashPoint.STAY_AFTER_CALL): ASKED,
    ("still-runs", CrashPoint.ALONE_BEFORE_COMMIT): ALONE_ONES,
}

# Of each of these reasons the default run keeps one or two; the others are another batch system's or point's, for the
# same reason.
LEFT_TO_NIGHTLY: dict[tuple[object, ...], str] = {
    ("local", CrashPoint.JOB_AFTER_COMMIT, START): "tick.after-commit is on disk, too",
    ("local", CrashPoint.SUBMIT_AFTER_CALL, GROWTH): "Slurm is asked at the same point",
    ("local", CrashPoint.OPERATION_AFTER_LEASE, GROWTH): "report.after-commit breaks a connection, too",
    ("gap", CrashPoint.STAY_AFTER_CALL): "Slurm is asked at submit.after-call; unit/test_manager_gaps.py has deaths",
    ("slurm", CrashPoint.SUBMIT_AFTER_BEGIN, FIRST_SUBJOB): "the next point has the same files",
    ("slurm", CrashPoint.CANCEL_AFTER_CALL, START): "it is asked at submit.after-call; LIVES has a death at this point",
    ("slurm", CrashPoint.REPORT_BEFORE_COMMIT, GROWTH): "the embedded cluster's report.after-commit breaks one, too",
    ("openpbs", CrashPoint.SUBMIT_AFTER_CALL, FIRST_SUBJOB): "Slurm is asked at the same point",
    ("openpbs", CrashPoint.CANCEL_AFTER_CALL, START): "Slurm is asked at submit.after-call; LIVES has a death here",
    ("on", CrashPoint.BEGIN_AFTER_CALL): "test_kept_place_slurm.py goes this way; LIVES has a death at this point",
    ("on", CrashPoint.STANDBY_BEFORE_COMMIT): "tick.after-commit is on disk, too; LIVES has a death at this point",
}


def _marks(*case: object) -> list[pytest.MarkDecorator]:
    if case in LEFT_TO_NIGHTLY:
        return [pytest.mark.nightly(LEFT_TO_NIGHTLY[case])]
    if case in NEEDS_A_PROCESS or os.environ.get("EJB_TEST_CRASHES") == "all":
        return []
    return [pytest.mark.skip("in tests/unit/test_manager_crashes.py; with a real process: EJB_TEST_CRASHES=all")]


@pytest.fixture(scope="module")
def slurm_of_four() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fake_of_four() -> Iterator[PbsSite]:
    with pbs_site("openpbs", nodes=4, cpus=2) as site:
        yield site


@pytest.fixture(scope="module")
def real_of_four() -> Iterator[Callable[[str], PbsCluster]]:
    with real_ones(4, 2) as cluster:
        yield cluster


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made: Site
    if request.param == "local":
        made = LocalSite(tmp_path)
    elif request.param == "openpbs":
        made = PbsBackground(request.getfixturevalue("fake_of_four"), tmp_path)
    elif request.param in REAL:
        made = RealPbsBackground(request.getfixturevalue("real_of_four")(request.param), tmp_path)
    else:
        made = SlurmSite(request.getfixturevalue("slurm_of_four"), tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("expected"), STEPS)


class Operator:
    """Starts the daemon again whenever it has died, and repeats what it had not answered."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.deaths: list[int] = []
        self.repeated = 0

    def look(self) -> None:
        """See whether it lives; count how it died, and start it again without the trap."""
        process = self.daemon.process
        if process is not None and self.daemon.ended():
            self.deaths.append(process.wait())
            assert len(self.deaths) == 1, f"the daemon died again: {self.deaths}"
            self.daemon.start()

    def ask(self, action: Callable[[], T]) -> T:
        """The answer to `action`, whatever the daemon does meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.look()
            try:
                return action()
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the daemon lives and does not answer"
                self.repeated += 1
                time.sleep(0.05)

    def until(self, ready: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        until(lambda: self.ask(ready), what, timeout_s, self._trace)

    def _trace(self) -> str:
        return self.daemon.log.read_text(errors="replace")[-4000:]


def _parameters() -> Iterator[object]:
    for batch, point, moment in CASES:
        marks = [pytest.mark.slurm] if batch == "slurm" else []
        marks += [pytest.mark.xdist_group(f"crash-matrix-{batch}")] if batch != "local" else []
        if batch == "openpbs" and (point, moment) not in ALWAYS and os.environ.get("EJB_TEST_PBS") != "all":
            reason = "all of the crash matrix on the fake PBS takes five minutes: EJB_TEST_PBS=all runs it"
            marks.append(pytest.mark.skip(reason))
        elif batch != "openpbs" or (batch, point, moment) in LEFT_TO_NIGHTLY:
            marks += _marks(batch, point, moment)
        yield pytest.param(batch, point, moment, marks=marks, id=f"{batch}-{point.value}-{moment}")


@pytest.mark.parametrize(("site", "point", "moment"), list(_parameters()), indirect=["site"])
def test_a_crash_loses_and_doubles_nothing(
    site: Site, point: CrashPoint, moment: Moment, tmp_path: Path, expected: bytes
) -> None:
    site.fill()
    daemon = Daemon(tmp_path, site.toml, site.environment)
    trap = {"EJBD_CRASH_AT": f"{point.value}:{moment.nth}"}
    operator = Operator(daemon)
    result = tmp_path / "moved"
    try:
        daemon.start(**(trap if moment.phase == "start" else {}))
        job, created = operator.ask(lambda: submitted(daemon, site, result))
        if point is CrashPoint.JOB_AFTER_COMMIT:
            assert operator.deaths and not created, "the same key, the same job"
        with one_copy_only(job) as watch:
            watch.hold(4)  # it must not end before it has grown, however slow this machine is
            operator.until(lambda: "epoch.running" in daemon.kinds(job), "it did not start")
            if moment.phase == "growth":
                assert operator.deaths == []
                daemon.kill()
                daemon.start(**trap)
            site.more()
            operator.until(watch.asked_to_checkpoint, "it did not grow")
            watch.let_go()
            operator.until(lambda: daemon.kinds(job).count("epoch.running") >= 2, "it did not move")
            operator.until(lambda: daemon.job(job)["state"] in FINAL, "it did not end")
        operator.until(lambda: bool(operator.deaths), f"the daemon never came to {point.value}", 120)
        assert operator.deaths == [-signal.SIGKILL]

        assert operator.ask(lambda: daemon.job(job)["state"]) == "completed"
        assert result.read_bytes() == expected
        nothing_left(daemon, site, job)
        assert [j["id"] for j in daemon.client.get("/v1/jobs").json()["jobs"]] == [job], "one submission, one job"
        each_tag_once(daemon, site, job)
        assert "job.fault" not in daemon.kinds(job)
    finally:
        daemon.stop()


NAP = 'echo begun >>"$1"; [ "$(wc -l <"$1")" -ge 2 ] || exec sleep 300; sleep 1'


@pytest.mark.parametrize("site", ["local"], indirect=True)
@pytest.mark.parametrize(("keep_place", "point"), [pytest.param(*case, marks=_marks(*case)) for case in RESUBMISSIONS])
def test_a_crash_on_the_way_to_the_next_walltime_loses_and_doubles_no_run(
    site: Site, keep_place: str, point: CrashPoint, tmp_path: Path
) -> None:
    """The first run sleeps until its time is over, the second ends soon."""
    queues = f'[queues.default]\nkeep_place = "{keep_place}"\n'
    daemon = Daemon(tmp_path, site.toml.replace("[queues.default]\n", queues), site.environment)
    operator = Operator(daemon)
    begun = tmp_path / "begun"
    try:
        daemon.start(EJBD_CRASH_AT=f"{point.value}:{RESUBMISSION[keep_place][point]}")
        learn(daemon, "nap", 60.0, [2.0 + 0.05 * at for at in range(12)])
        job = str(daemon.post_job("sh", "-c", NAP, "nap", str(begun), ranks=1, time="5:00", overrides=WISHES)["id"])
        operator.until(lambda: daemon.job(job)["state"] in FINAL, "it did not end")
        assert operator.deaths == [-signal.SIGKILL], "the daemon never came there"
        assert daemon.job(job)["state"] == "completed"
        assert begun.read_text() == "begun\n" * 2, "each attempt once"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
        again = [event["data"]["walltime_s"] for event in daemon.events(job) if event["kind"] == "job.again"]
        asked = daemon.explain(job)["walltimes"]["sequence_s"]
        ran = [s["walltime_s"] for s in daemon.job(job)["subjobs"] if s["role"] == "rigid"]
        assert ran == asked[:2] and again == asked[1:2]
        stood_by = daemon.kinds(job).count("subjob.adopted")
        # Where the start is forgotten, its time may be over before there is a daemon to see it.
        assert stood_by == (keep_place == "on") or point is CrashPoint.STANDBY_BEFORE_COMMIT, "and not submitted anew"
        assert "job.fault" not in daemon.kinds(job)
        known = daemon.client.get("/v1/history", params={"application": "nap"}).json()["applications"]
        assert [(one["runs"], one["completed"]) for one in known] == [(13, 13)], "and its run is known once"
    finally:
        daemon.stop()


@pytest.mark.parametrize("point", [pytest.param(point, marks=_marks("gap", point)) for point in GAPS])
def test_a_crash_on_the_way_into_a_gap_and_back_loses_and_doubles_no_run(point: CrashPoint, tmp_path: Path) -> None:
    """The run in the gap sleeps until its time is over; the one with the old request ends soon."""
    site = LocalSite(tmp_path)
    queues = site.toml.replace("[queues.default]\n", '[queues.default]\ngaps = "on"\n')
    daemon = Daemon(tmp_path, queues.replace("start_grace_s = 20", "start_grace_s = 200"), site.environment)
    operator = Operator(daemon)
    begun = tmp_path / "begun"
    try:
        site.start("most", 7, 400)  # of 8 processors; then somebody waits for all of them
        until(lambda: site.state("most") == "running", "the background did not start")
        site.start("all", 8)
        daemon.start(EJBD_CRASH_AT=f"{point.value}:{GAPS[point]}")
        learn(daemon, "nap", 60.0, [100.0 + 10.0 * at for at in range(20)])
        wishes = {key: value for key, value in WISHES.items() if key != "walltime"}
        job = str(daemon.post_job("sh", "-c", NAP, "nap", str(begun), ranks=1, time="20:00", overrides=wishes)["id"])
        operator.until(begun.exists, "it was not sent into the gap")
        operator.until(lambda: daemon.job(job)["state"] == "running", "its beginning was not seen")
        own, attempt = daemon.job(job)["subjobs"]
        assert (own["role"], own["state"], attempt["role"]) == ("standby", "pending", "rigid")
        asyncio.run(site.batch.update(ME, str(attempt["batch_id"]), walltime_s=1.0))
        operator.until(lambda: daemon.job(job)["state"] == "waiting", "it did not come back")
        site.end("most")
        site.end("all")
        operator.until(lambda: daemon.job(job)["state"] in FINAL, "it did not end")
        assert operator.deaths == [-signal.SIGKILL], "the daemon never came there"
        assert daemon.job(job)["state"] == "completed" and begun.read_text() == "begun\n" * 2, "each run once"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
        (gap,) = daemon.explain(job)["walltimes"]["gaps"]
        ran = [s["batch_id"] for s in daemon.job(job)["subjobs"] if s["role"] == "rigid"]
        assert gap["end"] == "timed out" and ran == [own["batch_id"], attempt["batch_id"]]
        assert "job.fault" not in daemon.kinds(job)
    finally:
        daemon.stop()
        site.close()


ALONE = """#!/bin/sh
echo begun >>begun
until [ -e enough ]; do sleep 0.2; done
srun sh -c 'echo rank $EJB_RANK'
exit 3
"""


@pytest.mark.parametrize(
    "over",
    [
        pytest.param(over, marks=_marks(id, CrashPoint.ALONE_BEFORE_COMMIT), id=id)
        for over, id in ((False, "still-runs"), (True, "is-over"))
    ],
)
def test_a_crash_on_the_way_to_take_up_what_began_alone_loses_and_doubles_no_run(tmp_path: Path, over: bool) -> None:
    """J0 starts while no daemon is there, its workers begin the job, and the next daemon dies as it finds that."""
    site = LocalSite(tmp_path, block=8, fillers=())
    daemon = Daemon(tmp_path, site.toml.replace("alone_after_s = 0", "alone_after_s = 1"), site.environment)
    operator = Operator(daemon)
    begun, enough, output = (tmp_path / name for name in ("begun", "enough", "output"))
    wishes = {"elastic": "on", "engine": "none", "output": str(output)}
    try:
        site.fill()
        daemon.start()
        job = str(daemon.post_job(ranks=2, time="5:00", script=ALONE, overrides=wishes)["id"])
        operator.until(lambda: daemon.job(job)["subjobs"][0]["state"] == "pending", "J0 does not wait")
        daemon.kill()
        site.unblock()
        until(begun.exists, "the job did not begin by itself")
        if over:
            enough.touch()
            until(lambda: not any(one.live for one in site.jobs()), "the job did not end by itself")
        daemon.start(EJBD_CRASH_AT=CrashPoint.ALONE_BEFORE_COMMIT)
        until(daemon.ended, "the daemon never came there")
        operator.until(lambda: "job.alone" in daemon.kinds(job), "it was not taken up")
        assert operator.deaths == [-signal.SIGKILL]
        enough.touch()
        operator.until(lambda: daemon.job(job)["state"] in FINAL, "it did not end")
        row = daemon.job(job)
        assert (row["state"], row["exit_code"]) == ("failed", 3), row
        assert begun.read_text() == "begun\n", "its script began once"
        assert sorted(output.read_text().split("\n")) == ["", "rank 0", "rank 1"]
        assert daemon.kinds(job).count("job.alone") == 1 and len(row["subjobs"]) == 1
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
        assert "job.fault" not in daemon.kinds(job)
    finally:
        daemon.stop()
        site.close()


WISHES = {"elastic": "off", "engine": "none", "walltime": "auto", "rerunnable": True, "app": "nap"}


def submitted(daemon: Daemon, site: Site, result: Path) -> tuple[str, bool]:
    """The job's id, and whether this call has made it. Always the same Idempotency-Key and body."""
    answer = daemon.post_job(
        *daemon.heat(STEPS, result, pace="40ms"),
        ranks=4,
        time="2:00",
        overrides=dict(site.layout),
        key="the-one-submission",
    )
    return str(answer["id"]), bool(answer["created"])


def test_every_crash_point_stands_in_one_place() -> None:
    """Each member is in exactly one `reach(...)` of the manager, and every `reach` names a member."""
    reached: Counter[str] = Counter()
    for file in sorted((ROOT / "ejbd").rglob("*.py")):
        # By its text: trees of all files at once trip over a defect of CPython 3.11 (gh-106905) once in a while.
        calls = re.findall(r"(?<![\w.])(?<!def )reach\(([^)]*)\)", file.read_text())
        for call in calls:
            assert call.startswith("CrashPoint."), f"{file}: {call}"
            reached[call.removeprefix("CrashPoint.")] += 1
    assert reached == Counter({point.name: 1 for point in CrashPoint})
    on_the_way = (
        {point for _, point in RESUBMISSIONS} | set(GAPS) | IN_THE_FAKE_WORLD | {CrashPoint.ALONE_BEFORE_COMMIT}
    )
    assert set(MOMENTS) | on_the_way == set(CrashPoint) and all(MOMENTS.values())
    everywhere = {
        *CASES,
        *RESUBMISSIONS,
        *(("gap", point) for point in GAPS),
        ("still-runs", CrashPoint.ALONE_BEFORE_COMMIT),
    }
    assert set(NEEDS_A_PROCESS) <= everywhere, "each of them is run"
    # ... and the others, with every point, in the fake world.
    assert {point for points in LIVES.values() for point in points} == set(CrashPoint)
