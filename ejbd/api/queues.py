"""Queues, their elasticity, and the windows that are open in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from ejbd.api.auth import Caller, Manager
from ejbd.api.models import NAME, Api, QueueChanges, Queues, QueueView, Windows
from ejbd.errors import Code, EjbError

router = APIRouter(prefix="/v1", tags=["queues"])

When = Annotated[str, Field(min_length=1, max_length=128, pattern=NAME, examples=["mon-fri 20:00-08:00"])]
QueueName = Annotated[str, Path(min_length=1, max_length=256, pattern=NAME)]


class WindowFilter(Api):
    """Which queue's windows are wanted."""

    queue: Annotated[str | None, Field(min_length=1, max_length=256, pattern=NAME)] = None


@router.get("/queues")
async def list_queues(manager: Manager, caller: Caller) -> Queues:
    """All queues."""
    return Queues.model_validate({"queues": await manager.queues()})


@router.get("/queues/{name}")
async def show_queue(manager: Manager, caller: Caller, name: QueueName) -> QueueView:
    """One queue."""
    for queue in await manager.queues():
        if queue["name"] == name:
            return QueueView.model_validate(queue)
    raise EjbError(Code.NOT_FOUND, f"there is no queue {name!r}", hint="`ejb queue list` shows them")


@router.patch("/queues/{name}")
async def set_queue(manager: Manager, caller: Caller, name: QueueName, body: QueueChanges) -> QueueView:
    """Change the settings that are given, at run time; null goes back to the configuration. For operators."""
    if not body:
        raise EjbError(Code.INVALID, "no setting is given", hint="docs/rest.md lists them", where="body")
    return QueueView.model_validate(await manager.set_queue(name, body, caller.user))


class WindowChanges(Api):
    """Settings that are to hold in a window of the week; null takes one out of it."""

    when: When
    settings: QueueChanges


class WindowChoice(Api):
    """Which window is meant; none: all."""

    when: When | None = None


@router.put("/queues/{name}/calendar")
async def set_window(manager: Manager, caller: Caller, name: QueueName, body: WindowChanges) -> QueueView:
    """Have the settings that are given hold in a window of the week. For operators."""
    if not body.settings:
        raise EjbError(Code.INVALID, "no setting is given", hint="docs/rest.md lists them", where="settings")
    return QueueView.model_validate(await manager.set_queue_window(name, body.when, body.settings, caller.user))


@router.delete("/queues/{name}/calendar")
async def clear_windows(
    manager: Manager, caller: Caller, name: QueueName, query: Annotated[WindowChoice, Query()]
) -> QueueView:
    """Take out a window of a queue, or all of them. For operators."""
    return QueueView.model_validate(await manager.clear_queue_windows(name, query.when, caller.user))


@router.post("/queues/{name}/resume")
async def resume_queue(manager: Manager, caller: Caller, name: QueueName) -> QueueView:
    """Try a queue again at once that is paused since its submissions or starts keep failing. For operators."""
    return QueueView.model_validate(await manager.resume_queue(name, caller.user))


@router.get("/windows")
async def windows(manager: Manager, caller: Caller, query: Annotated[WindowFilter, Query()]) -> Windows:
    """Processors that could be used now without delaying a planned start."""
    return Windows.model_validate({"windows": await manager.windows(query.queue)})
