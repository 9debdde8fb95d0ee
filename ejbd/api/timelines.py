"""What a job did and is to do, as JSON and as a picture."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from ejbd.api import views
from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.gantt import svg
from ejbd.api.models import Api, JobMoves, Timeline
from ejbd.api.port import ManagerPort
from ejbd.api.selecting import Selector, job_of
from ejbd.manager.telling import hops

SVG = "image/svg+xml"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class Format(StrEnum):
    JSON = "json"
    SVG = "svg"


class TimelineFilter(Api):
    """Without a format, the Accept header decides."""

    format: Format | None = None


@router.get("/{job}/moves")
async def moves(manager: Manager, caller: Caller, job: Selector) -> JobMoves:
    """Every hop of each start, move and end of a job, with its time."""

    def look(session: Session) -> JobMoves:
        found = job_of(session, caller, job)
        return JobMoves.model_validate({"job": found.id, "moves": hops.moves(session, found.id)})

    return await manager.store.read(look)


async def told(manager: ManagerPort, caller: Principal, job: str) -> Timeline:
    """The same for a page. Raises EjbError as :func:`job_of`."""

    def look(session: Session) -> Timeline:
        return views.timeline(job_of(session, caller, job), session)

    found = await manager.store.read(look)
    if found.end_s is None:
        found.planned = views.planned_view(await manager.planned(found.job))
        found.expected_end_s = found.planned[-1].end_s if found.planned else found.expected_completion_s
    return found


@router.get(
    "/{job}/timeline",
    response_model=Timeline,
    responses={200: {"content": {SVG: {"schema": {"type": "string"}}}, "description": "The timeline"}},
)
async def timeline(
    request: Request, manager: Manager, caller: Caller, job: Selector, query: Annotated[TimelineFilter, Query()]
) -> Response:
    """What a job did from its submission until now, its subjobs, and what it is planned to do from now on."""

    found = await told(manager, caller, job)
    wanted = query.format or (Format.SVG if SVG in request.headers.get("accept", "") else Format.JSON)
    if wanted is Format.SVG:
        return Response(svg(found), media_type=SVG, headers={"Vary": "Accept"})
    return JSONResponse(found.model_dump(mode="json"), headers={"Vary": "Accept"})
