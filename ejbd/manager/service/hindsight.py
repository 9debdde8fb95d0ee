"""Days replayed, one after the other, for what other jobs gained and lost by elastic ones.

A day is replayed while it lasts, and until a day after it: then the jobs that started on it have mostly ended, and how
long they ran is known. From then on its rows stay as they are. Replays run beside the event loop and the writer. They
rest twenty times as long as the last ones took, and half an hour at least.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog
from sqlalchemy import delete
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem, TellsRules
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError, EjbError
from ejbd.manager.facts.past.hindsight import DAY_S, NOTHING, Day, Known, read_day
from ejbd.manager.service.replaying import replay_beside
from ejbd.store.models import OtherDay, OtherReplay
from ejbd.store.store import Store

log = structlog.get_logger(__name__)

SETTLE_S = 60.0  # from the daemon's start: by then polls have looked
EVERY_S = 1800.0
SHARE = 20.0
AGAIN_S = 6 * 3600.0  # between two replays of a day that is over
LONGEST_REASON = 500  # characters
LOOKS_BACK = 2  # days that a replay needs rows of, beside the day itself


class Noted(Protocol):
    """What polls note of batch jobs beside their rows."""

    @property
    def priorities(self) -> Mapping[str, int]:
        """Of those that were seen to wait."""

    @property
    def charges(self) -> Mapping[str, tuple[str, str]]:
        """Account and QOS, of EJB's own."""


class Hindsight:
    """`kept_days`: for how long other jobs are kept; 0: nothing is reckoned. `others`: what polls noted of jobs beside
    their rows. `batch`: what is asked for the limits of the site, where it tells them."""

    def __init__(
        self,
        store: Store,
        kept_days: float,
        clock: Callable[[], float],
        view: Callable[[], ClusterView | None],
        others: Noted | None,
        batch: BatchSystem,
    ) -> None:
        self._store, self._kept_days, self._clock, self._view = store, kept_days, clock, view
        self._others, self._batch = others, batch

    async def run(self) -> None:
        """Replay what is due, again and again, until this is cancelled."""
        took_s = 0.0
        while self._kept_days > 0:
            await asyncio.sleep(max(EVERY_S, SHARE * took_s) if took_s else SETTLE_S)
            begun = time.monotonic()
            try:
                await self.look()
            except EjbError as error:
                log.error("hindsight-failed", error=error.sentence())
            except Exception as error:
                log.error("timer-fault", what="hindsight", error=repr(error), exc_info=error)
            took_s = time.monotonic() - begun

    async def look(self) -> int:
        """Replay every day that is due; how many were."""
        view, now = self._view(), self._clock()
        if view is None or view.blind:
            return 0
        today = math.floor(now / DAY_S) * DAY_S
        back = max(0, math.floor(self._kept_days) - LOOKS_BACK)
        days = [today - DAY_S * at for at in range(back, -1, -1)]
        due = await self._store.read(lambda session: [day for day in days if _is_due(session, day, now)])
        known = await self._known() if due else NOTHING
        for day_s in due:
            day = await self._store.read(lambda session, day_s=day_s: read_day(session, view, day_s, now, known))  # type: ignore[misc]
            rows = await replay_beside(day)
            await self._store.write(lambda session, day=day, rows=rows: _keep(session, day, rows, now))  # type: ignore[misc]
        return len(due)

    async def _known(self) -> Known:
        """Copies: polls go on meanwhile."""
        priorities = dict(self._others.priorities) if self._others is not None else {}
        charges = dict(self._others.charges) if self._others is not None else {}
        if not isinstance(self._batch, TellsRules):
            return Known(priorities, charges, untold=f"{self._batch.name} does not tell them")
        try:
            return Known(priorities, charges, await self._batch.site_rules())
        except BatchError as error:
            return Known(priorities, charges, untold=error.sentence())


def _is_due(session: Session, day_s: float, now: float) -> bool:
    done = session.get(OtherReplay, day_s)
    if done is None or now < day_s + DAY_S:
        return True
    final_s = day_s + 2 * DAY_S
    return done.as_of_s < day_s + DAY_S or (done.as_of_s < final_s and now >= min(final_s, done.as_of_s + AGAIN_S))


def _keep(session: Session, day: Day, rows: list[dict[str, Any]], now: float) -> None:
    session.execute(delete(OtherDay).where(OtherDay.day_s == day.day_s))
    session.add_all(OtherDay(**row) for row in rows)
    figures: dict[str, Any] = {"away_s": day.away_s, "unknown": day.unknown, "left_out": day.left_out}
    figures |= {"ranked": day.ranked, "limits": day.untold[:LONGEST_REASON]}
    session.merge(OtherReplay(day_s=day.day_s, as_of_s=now, **figures))
