"""That something has happened, for pages that are open: one look at the events for all that may see the same.

A page does not use what happened: it looks anew. So its stream says no more than that there is news, once in `EVERY_S`
at most, and the same bytes go to every page of a kind. REST's stream of events tells each of them to each reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import StreamingResponse

from ejbd.api.access.allowance import CountedStream
from ejbd.api.auth import Caller, Manager, Principal, still_holds
from ejbd.api.closing import before_closing, closing_event
from ejbd.api.events import any_newer
from ejbd.api.port import ManagerPort
from ejbd.web.door import POLL_S

EVERY_S = 3.0  # as seldom as a page looks anew
KEEP_ALIVE_S = 15.0
NEWS = b"event: news\ndata:\n\n"

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/web")


class Crowd:
    """Pages that may see the same. As long as one is there, the events are looked at."""

    def __init__(self, manager: ManagerPort, user: str | None, every_s: float = EVERY_S) -> None:
        self._manager, self._user, self._every_s = manager, user, every_s
        self._pages = 0
        self._task: asyncio.Task[None] | None = None
        self._said = asyncio.Event()
        self.told = 0  # how often there was news

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """While a page is here, what happens from now on is told."""
        self._pages += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
            self._task.add_done_callback(_tell)
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages:
                self._task.cancel()
                self._task = None

    async def news(self, seen: int, wait_s: float) -> int:
        """`told`, once it is not `seen` any more, the time is over, or the events can be read no more.

        What came while its reader took nothing is not lost, and is one piece of news, however much it was.
        """
        said, task = self._said, self._task
        if task is None or task.done() or self.told != seen:
            return self.told
        waits = asyncio.ensure_future(said.wait())
        try:
            await asyncio.wait({waits, task}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
        return self.told

    @property
    def broken(self) -> bool:
        return self._task is None or self._task.done()

    async def _watch(self) -> None:
        after, _ = await any_newer(self._manager, self._user, None)
        while True:
            await self._manager.wait_for_events(after, KEEP_ALIVE_S)
            await self._manager.between_polls(POLL_S)  # most events are a poll's
            after, found = await any_newer(self._manager, self._user, after)
            if found:
                self.told += 1
                self._said.set()
                self._said = asyncio.Event()
                await asyncio.sleep(self._every_s)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("web.news-failed", error=repr(error))


def crowd_of(app: FastAPI, manager: ManagerPort, caller: Principal) -> Crowd:
    crowds: dict[str | None, Crowd] = app.state.crowds
    user = None if caller.sees_all else caller.user
    return crowds.setdefault(user, Crowd(manager, user))


@router.get("/news")
async def news(request: Request, manager: Manager, caller: Caller) -> StreamingResponse:
    """A stream of server-sent events `news`, from now on."""
    headers = {"X-Accel-Buffering": "no"}
    return CountedStream(
        request, caller, _lines(request.app, manager, caller), media_type="text/event-stream", headers=headers
    )


async def _lines(app: FastAPI, manager: ManagerPort, caller: Principal) -> AsyncIterator[bytes]:
    crowd = crowd_of(app, manager, caller)
    async with crowd.joined():
        seen = crowd.told
        yield b"retry: 1000\n\n"
        while not closing_event(app).is_set() and await still_holds(app.state.holders, manager, caller):
            told = await before_closing(app, crowd.news(seen, KEEP_ALIVE_S))
            if crowd.broken or told is None:
                return  # and the page comes again
            yield NEWS if told != seen else b": still here\n\n"
            seen = told
