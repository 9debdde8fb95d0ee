"""The daemon dies while an evolving job grows and shrinks: another one goes on, and nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from ejbd.manager.crashpoints import CrashPoint
from ejbd.store.store import Store
from tests.fakes.crashes import Operator, Trap, caught_by, nothing_lost_or_doubled
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_crashes import new_store, submitted, times

pytestmark = pytest.mark.database

PROFILE = {"steps": [[30, 4], [40, 12], [200, 4]]}
POINTS = (CrashPoint.SUBMIT_AFTER_CALL, CrashPoint.TICK_AFTER_COMMIT, CrashPoint.REPORT_AFTER_COMMIT)


async def grows_and_shrinks(folder: Path, store: Store, trap: Trap) -> None:
    """4 processors, then 12, then 4, and the end."""
    live = LiveWorld(folder, store, omax=4)
    operator = Operator(live, trap)
    job = await submitted(operator, processes=12, walltime_s=400.0, elastic=True, evolving=PROFILE)
    tags = {f"ejb-{job}.0", f"ejb-{job}.1"}

    def runs_on(processors: int) -> bool:
        epochs = live.epochs(job)
        return bool(epochs) and (epochs[-1].state, epochs[-1].processors) == ("running", processors)

    for processors in (4, 12, 4):
        await operator.until(lambda: runs_on(processors), lambda tag: tag in tags)  # noqa: B023
    await operator.ranks_end(live.epochs(job)[-1].number)
    await operator.until(lambda: live.job(job).state == "completed")
    assert [s.processors for s in live.subjobs(job)] == [4, 8], "each block once"
    assert [epoch.processors for epoch in live.epochs(job)] == [4, 12, 4]
    assert live.job(job).incarnation == 1
    assert len(live.launches(job)) == 1
    await nothing_lost_or_doubled(operator, job)


@pytest.mark.parametrize("point", POINTS)
async def test_a_death_at_any_time_loses_and_doubles_nothing(
    point: CrashPoint, tmp_path: Path, sqlite_with_tables: Path
) -> None:
    often = (await times(grows_and_shrinks, tmp_path, sqlite_with_tables))[point.value]
    assert often, f"it never comes to {point.value}"
    for nth in {min(2, often), -(-often // 2)}:  # of increments, not of J0 alone
        folder = tmp_path / str(nth)
        with new_store(folder, sqlite_with_tables) as store, caught_by(trap := Trap(point, nth)):
            await grows_and_shrinks(folder, store, trap)
        assert trap.deaths == 1
