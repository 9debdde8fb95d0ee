"""Nodes that EJB leaves for an operator."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from ejbd.api.auth import Caller, Manager
from ejbd.api.models import NAME, Api

router = APIRouter(prefix="/v1", tags=["drains"])

NodeList = Annotated[str, Field(min_length=1, max_length=65536, pattern=NAME, examples=["n[1-3],m7"])]


class DrainRequest(Api):
    """Nodes that elastic jobs are to be off by `by_s`."""

    nodes: NodeList
    by_s: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False, description="seconds since the epoch")]


class DrainCancel(Api):
    """Nodes that EJB may use again."""

    nodes: NodeList


class DrainView(Api):
    """Nodes that are drained. Times to come are what is planned; null: not known."""

    nodes: str
    by_s: float
    asked_s: float
    asked_by: str
    elastic: Annotated[list[str], Field(description="jobs of EJB that still run there")]
    stay: Annotated[list[str], Field(description="of them those that are not moved: they run to their end")]
    others: Annotated[list[str], Field(description="batch jobs there that are not EJB's to move")]
    elastic_free_s: Annotated[float | None, Field(description="when the last elastic job is or was off them")]
    free_s: Annotated[float | None, Field(description="when nothing runs there any more")]


class Drains(Api):
    """What is drained now."""

    drains: list[DrainView]


@router.get("/drains")
async def list_drains(manager: Manager, caller: Caller) -> Drains:
    """What is drained, which jobs are still there, and when the nodes should be free."""
    return Drains.model_validate({"drains": await manager.drains()})


@router.post("/drains")
async def drain(manager: Manager, caller: Caller, body: DrainRequest) -> Drains:
    """Have elastic jobs leave nodes by a time, and use them no more. For operators."""
    return Drains.model_validate({"drains": await manager.drain(body.nodes, body.by_s, caller.user)})


@router.post("/drains/cancel")
async def cancel_drain(manager: Manager, caller: Caller, body: DrainCancel) -> Drains:
    """Use these nodes again. For operators."""
    return Drains.model_validate({"drains": await manager.cancel_drain(body.nodes, caller.user)})
