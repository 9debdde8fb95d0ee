"""What runs on the cluster, and what is planned there."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.models import Api
from ejbd.api.port import ManagerPort
from ejbd.manager.telling.cluster import BarKind

__all__ = ["BarKind", "BarView", "ClusterPicture", "NodesView", "told"]
PAST_S = 3600.0

router = APIRouter(prefix="/v1", tags=["queues"])


class ClusterFilter(Api):
    """How much of the past is wanted."""

    since_s: Annotated[
        float | None, Field(ge=0, le=1e11, allow_inf_nan=False, description="subjobs that ended later; an hour")
    ] = None


class BarView(Api):
    """Processors that are held, or planned, for a batch job or a reservation.

    `job` is EJB's for `elastic` and `j0`, the batch system's otherwise. With `name` and `user` it is empty where the
    caller may not see the job: then only that processors are held is told, as `other` or `planned`.
    """

    kind: BarKind
    job: str
    name: str
    user: str
    processors: Annotated[int, Field(description="0 of a reservation: all of its nodes")]
    nodes: Annotated[str, Field(description="as n[1-3]; empty: not known")]
    start_s: float
    end_s: Annotated[float | None, Field(description="null: without an end, or not known")]
    degree: Annotated[int, Field(description="of over-subscription; 0: no rank runs, or it is not told")]
    mine: bool


class NodesView(Api):
    """Nodes beside each other, in the order of their names, that are alike."""

    nodes: str
    count: int
    processors: Annotated[int, Field(description="of each")]
    usable: bool
    state: str


class LevelView(Api):
    """So many processors are free from a time on, until the next level."""

    from_s: float
    free: int


class RoomView(Api):
    """What a queue has free from now on, by planned ends, planned starts and reservations; none: not known."""

    queue: str
    total: int
    levels: list[LevelView]


class ClusterPicture(Api):
    """The cluster as the last poll saw it, at `at_s`."""

    at_s: float
    processors: int
    free: int
    nodes: list[NodesView]
    bars: list[BarView]
    rooms: list[RoomView]


async def told(manager: ManagerPort, caller: Principal, since_s: float) -> ClusterPicture:
    """As the caller may see it. Raises EjbError (BATCH_UNAVAILABLE)."""
    found = await manager.cluster(caller.user, caller.sees_all, since_s)
    return ClusterPicture.model_validate(found)


@router.get("/cluster")
async def show(manager: Manager, caller: Caller, query: Annotated[ClusterFilter, Query()]) -> ClusterPicture:
    """Nodes, and over them what runs, what ended of late, J0s, reservations. Jobs of others have no name."""
    return await told(manager, caller, time.time() - PAST_S if query.since_s is None else query.since_s)
