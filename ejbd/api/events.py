"""What happened, as pages and as streams (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.access.allowance import CountedStream
from ejbd.api.auth import Caller, Manager, Principal, still_holds
from ejbd.api.closing import before_closing, closing_event
from ejbd.api.models import Api, EventPage, EventView
from ejbd.api.port import ManagerPort
from ejbd.api.selecting import Selector, select_job
from ejbd.api.views import event_view
from ejbd.store import queries
from ejbd.store.models import Event, Job
from ejbd.store.states import JobState

BATCH = 500
KEEP_ALIVE_S = 15.0
STREAM = "text/event-stream"

router = APIRouter(prefix="/v1", tags=["events"])


class EventFilter(Api):
    """Which events of a job are wanted."""

    after: Annotated[int, Field(ge=0, le=2**53, description="id of the last event that is known")] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class StreamFilter(Api):
    """Where a stream begins. `Last-Event-ID` goes before it."""

    after: Annotated[int | None, Field(ge=0, le=2**53, description="id of the last event that is known")] = None


LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**53)]
_STREAM_RESPONSE = {200: {"content": {STREAM: {"schema": {"type": "string"}}}, "description": "Server-sent events"}}
Fetch = Callable[[Session, int], tuple[Sequence[Event], bool]]


@router.get("/jobs/{job}/events")
async def job_events(
    manager: Manager, caller: Caller, job: Selector, query: Annotated[EventFilter, Query()]
) -> EventPage:
    """What happened to a job."""
    found = await select_job(manager, caller, job)

    def look(session: Session) -> EventPage:
        rows = queries.job_events(session, found.id, query.after, query.limit)
        return EventPage(events=[event_view(row) for row in rows])

    return await manager.store.read(look)


async def newest_events(manager: ManagerPort, job_id: str, most: int) -> tuple[list[EventView], int]:
    """Of a job that its reader may see: newest first, and how many there are."""

    def look(session: Session) -> tuple[list[EventView], int]:
        rows, count = queries.last_job_events(session, job_id, most)
        return [event_view(row) for row in rows], count

    return await manager.store.read(look)


@router.get("/events")
async def all_events(manager: Manager, caller: Caller, query: Annotated[EventFilter, Query()]) -> EventPage:
    """What happened to all one's jobs (operators: to everything)."""

    def look(session: Session) -> EventPage:
        rows = _events_of(session, caller, query.after, query.limit)
        return EventPage(events=[event_view(row) for row in rows])

    return await manager.store.read(look)


@router.get("/jobs/{job}/events/stream", response_class=StreamingResponse, responses=_STREAM_RESPONSE)  # type: ignore[arg-type]
async def job_stream(
    request: Request,
    manager: Manager,
    caller: Caller,
    job: Selector,
    query: Annotated[StreamFilter, Query()],
    last: LastEventId = None,
) -> StreamingResponse:
    """A job's events from the first (or from those known) on; ends by an event `end` after the job's last."""
    found = await select_job(manager, caller, job)

    def fetch(session: Session, after: int) -> tuple[Sequence[Event], bool]:
        rows = queries.job_events(session, found.id, after, BATCH)
        state = session.scalars(select(Job.state).where(Job.id == found.id)).one()
        return rows, JobState(state).over and len(rows) < BATCH

    after = last if last is not None else query.after or 0
    return _streaming(request, manager, caller, fetch, after, found.id)


@router.get("/events/stream", response_class=StreamingResponse, responses=_STREAM_RESPONSE)  # type: ignore[arg-type]
async def stream(
    request: Request,
    manager: Manager,
    caller: Caller,
    query: Annotated[StreamFilter, Query()],
    last: LastEventId = None,
) -> StreamingResponse:
    """The events of all one's jobs (operators: of everything) from now on, or from those known on."""
    after = last if last is not None else query.after

    if after is None:
        after = await manager.store.read(_newest)

    def fetch(session: Session, after: int) -> tuple[Sequence[Event], bool]:
        return _events_of(session, caller, after, BATCH), False

    return _streaming(
        request, manager, caller, fetch, after, (caller.sees_all, None if caller.sees_all else caller.user)
    )


def _events_of(session: Session, caller: Principal, after: int, limit: int) -> Sequence[Event]:
    if caller.sees_all:
        return queries.events(session, after, limit)
    query = select(Event).join(Job, Job.id == Event.job_id).where(Job.user == caller.user, Event.id > after)
    return session.scalars(query.order_by(Event.id).limit(limit)).all()


@dataclass(frozen=True, slots=True)
class _Look:
    """What came after an event: each line with the number that is known by it, and the newest of any user's events."""

    lines: tuple[tuple[int, str], ...]
    over: bool
    newest: int


Looks = dict[tuple[object, int], "asyncio.Future[_Look]"]
"""Looks that are under way (`app.state.looks`), by which events, and after which one. One event wakes every stream: a
hundred of a kind share one look. A stream that joins one for an event that came later learns of it as of the newest."""


def _streaming(
    request: Request, manager: ManagerPort, caller: Principal, fetch: Fetch, after: int, which: object
) -> StreamingResponse:
    """`which`: two streams of the same have the same events."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    lines = _lines(request.app, manager, caller, fetch, after, which)
    return CountedStream(request, caller, lines, media_type=STREAM, headers=headers)


async def _look(looks: Looks, manager: ManagerPort, fetch: Fetch, after: int, which: object) -> _Look:
    def look(session: Session) -> _Look:
        rows, over = fetch(session, after)
        told = ((row.id, row.kind, event_view(row).model_dump_json()) for row in rows)
        lines = tuple((id, f"id: {id}\nevent: {kind}\ndata: {data}\n\n") for id, kind, data in told)
        return _Look(lines, over, _newest(session))

    key = which, after
    task = looks.get(key)
    if task is None:
        task = looks[key] = asyncio.ensure_future(manager.store.read(look))
        task.add_done_callback(lambda _: looks.pop(key, None))
    return await asyncio.shield(task)


async def _lines(
    app: FastAPI, manager: ManagerPort, caller: Principal, fetch: Fetch, after: int, which: object
) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    yield "retry: 1000\n\n"
    told_s = loop.time()
    while not closing_event(app).is_set() and await still_holds(app.state.holders, manager, caller):
        found = await _look(app.state.looks, manager, fetch, after, which)
        for id, line in found.lines:
            after = id
            yield line
        if found.over:
            yield "event: end\ndata: {}\n\n"
            return
        if found.lines:
            told_s = loop.time()
        elif loop.time() - told_s >= KEEP_ALIVE_S:
            yield ": still here\n\n"
            told_s = loop.time()
        if len(found.lines) < BATCH:
            # Beyond the newest of any user's: events that are not for this stream wake it up once each at most.
            await before_closing(app, manager.wait_for_events(max(after, found.newest), KEEP_ALIVE_S))


def _newest(session: Session) -> int:
    return session.scalars(select(Event.id).order_by(Event.id.desc()).limit(1)).first() or 0


async def any_newer(manager: ManagerPort, user: str | None, after: int | None) -> tuple[int, bool]:
    """The newest of any user's events, and whether one behind `after` is of this user's jobs (None: any at all)."""

    def look(session: Session) -> tuple[int, bool]:
        newest = _newest(session)
        if after is None or newest <= after:
            return newest, False
        query = select(Event.id).where(Event.id > after)
        if user is not None:
            query = query.join(Job, Job.id == Event.job_id).where(Job.user == user)
        return newest, session.scalars(query.limit(1)).first() is not None

    return await manager.store.read(look)
