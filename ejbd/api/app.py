"""The REST API."""

from __future__ import annotations

import asyncio

from fastapi import Depends, FastAPI, Request

from ejbd import __version__
from ejbd.api import events, jobs, logs, openapi, problems, queues, system, timelines, tokens, worker
from ejbd.api.auth import Holders
from ejbd.api.middleware import Guard
from ejbd.api.port import ManagerPort
from ejbd.errors import Code, EjbError

_REPEATABLE = frozenset({"state"})


async def _once(request: Request) -> None:
    """Of a query given twice one would be left out in silence."""
    query = request.query_params
    for key in query:
        if key not in _REPEATABLE and len(query.getlist(key)) > 1:
            raise EjbError(Code.INVALID, "this is given more than once", where=f"query.{key!a}")


def create_app(manager: ManagerPort) -> FastAPI:
    """The application over a manager. `app.state.closing` ends what waits; :func:`ejbd.api.server.serve` sets it."""
    app = FastAPI(
        title="Elastic Job Bundling",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
        dependencies=[Depends(_once)],
    )
    app.state.manager = manager
    app.state.holders = Holders()
    app.state.closing = asyncio.Event()
    problems.install(app)
    for module in (events, logs, timelines, jobs, queues, tokens, worker, system):
        app.include_router(module.router)
    app.add_middleware(Guard, max_body_bytes=manager.settings.limits.max_body_bytes)
    openapi.install(app)
    return app
