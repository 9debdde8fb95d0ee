"""What is told of the past of an application: types. Times are epoch seconds."""

from __future__ import annotations

from typing import Any, TypedDict


class ToldMove(TypedDict):
    """A checkpoint and the restart from it. `to_...` and `restart_s` None: it was not started again."""

    job_id: str
    epoch: int
    at_s: float
    processors: int
    nodes: int
    to_processors: int | None
    to_nodes: int | None
    bytes: int
    checkpoint_s: float
    write_s: float
    wait_s: float
    restart_s: float | None
    by_node: list[Any]


class ToldSpeed(TypedDict):
    """How fast a placement got on: `units` of the application's own in `seconds`, of `total` (None: it did not say)."""

    job_id: str
    launch: int
    epoch: int
    at_s: float
    processors: int
    degree: int
    units: float
    seconds: float
    total: float | None


class ToldWholeRun(TypedDict):
    """A whole run. `over`: degree -> seconds at it. `elastic` None: kept by an older version."""

    job_id: str
    at_s: float
    full_s: float
    over: dict[str, float]
    elastic: bool | None
