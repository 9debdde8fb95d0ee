"""The daemon itself: health, version, figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from ejbd import __version__
from ejbd.api.auth import Caller, Manager
from ejbd.api.metrics import CONTENT_TYPE, exposition
from ejbd.api.models import Health, Version
from ejbd.manager.worker_models import PROTOCOL

router = APIRouter(tags=["daemon"])


@router.get("/v1/health", responses={503: {"model": Health, "description": "The daemon cannot do its work"}})
async def health(manager: Manager, response: Response) -> Health:
    """Whether the daemon does its work. Needs no name."""
    found = Health.model_validate(manager.health())
    response.status_code = 200 if found.ok else 503
    return found


@router.get("/v1/version")
async def version() -> Version:
    """Which EJB this is. Needs no name."""
    return Version(version=__version__, worker_protocol=PROTOCOL)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"}},
)
async def metrics(manager: Manager, caller: Caller) -> Response:
    """Figures for Prometheus: jobs by state, and what the manager counts (polls, batch commands)."""
    return Response(await exposition(manager), media_type=CONTENT_TYPE)
