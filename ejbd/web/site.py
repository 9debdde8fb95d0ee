"""Queues with the switch, and health."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from ejbd.api import drains, queues
from ejbd.api.auth import Caller, Manager
from ejbd.api.drains import DrainView
from ejbd.api.models import QueueView, Window
from ejbd.api.queues import WindowFilter
from ejbd.errors import EjbError
from ejbd.web.render import html
from ejbd.web.shared import Shared
from ejbd.wire.rights import Scope

router = APIRouter(prefix="/web")


@dataclass(frozen=True, slots=True)
class Site:
    """What stands on the page of the queues."""

    queues: tuple[QueueView, ...]
    windows: tuple[Window, ...]
    drains: tuple[DrainView, ...]


@router.get("/queues")
async def listed(request: Request, manager: Manager, caller: Caller) -> Response:
    """What each queue does and has free, why it is paused, and for operators its switch."""

    async def look() -> Site:
        found = await queues.list_queues(manager, caller)
        windows = await queues.windows(manager, caller, WindowFilter())
        drained = await drains.list_drains(manager, caller)
        return Site(tuple(found.queues), tuple(windows.windows), tuple(drained.drains))

    sites: Shared[Site] = request.app.state.sites
    found = await sites.get((caller.sees_all, caller.user), look)
    return html("queues.html", (request, caller), found=found, operates=caller.scope.covers(Scope.OPERATE))


@router.get("/health")
async def health(request: Request, manager: Manager, caller: Caller) -> Response:
    """What the daemon knows of itself, faults first."""
    known, error = [], ""
    try:
        known = (await queues.list_queues(manager, caller)).queues
    except EjbError as refused:
        error = refused.sentence()
    return html("health.html", (request, caller), health=manager.health(), queues=known, queues_error=error)
