"""The daemon dies at every crash point, at every time that a life of a job comes there, and another one goes on.

In the fake world, so that a death takes milliseconds and all of them are tried. What only a real process can show (what
is on disk after SIGKILL, a real batch system's answers, a worker's own) is in tests/acceptance/test_crash_matrix.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.config import Elasticity
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.crashpoints import CrashPoint
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.manager.submission.flows import Asked
from ejbd.store.models import Epoch, Job, Workflow, WorkflowRun
from ejbd.store.store import Store
from tests.fakes.crashes import Counting, Operator, Trap, caught_by, nothing_lost_or_doubled
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_gaps import crowded
from tests.unit.test_manager_speculating import OWN_S, learn, past

pytestmark = pytest.mark.database

Life = Callable[[Path, Store, Trap], Awaitable[None]]


SAME_KEY = "the-one-submission"  # of every user: a key is its user's own


async def submitted(operator: Operator, user: str = "ada", **spec: object) -> str:
    """A job of a user, asked for until it is answered, always with the same key."""
    live = operator.live
    given = {
        "name": "heat",
        "kind": JobKind.COMMAND,
        "argv": ("./heat",),
        "processes": 16,
        "walltime_s": 100.0,
        "cwd": str(live.folder),
        "output": "ejb-%j.out",
        "engine": "application",
    }
    reading = Reading(JobSpec(**(given | spec)))  # type: ignore[arg-type]
    return (await operator.ask(lambda: live.manager.submit(reading, user, SAME_KEY, "hash"))).id


ONCE_AND_TWICE = {
    **dict.fromkeys(("job.received", "job.waiting", "job.running", "job.ending", "job.completed"), 1),
    **dict.fromkeys(("lead.appointed", "launch.asked", "decision.start", "decision.expand", "launch.ended"), 1),
    **dict.fromkeys(("epoch.stopping", "epoch.stopped", "epoch.ended"), 1),
    **dict.fromkeys(("epoch.launching", "epoch.running", "worker.registered"), 2),
    "subjob.planned": 3,
}

# -- lives: each comes to an end with nothing lost or doubled, wherever the daemon dies -------------------------------


async def grows_and_ends(folder: Path, store: Store, trap: Trap, waited_for: bool = False, **spec: Any) -> None:
    """16 ranks begin on 4 processors, grow to 8, and end; J0 waits all the while, and is cancelled at the end."""
    live = LiveWorld(folder, store, lambda_s=5.0)
    operator = Operator(live, trap)
    job = await submitted(operator, **spec)
    first, second = f"ejb-{job}.1", f"ejb-{job}.2"

    def runs_on(processors: int) -> bool:
        epochs = live.epochs(job)
        return bool(epochs) and (epochs[-1].state, epochs[-1].processors) == ("running", processors)

    await operator.until(lambda: runs_on(4), lambda tag: tag == first)
    await operator.until(lambda: runs_on(8), lambda tag: tag in (first, second))
    live.batch.free = 0
    if waited_for:
        live.batch.awaited.add(live.batch.of(f"ejb-{job}.0").id)
    assert live.epochs(job)[-1].restart_from == live.epochs(job)[-2].number, "nothing is computed twice"
    await operator.ranks_end(live.epochs(job)[-1].number)
    await operator.until(lambda: live.job(job).state == "completed")
    assert live.job(job).exit_code == 0 and len(live.launches(job)) == 1 and live.job(job).incarnation == 1
    told = Counter(live.kinds(job))
    assert {kind: told[kind] for kind in ONCE_AND_TWICE} == ONCE_AND_TWICE, "each step once, as without a death"
    j0 = f"ejb-{job}.0"
    if waited_for:
        await operator.until(lambda: live.batch.of(j0).processors == 1)
        end = live.manager.world.spool.end_file(job, f"{job}.0")
        assert end.read_text() == "0\n" and live.batch.of(j0).state is BatchState.PENDING
        live.batch.start(j0)
        await operator.poll()
        live.batch.end(j0)
    await nothing_lost_or_doubled(operator, job)
    assert live.batch.of(j0).state is (BatchState.COMPLETED if waited_for else BatchState.CANCELLED)


async def grows_and_is_waited_for(folder: Path, store: Store, trap: Trap) -> None:
    """Another job waits for its end, so that J0 ends as it did."""
    await grows_and_ends(folder, store, trap, waited_for=True)


async def grows_by_its_profile(folder: Path, store: Store, trap: Trap) -> None:
    """The same of an application that goes on with another number of ranks, each time from the state that it has."""
    await grows_and_ends(folder, store, trap, argv=("./ejb-own-heat",), engine="auto")
    told = store.read_sync(lambda s: [(e.size, e.processors, e.restart_from) for e in s.scalars(select(Epoch))])
    assert told == [(4, 4, None), (8, 8, 1)]


async def grows_beyond_its_ranks(folder: Path, store: Store, trap: Trap) -> None:
    """On J0 it takes eight more than it asked for while nothing waits, and gives them back to the first that does."""
    live = LiveWorld(folder, store, lambda_s=5.0)
    operator = Operator(live, trap)
    live.batch.free = 0
    own: dict[str, Any] = {"argv": ("./ejb-own-heat",), "engine": "auto", "widths": "any", "ntasks_max": 24}
    job = await submitted(operator, walltime_s=1000.0, **own)
    j0, more = f"ejb-{job}.0", f"ejb-{job}.1"

    def runs_with(ranks: int) -> bool:
        epochs = live.epochs(job)
        return bool(epochs) and (epochs[-1].state, epochs[-1].size) == ("running", ranks)

    await operator.until(lambda: runs_with(16), lambda tag: tag == j0)
    live.batch.free = 10
    await operator.until(lambda: runs_with(24), lambda tag: tag == more)
    live.batch.free = 2
    live.batch.others = [BatchJobView("900", "other", "eve", "batch", BatchState.PENDING, 8, 600.0)]
    await operator.until(lambda: runs_with(16))
    told = [(epoch.state, epoch.size, epoch.restart_from) for epoch in live.epochs(job)]
    assert told == [("stopped", 16, None), ("stopped", 24, 1), ("running", 16, 2)], "each state once, and none is lost"
    await operator.ranks_end(3)
    await operator.until(lambda: live.job(job).state == "completed")
    assert live.job(job).exit_code == 0 and live.job(job).incarnation == 1
    live.batch.others = []
    await nothing_lost_or_doubled(operator, job)


async def is_folded_and_unfolded(folder: Path, store: Store, trap: Trap) -> None:
    """A pool leaves it half of its processors for a while. It is asked once each way, and is never placed again."""
    live = LiveWorld(folder, store, policy="fcfs-malleable")
    operator = Operator(live, trap)
    live.batch.free = 0
    job = await submitted(operator, walltime_s=1000.0)
    await operator.until(lambda: live.job(job).state == "running", lambda tag: tag == f"ejb-{job}.0")
    await operator.until(lambda: live.epochs(job)[-1].state == "running")
    for processors in (8, 16):
        seen = live.batch.of(f"ejb-{job}.0")
        numbers = tuple(range(processors))
        live.batch.jobs[seen.id] = replace(seen, share=(("n1", processors),), places=(("n1", numbers),))
        for _ in range(20):  # what was leased to a worker that did not get it is leased again
            await operator.turn()
        assert live.epochs(job)[-1].processors == processors
    told = [(e["was"], e["processors"]) for kind, e in live.events(job) if kind == "epoch.resized"]
    assert told == [(16, 8), (8, 16)] and len(live.epochs(job)) == 1
    await operator.ranks_end(1)
    await operator.until(lambda: live.job(job).state == "completed")
    await nothing_lost_or_doubled(operator, job)


async def does_without_j0(folder: Path, store: Store, trap: Trap) -> None:
    """J0 starts when the job is nearly done elsewhere: it is put back into the queue, and cancelled at the end."""
    live = LiveWorld(folder, store)
    operator = Operator(live, trap)
    live.batch.free = 8
    job = await submitted(operator)
    j0, first = f"ejb-{job}.0", f"ejb-{job}.1"
    await operator.until(lambda: live.job(job).state == "running", lambda tag: tag == first)
    live.batch.free = 0
    await operator.poll(196)
    live.batch.start(j0)
    await operator.until(lambda: live.batch.of(j0).state is BatchState.HELD)
    await operator.turn()
    await operator.ranks_end(1)
    await operator.until(lambda: live.job(job).state == "completed")
    await nothing_lost_or_doubled(operator, job)
    assert live.batch.of(j0).state is BatchState.CANCELLED and live.job(job).incarnation == 1


async def is_given_more_time(folder: Path, store: Store, trap: Trap, keep_place: str = "off") -> None:
    """The time of its first run is over; the second, with the next walltime, ends well."""
    learn(store)
    live = LiveWorld(folder, store, elasticity=Elasticity.OFF, keep_place=keep_place)
    operator = Operator(live, trap)
    job = await submitted(operator, walltime_s=OWN_S, learned=True, rerunnable=True, app="heat")
    first, second = f"ejb-{job}.0", f"ejb-{job}.1"
    await operator.until(lambda: operator.has_begun(first), lambda tag: tag == first)
    await operator.turn()
    await operator.turn()
    live.clock.now += live.batch.of(first).walltime_s or 0.0
    live.batch.end(first, BatchState.TIMEOUT, None)
    await operator.until(lambda: operator.has_begun(second), lambda tag: tag == second)
    await operator.turn()
    live.clock.now += 60
    live.batch.end(second)
    await operator.until(lambda: live.job(job).state == "completed")
    await nothing_lost_or_doubled(operator, job)
    ran = [one for one in live.batch.jobs.values() if one.start_s is not None]
    sequence = (live.job(job).walltimes or {})["sequence_s"]
    assert [one.walltime_s for one in ran] == sequence[:2], "each run once"
    assert live.kinds(job).count("job.again") == 1
    assert ("subjob.adopted" in live.kinds(job)) == (keep_place == "on")
    assert [run.outcome for run in past(store)] == ["completed"], "and known once"


async def keeps_its_place(folder: Path, store: Store, trap: Trap) -> None:
    """What comes with the next walltime stands by, and is let begin by the time-out."""
    await is_given_more_time(folder, store, trap, keep_place="on")


async def tries_a_gap(folder: Path, store: Store, trap: Trap) -> None:
    """It is sent into a gap, its time there is over, and it runs where it has waited all the while."""
    live = crowded(folder, store)
    operator = Operator(live, trap)
    job = await submitted(operator, processes=4, walltime_s=OWN_S, rerunnable=True, app="heat")
    own, attempt = f"ejb-{job}.0", f"ejb-{job}.1"
    await operator.until(lambda: any(one.name == attempt for one in live.batch.live()))
    live.batch.start(attempt)
    live.batch.free = 0
    await operator.turn()
    assert live.batch.of(own).blocked, "it would begin twice"
    live.clock.now += live.batch.of(attempt).walltime_s or 0.0
    live.batch.end(attempt, BatchState.TIMEOUT, None)
    live.batch.others.clear()
    await operator.until(lambda: operator.has_begun(own), lambda tag: tag == own)
    await operator.turn()
    live.clock.now += 60
    live.batch.end(own)
    await operator.until(lambda: live.job(job).state == "completed")
    await nothing_lost_or_doubled(operator, job)
    assert [run.outcome for run in past(store)] == ["completed"]
    ran = [one.name for one in live.batch.jobs.values() if one.start_s is not None]
    assert sorted(ran) == [own, attempt], "each run once"


async def has_begun_alone(folder: Path, store: Store, trap: Trap, is_over: bool = False) -> None:
    """Its J0's workers have begun it while no daemon was there; the next one takes it up, before or after its end."""
    live = LiveWorld(folder, store)
    operator = Operator(live, trap)
    live.batch.free = 0
    job = await submitted(operator, engine="none")
    j0 = f"ejb-{job}.0"
    await operator.until(lambda: any(one.name == j0 for one in live.batch.live()))
    live.batch.start(j0)
    live.clock.now += 15
    alone = live.manager.world.spool.subjob_dir(job, f"{job}.0") / "alone"
    order = json.loads(json.loads((alone / "order.json").read_text())["order"])
    (alone / "own").write_text(json.dumps({"begun": {"order": order["id"], "at_s": live.clock.now, "node": "n1"}}))
    os.link(alone / "own", alone / "claim.json")
    live.clock.now += 20
    if is_over:
        live.batch.end(j0, BatchState.FAILED, 3)
    await live.restart()
    if not is_over:
        await operator.until(lambda: live.job(job).state == "running")
        live.batch.end(j0, BatchState.FAILED, 3)
    await operator.until(lambda: live.job(job).state == "failed")
    await nothing_lost_or_doubled(operator, job)
    assert live.job(job).exit_code == 3 and live.kinds(job).count("job.alone") == 1 and len(live.subjobs(job)) == 1


