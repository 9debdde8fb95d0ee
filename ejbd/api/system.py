"""The daemon itself: health, version, figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from ejbd import __version__
from ejbd.api.auth import Caller, Manager
from ejbd.api.metrics import CONTENT_TYPE, exposition
from ejbd.api.models import Health, Version
from ejbd.api.problems import MEDIA_TYPE, problem
from ejbd.errors import Code, EjbError
from ejbd.manager.protocol.worker_models import PROTOCOL
from ejbd.manager.service.health import Fault

router = APIRouter(tags=["daemon"])


@router.get(
    "/v1/health",
    response_model=Health,
    responses={
        503: {
            "description": "The daemon cannot do its work: a problem that says why, with the fields of health in it",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/UnhealthyProblem"}}},
        }
    },
)
async def health(manager: Manager) -> Response | Health:
    """Whether the daemon does its work. Needs no name."""
    found = manager.health()
    if found["ok"]:
        return Health.model_validate(found)
    faults = found["faults"] or [Fault(Code.INTERNAL, "the daemon cannot do its work", "").to_json()]
    first = faults[0]
    error = EjbError(Code(first["code"]), first["what"], hint=first["hint"], transient=True)
    return problem(error, 503, also=found)


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
