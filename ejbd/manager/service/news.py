"""News for those that wait for it: there is an event that they have not seen."""

from __future__ import annotations

import asyncio
import time

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.store.models import Event
from ejbd.store.store import Store
from ejbd.store.transitions import EVENTS_TOPIC


class News:
    """Of the events of a store. `told`: commits are told here, by :meth:`woken`."""

    def __init__(self, store: Store) -> None:
        self.told = False
        self._store = store
        self._next = asyncio.Event()  # of the events that come next; a new one for each
        self._newest: asyncio.Future[int] | None = None  # the number of the last event, once it was asked for

    def woken(self, topics: frozenset[str]) -> None:
        """There has been a commit."""
        if EVENTS_TOPIC in topics:
            self._newest = None
            self._next.set()
            self._next = asyncio.Event()

    async def wait_for_events(self, after_id: int, timeout_s: float) -> None:
        """Return when there is an event newer than `after_id`, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            news = self._next  # before the look: what comes while it lasts is not missed
            newest = await self._newest_event()
            left = deadline - time.monotonic()
            if newest > after_id or left <= 0:
                return
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                return

    async def _newest_event(self) -> int:
        """The last event's number. A hundred that wait for the next one have it read once for all of them."""
        if not self.told:
            return await self._store.read(newest_event)
        found = self._newest
        if found is None:
            found = self._newest = asyncio.ensure_future(self._store.read(newest_event))
        try:
            return await asyncio.shield(found)
        except BaseException:
            if self._newest is found and found.done():
                self._newest = None
            raise


def newest_event(session: Session) -> int:
    """The number of the last event; 0: there is none."""
    return session.scalar(select(func.max(Event.id))) or 0
