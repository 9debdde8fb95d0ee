"""Endpoints of the workers. Their tokens are good for one subjob each; the manager knows them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from ejbd.api.auth import Manager, bearer
from ejbd.api.closing import before_closing
from ejbd.errors import Code, EjbError
from ejbd.manager.worker_models import PROTOCOL, Accepted, Name, Operations, Registered, Registration, Reports

LONGEST_WAIT_S = 60.0

router = APIRouter(prefix="/v1/worker", tags=["workers"])


async def worker_token(request: Request, protocol: Annotated[str | None, Header(alias="X-EJB-Protocol")] = None) -> str:
    """The subjob's token. Raises EjbError where there is none, or where another protocol is spoken."""
    token = bearer(request)
    if token is None:
        raise EjbError(Code.UNAUTHENTICATED, "a worker needs the token of its subjob")
    if protocol != PROTOCOL:
        raise EjbError(Code.INVALID, f"this daemon speaks worker protocol {PROTOCOL}", where="X-EJB-Protocol")
    return token


SubjobToken = Annotated[str, Depends(worker_token)]


class Wanted(BaseModel):
    """Which operations a worker asks for."""

    model_config = ConfigDict(extra="forbid")

    worker: Name
    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    wait: Annotated[float, Field(ge=0, le=3600, description="seconds; cut to 60")] = 0.0


@router.post("/register")
async def register(manager: Manager, token: SubjobToken, body: Registration) -> Registered:
    """A worker says that it is there. Repeatable with the same `boot`."""
    return Registered.model_validate(await manager.register_worker(token, body.model_dump()))


@router.get("/operations")
async def operations(
    request: Request, manager: Manager, token: SubjobToken, query: Annotated[Wanted, Query()]
) -> Operations:
    """Long poll: at once when there is something to do, otherwise empty after `wait` seconds."""
    wait_s = min(query.wait, LONGEST_WAIT_S)
    call = manager.worker_operations(token, query.worker, query.after, wait_s)
    found = await before_closing(request.app, call)
    return Operations.model_validate({"operations": found or []})


@router.post("/reports")
async def reports(manager: Manager, token: SubjobToken, body: Reports) -> Accepted:
    """Results and news of a worker, each stored once."""
    stored = await manager.worker_reports(token, body.worker, [report.model_dump() for report in body.reports])
    return Accepted(accepted=stored)