async def has_begun_and_ended_alone(folder: Path, store: Store, trap: Trap) -> None:
    await has_begun_alone(folder, store, trap, is_over=True)


PLAN = """\
workflow:
  stages:
    wide: {command: wide, tasks: 8, walltime: 5, retries: 1}
    narrow: {command: narrow, tasks: 2, walltime: 5}
"""


async def workflow(folder: Path, store: Store, trap: Trap) -> None:
    """The first stage fails once, the second ends well: three jobs, each one batch job."""
    live = LiveWorld(folder, store, elasticity=Elasticity.OFF)
    operator = Operator(live, trap)
    asked = Asked(PLAN, "plan.yaml", {"cwd": str(folder)})
    id, _ = await operator.ask(lambda: live.manager.submit_workflow(asked, "ada", "the-one-plan"))

    def row() -> Workflow:
        return store.read_sync(lambda s: s.scalars(select(Workflow).where(Workflow.id == id)).one())

    for code in (1, 0, 0):
        await operator.until(lambda: any(one.state is BatchState.PENDING for one in live.batch.live()))
        (tag,) = [one.name for one in live.batch.live()]
        live.batch.start(tag)
        await operator.poll()
        live.clock.now += 60
        live.batch.end(tag, BatchState.COMPLETED if code == 0 else BatchState.FAILED, code)
        await operator.poll()
    await operator.until(lambda: row().state == "completed")
    for _ in range(2):
        await operator.poll(40)
    runs = store.read_sync(lambda s: list(s.scalars(select(WorkflowRun).order_by(WorkflowRun.submit_s))))
    told = [(run.stage, run.attempt, run.outcome) for run in runs]
    assert told == [("wide", 1, "failed"), ("wide", 2, "completed"), ("narrow", 1, "completed")]
    jobs = store.read_sync(lambda s: set(s.scalars(select(Job.id))))
    assert {run.job_id for run in runs} == jobs and len(live.batch.jobs) == len(jobs) == 3, "each once"
    assert len(store.read_sync(lambda s: list(s.scalars(select(Workflow.id))))) == 1


