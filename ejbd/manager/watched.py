"""News for those that wait for it, and whether the daemon does its work."""

from __future__ import annotations

import asyncio
import time

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.errors import Code
from ejbd.manager.observing import Observing
from ejbd.manager.service.health import Fault, ToldHealth
from ejbd.store.models import Event


class Watched(Observing):
    """What can be waited for, and what is wrong."""

    async def wait_for_events(self, after_id: int, timeout_s: float) -> None:
        """Return when there is an event newer than `after_id`, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            news = self._news  # before the look: what comes while it lasts is not missed
            newest = await self._newest_event()
            left = deadline - time.monotonic()
            if newest > after_id or left <= 0:
                return
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                return

    async def between_polls(self, most_s: float) -> None:
        """Return while no poll is under way; after `most_s` seconds in any case."""
        await self._polling.between(most_s)

    async def _newest_event(self) -> int:
        """The last event's number. A hundred that wait for the next one have it read once for all of them."""
        if not self._tasks:  # no commit is told yet
            return await self.store.read(_newest_event)
        found = self._newest
        if found is None:
            found = self._newest = asyncio.ensure_future(self.store.read(_newest_event))
        try:
            return await asyncio.shield(found)
        except BaseException:
            if self._newest is found and found.done():
                self._newest = None
            raise

    def faults(self) -> list[Fault]:
        """What keeps the daemon from its work, the cause before what comes of it."""
        found = self._health.faults()
        if any(task.done() and task.get_name() == "executor" for task in self._tasks):
            found.append(Fault(Code.INTERNAL, "the task that acts on the batch system has ended", "restart ejbd", True))
        if self.batch_error:
            hint = "no job fails for it; the daemon asks again with every poll"
            found.append(Fault(Code.BATCH_UNAVAILABLE, self.batch_error, hint))
        elif self.view is None and not found:
            found.append(Fault(Code.BATCH_UNAVAILABLE, "the batch system has not answered yet", "ask again in seconds"))
        return found

    def health(self) -> ToldHealth:
        """Whether the daemon does its work, and what keeps it from it."""
        view, faults = self.view, self.faults()
        return {
            "ok": not faults,
            "faults": [fault.to_json() for fault in faults],
            "batch": self.batch.name,
            "batch_error": self.batch_error,
            "last_poll_s": view.time_s if view else None,
            "polls": self.polls,
            "failed_polls": self.failed_polls,
            "unparsed_rows": view.unparsed if view else 0,
            "blind": view.blind if view else "",
            "started_s": self.started_s,
        }


def _newest_event(session: Session) -> int:
    return session.scalar(select(func.max(Event.id))) or 0
