"""What happened, as pages and as streams (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.access.allowance import CountedStream
from ejbd.api.auth import Caller, Manager, Principal, still_holds
from ejbd.api.closing import before_closing, closing_event
from ejbd.api.models import Api, EventPage
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
    return _streaming(request, manager, caller, fetch, after)


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

    return _streaming(request, manager, caller, fetch, after)


def _events_of(session: Session, caller: Principal, after: int, limit: int) -> Sequence[Event]:
    if caller.sees_all:
        return queries.events(session, after, limit)
    query = select(Event).join(Job, Job.id == Event.job_id).where(Job.user == caller.user, Event.id > after)
    return session.scalars(query.order_by(Event.id).limit(limit)).all()


def _streaming(
    request: Request, manager: ManagerPort, caller: Principal, fetch: Fetch, after: int
) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    lines = _lines(request.app, manager, caller, fetch, after)
    return CountedStream(request, caller, lines, media_type=STREAM, headers=headers)


async def _lines(app: FastAPI, manager: ManagerPort, caller: Principal, fetch: Fetch, after: int) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()

    def look(session: Session) -> tuple[Sequence[Event], bool, int]:
        rows, over = fetch(session, after)
        return rows, over, _newest(session)

    yield "retry: 1000\n\n"
    told_s = loop.time()
    while not closing_event(app).is_set() and await still_holds(app.state.holders, manager, caller):
        rows, over, newest = await manager.store.read(look)
        for row in rows:
            after = row.id
            yield f"id: {row.id}\nevent: {row.kind}\ndata: {event_view(row).model_dump_json()}\n\n"
        if over:
            yield "event: end\ndata: {}\n\n"
            return
        if rows:
            told_s = loop.time()
        elif loop.time() - told_s >= KEEP_ALIVE_S:
            yield ": still here\n\n"
            told_s = loop.time()
        if len(rows) < BATCH:
            # Beyond the newest of any user's: events that are not for this stream wake it up once each at most.
            await before_closing(app, manager.wait_for_events(max(after, newest), KEEP_ALIVE_S))


def _newest(session: Session) -> int:
    return session.scalars(select(Event.id).order_by(Event.id.desc()).limit(1)).first() or 0
