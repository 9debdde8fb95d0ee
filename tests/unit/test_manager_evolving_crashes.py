"""The daemon dies while an evolving job grows and shrinks: another one goes on, and nothing is lost or doubled.

At every crash point that its life comes to, with all widths queued ahead and under best effort.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from ejbd.manager.crashpoints import CrashPoint
from ejbd.store.store import Store
from tests.fakes.crashes import Operator, Trap, caught_by, nothing_lost_or_doubled
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_crashes import Life, new_store, submitted, times

pytestmark = pytest.mark.database

PROFILE = {"steps": [[30, 4], [40, 12], [200, 4]]}
LONG = {"steps": [[300, 4], [50, 12]]}
LATE_S = 20


async def grows_and_shrinks(
    folder: Path, store: Store, trap: Trap, best_effort: bool = False, holds: bool = False, replaced: bool = False
) -> None:
    """4 processors, then 12, then 4, and the end. J0 comes late, so that the begin of the other is changed, too.

    `holds`: the batch system holds what begins later, as PBS. `replaced`: the wide step, and the last one, are asked
    for while it runs.
    """
    live = LiveWorld(folder, store, omax=4, start_up_s=0.0)
    live.batch.free = 16
    live.batch.holds_begins = holds
    operator = Operator(live, trap)
    await operator.poll()
    profile = (LONG if replaced else PROFILE) | ({"best_effort": True} if best_effort else {})
    job = await submitted(operator, processes=12, walltime_s=400.0, elastic=True, evolving=profile)

    def runs_on(processors: int) -> bool:
        epochs = live.epochs(job)
        return bool(epochs) and (epochs[-1].state, epochs[-1].processors) == ("running", processors)

    await operator.poll()
    await operator.poll(LATE_S)
    for processors in (4, 12, 4):
        await operator.until(lambda: runs_on(processors), lambda tag: tag.startswith(f"ejb-{job}."))  # noqa: B023
        if replaced and processors == 4 and len(live.epochs(job)) == 1:
            await operator.poll(6)
            await operator.ask(lambda: live.manager.evolve(job, "now:12,+40s:4", False, "ada"))
    await operator.ranks_end(live.epochs(job)[-1].number)
    await operator.until(lambda: live.job(job).state == "completed")
    assert [s.processors for s in live.subjobs(job)] == [4, 8], "each block once"
    assert [epoch.processors for epoch in live.epochs(job)] == [4, 12, 4]
    assert live.job(job).incarnation == 1
    assert len(live.launches(job)) == 1
    await nothing_lost_or_doubled(operator, job)


best_effort = partial(grows_and_shrinks, best_effort=True)
held = partial(grows_and_shrinks, holds=True)
replaced = partial(grows_and_shrinks, replaced=True)
REACHED = (
    CrashPoint.SUBMIT_BEFORE_BEGIN,
    CrashPoint.SUBMIT_AFTER_BEGIN,
    CrashPoint.SUBMIT_AFTER_CALL,
    CrashPoint.SUBMIT_AFTER_RECORD,
    CrashPoint.CANCEL_BEFORE_BEGIN,
    CrashPoint.CANCEL_AFTER_BEGIN,
    CrashPoint.CANCEL_AFTER_CALL,
    CrashPoint.CANCEL_AFTER_RECORD,
    CrashPoint.TICK_BEFORE_COMMIT,
    CrashPoint.TICK_AFTER_COMMIT,
    CrashPoint.BEGIN_BEFORE_CALL,
    CrashPoint.BEGIN_AFTER_CALL,
    CrashPoint.END_AFTER_ASKING,
    CrashPoint.OPERATION_AFTER_LEASE,
    CrashPoint.REPORT_BEFORE_COMMIT,
    CrashPoint.REPORT_AFTER_COMMIT,
    CrashPoint.JOB_AFTER_COMMIT,
)
BESTS = (CrashPoint.SUBMIT_AFTER_CALL, CrashPoint.TICK_AFTER_COMMIT, CrashPoint.REPORT_AFTER_COMMIT)
HELD = (CrashPoint.BEGIN_BEFORE_CALL, CrashPoint.BEGIN_AFTER_CALL, CrashPoint.TICK_AFTER_COMMIT)
REPLACED = (CrashPoint.CANCEL_AFTER_CALL, CrashPoint.SUBMIT_AFTER_CALL, CrashPoint.TICK_AFTER_COMMIT)
CASES = [
    *((grows_and_shrinks, point) for point in REACHED),
    *((best_effort, point) for point in BESTS),
    *((held, point) for point in HELD),
    *((replaced, point) for point in REPLACED),
]


@pytest.mark.xdist_group("crashes-evolving")  # one process counts how often an undisturbed life comes to its points
@pytest.mark.sampled(12)
@pytest.mark.parametrize(("life", "point"), CASES)
async def test_a_death_at_any_time_loses_and_doubles_nothing(
    life: Life, point: CrashPoint, tmp_path: Path, sqlite_with_tables: Path
) -> None:
    often = (await times(life, tmp_path, sqlite_with_tables))[point.value]
    assert often, f"it never comes to {point.value}"
    some = [-(-often // 2)]  # of increments, not of J0 alone
    for nth in some if os.environ.get("EJB_TEST_CRASHES") != "all" else range(1, often + 1):
        folder = tmp_path / str(nth)
        with new_store(folder, sqlite_with_tables) as store, caught_by(trap := Trap(point, nth)):
            try:
                await life(folder, store, trap)
            except Exception as error:
                raise AssertionError(f"killed at {point.value} for the {nth}. time: {error}") from error
        assert trap.deaths == 1