SUBMISSION = (
    CrashPoint.JOB_AFTER_COMMIT,
    CrashPoint.SUBMIT_BEFORE_BEGIN,
    CrashPoint.SUBMIT_AFTER_BEGIN,
    CrashPoint.SUBMIT_AFTER_CALL,
    CrashPoint.SUBMIT_AFTER_RECORD,
)
CANCELLATION = (
    CrashPoint.CANCEL_BEFORE_BEGIN,
    CrashPoint.CANCEL_AFTER_BEGIN,
    CrashPoint.CANCEL_AFTER_CALL,
    CrashPoint.CANCEL_AFTER_RECORD,
)
TICK = (CrashPoint.TICK_BEFORE_COMMIT, CrashPoint.TICK_AFTER_COMMIT)
WORKER = (CrashPoint.OPERATION_AFTER_LEASE, CrashPoint.REPORT_BEFORE_COMMIT, CrashPoint.REPORT_AFTER_COMMIT)
BEGINNING = (CrashPoint.BEGIN_BEFORE_CALL, CrashPoint.BEGIN_AFTER_CALL)
# What each life is killed at; that it comes there is looked at.
LIVES: dict[Life, tuple[CrashPoint, ...]] = {
    grows_and_ends: (*SUBMISSION, *CANCELLATION, *TICK, *WORKER, CrashPoint.END_AFTER_ASKING),
    grows_by_its_profile: (CrashPoint.JOB_AFTER_COMMIT, CrashPoint.SUBMIT_AFTER_CALL, *TICK, *WORKER),
    grows_beyond_its_ranks: (CrashPoint.SUBMIT_AFTER_CALL, *TICK, *WORKER),
    grows_and_is_waited_for: (CrashPoint.END_AFTER_ASKING, CrashPoint.END_AFTER_CALL),
    is_folded_and_unfolded: (CrashPoint.RESIZE_AFTER_LEASE, CrashPoint.REPORT_BEFORE_COMMIT, *TICK),
    does_without_j0: (CrashPoint.ASIDE_AFTER_CALL, CrashPoint.CANCEL_AFTER_CALL),
    is_given_more_time: (*SUBMISSION, CrashPoint.AGAIN_BEFORE_COMMIT),
    keeps_its_place: (*SUBMISSION, *TICK, *BEGINNING, CrashPoint.STANDBY_BEFORE_COMMIT, CrashPoint.AGAIN_BEFORE_COMMIT),
    tries_a_gap: (*SUBMISSION, *BEGINNING, CrashPoint.STAY_AFTER_CALL, CrashPoint.TICK_AFTER_COMMIT),
    has_begun_alone: (CrashPoint.ALONE_BEFORE_COMMIT, CrashPoint.TICK_AFTER_COMMIT),
    has_begun_and_ended_alone: (CrashPoint.ALONE_BEFORE_COMMIT,),
    workflow: (
        CrashPoint.WORKFLOW_AFTER_COMMIT,
        CrashPoint.STAGE_BEFORE_COMMIT,
        CrashPoint.STAGE_AFTER_COMMIT,
        CrashPoint.STAGE_AFTER_JOB,
        CrashPoint.JOB_AFTER_COMMIT,
        CrashPoint.SUBMIT_AFTER_CALL,
        CrashPoint.TICK_AFTER_COMMIT,
    ),
}
# A life in one process: each would count by itself how often an undisturbed one comes to its points.
CASES = [
    pytest.param(
        life, point, id=f"{life.__name__}-{point.value}", marks=pytest.mark.xdist_group(f"crashes-{life.__name__}")
    )
    for life in LIVES
    for point in LIVES[life]
]
# Looks and reports come again and again: by the fourth the job runs. EJB_TEST_CRASHES=all: each of them.
TIME = 4
_TIMES: dict[Life, Counter[str]] = {}


