"""The daemon dies while a chain goes from one place holder to the next: another one goes on, and nothing is doubled."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.manager.crashpoints import CrashPoint
from ejbd.store.store import Store
from tests.fakes.crashes import Operator, Trap, caught_by, nothing_lost_or_doubled
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_crashes import new_store, submitted, times

pytestmark = pytest.mark.database
LIMIT_S = 60.0


async def goes_on_once(folder: Path, store: Store, trap: Trap) -> None:
    """Two place holders: the second is queued as the first begins, and let begin when the work is saved."""
    live = LiveWorld(folder, store, start_up_s=0.0)
    live.batch.free = 0
    observe = live.batch.observe

    async def limited() -> Any:
        view = await observe()
        return replace(view, queues=tuple(replace(queue, max_walltime_s=LIMIT_S) for queue in view.queues))

    live.batch.observe = limited  # type: ignore[method-assign]
    operator = Operator(live, trap)
    await operator.poll()
    job = await submitted(operator, processes=4, walltime_s=80.0, elastic=True)

    def runs_on(subjob: str) -> bool:
        epochs = live.epochs(job)
        return bool(epochs) and epochs[-1].state == "running" and epochs[-1].members == [subjob]

    for number in range(2):
        subjob = f"{job}.{number}"
        await operator.until(lambda: runs_on(subjob), lambda tag: tag.startswith(f"ejb-{job}."))  # noqa: B023
    assert live.epochs(job)[-1].restart_from == 1
    await operator.ranks_end(live.epochs(job)[-1].number)
    await operator.until(lambda: live.job(job).state == "completed")
    assert len(live.subjobs(job)) == 2, "one place holder was queued ahead, and none beside it"
    await nothing_lost_or_doubled(operator, job)


REACHED = (
    CrashPoint.STANDBY_BEFORE_COMMIT,
    CrashPoint.SUBMIT_AFTER_BEGIN,
    CrashPoint.SUBMIT_AFTER_CALL,
    CrashPoint.BEGIN_BEFORE_CALL,
    CrashPoint.BEGIN_AFTER_CALL,
    CrashPoint.CANCEL_AFTER_CALL,
    CrashPoint.TICK_BEFORE_COMMIT,
    CrashPoint.TICK_AFTER_COMMIT,
    CrashPoint.REPORT_AFTER_COMMIT,
)


@pytest.mark.sampled(6, first=1)
@pytest.mark.parametrize("point", REACHED)
async def test_a_death_at_any_time_loses_and_doubles_nothing(
    point: CrashPoint, tmp_path: Path, sqlite_with_tables: Path
) -> None:
    often = (await times(goes_on_once, tmp_path, sqlite_with_tables))[point.value]
    assert often, f"it never comes to {point.value}"
    for nth in [often] if os.environ.get("EJB_TEST_CRASHES") != "all" else range(1, often + 1):
        folder = tmp_path / str(nth)
        with new_store(folder, sqlite_with_tables) as store, caught_by(trap := Trap(point, nth)):
            try:
                await goes_on_once(folder, store, trap)
            except Exception as error:
                raise AssertionError(f"killed at {point.value} for the {nth}. time: {error}") from error
        assert trap.deaths == 1
