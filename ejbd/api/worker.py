"""Endpoints of the workers, which have proved which subjob they are of (:mod:`ejbd.api.worker_door`)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from ejbd.api.auth import Manager
from ejbd.api.closing import before_closing
from ejbd.manager.protocol.worker_models import (
    PROTOCOL,
    Accepted,
    ElasticCall,
    ElasticState,
    Name,
    Operations,
    Registered,
    Registration,
    Reports,
)

LONGEST_WAIT_S = 60.0

router = APIRouter(prefix="/v1/worker", tags=["workers"])


async def proved_subjob(
    request: Request, protocol: Annotated[str, Header(alias="X-EJB-Protocol", pattern=f"^{PROTOCOL}$")]
) -> str:
    """The subjob of the secret that the worker has proved to know."""
    subjob: str = request.state.subjob
    return subjob


ProvedSubjob = Annotated[str, Depends(proved_subjob)]


class Wanted(BaseModel):
    """Which operations a worker asks for."""

    model_config = ConfigDict(extra="forbid")

    worker: Name
    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    wait: Annotated[float, Field(ge=0, le=3600, description="seconds; cut to 60")] = 0.0


@router.post("/register")
async def register(manager: Manager, subjob: ProvedSubjob, body: Registration) -> Registered:
    """A worker says that it is there. Repeatable with the same `boot`."""
    return Registered.model_validate(await manager.register_worker(subjob, body.model_dump()))


@router.get("/operations")
async def operations(
    request: Request, manager: Manager, subjob: ProvedSubjob, query: Annotated[Wanted, Query()]
) -> Operations:
    """Long poll: at once when there is something to do, otherwise empty after `wait` seconds."""
    wait_s = min(query.wait, LONGEST_WAIT_S)
    call = manager.worker_operations(subjob, query.worker, query.after, wait_s)
    found = await before_closing(request.app, call)
    return Operations.model_validate({"operations": found or []})


@router.post("/reports")
async def reports(manager: Manager, subjob: ProvedSubjob, body: Reports) -> Accepted:
    """Results and news of a worker, each stored once."""
    stored = await manager.worker_reports(subjob, body.worker, [report.model_dump() for report in body.reports])
    return Accepted(accepted=stored)


@router.post("/elastic")
async def elastic(manager: Manager, subjob: ProvedSubjob, body: ElasticCall) -> ElasticState:
    """A process of the job asks for another width of it, or how it stands (`ejb_elastic`)."""
    return ElasticState.model_validate(await manager.elastic_call(subjob, body.model_dump()))