@contextmanager
def new_store(folder: Path, tables: Path) -> Iterator[Store]:
    folder.mkdir()
    shutil.copyfile(tables, folder / "ejbd.sqlite")
    store = Store(f"sqlite:///{folder / 'ejbd.sqlite'}")
    yield store
    store.close()


async def times(life: Life, folder: Path, tables: Path) -> Counter[str]:
    """How often an undisturbed life comes to each point."""
    if life not in _TIMES:
        with new_store(folder / "undisturbed", tables) as store, caught_by(counting := Counting()):
            await life(folder / "undisturbed", store, counting)
        _TIMES[life] = counting.times
    return _TIMES[life]


@pytest.mark.sampled(12, by=("point",))
@pytest.mark.parametrize(("life", "point"), CASES)
async def test_a_death_at_any_time_loses_and_doubles_nothing(
    life: Life, point: CrashPoint, tmp_path: Path, sqlite_with_tables: Path
) -> None:
    often = (await times(life, tmp_path, sqlite_with_tables))[point.value]
    assert often, f"it never comes to {point.value}"
    some = [TIME if often >= TIME else 1]
    for nth in some if os.environ.get("EJB_TEST_CRASHES") != "all" else range(1, often + 1):
        folder = tmp_path / str(nth)
        with new_store(folder, sqlite_with_tables) as store, caught_by(trap := Trap(point, nth)):
            try:
                await life(folder, store, trap)
            except Exception as error:
                raise AssertionError(f"killed at {point.value} for the {nth}. time: {error}") from error
        assert trap.deaths == 1


def test_no_crash_point_is_left_out() -> None:
    assert {point for points in LIVES.values() for point in points} == set(CrashPoint)
