"""The REST API."""

from __future__ import annotations

import asyncio

from fastapi import Depends, FastAPI, Request

from ejbd import __version__
from ejbd.api import (
    cluster,
    doctor,
    drains,
    events,
    history,
    jobs,
    logs,
    openapi,
    pools,
    problems,
    queues,
    savings,
    signin,
    system,
    timelines,
    tokens,
    worker,
    workflows,
)
from ejbd.api.access.allowance import Allowances
from ejbd.api.access.oidc import Oidc
from ejbd.api.access.oidcflow import SignIns
from ejbd.api.access.roles import Roles
from ejbd.api.access.tokenproofs import TokenProofs
from ejbd.api.audit import reading as audit
from ejbd.api.audit.door import AuditDoor
from ejbd.api.audit.trail import open_trail
from ejbd.api.auth import Holders
from ejbd.api.declared import Declared
from ejbd.api.head import Head
from ejbd.api.middleware import Guard
from ejbd.api.port import ManagerPort
from ejbd.api.submission_door import SubmissionDoor
from ejbd.api.worker_door import WorkerDoor
from ejbd.errors import Code, EjbError

_REPEATABLE = frozenset({"state", "number"})


async def _query(request: Request) -> None:
    """Of a query given twice, or one that no route reads, some would be left out in silence."""
    query = request.query_params
    if not query:
        return
    address = request.app.state.declared.at(request.url.path)
    known = address.queries.get(request.method) if address is not None else None
    for key in query:
        if known is not None and key not in known:
            there = f"there are: {', '.join(sorted(known))}" if known else "this address has none"
            raise EjbError(Code.INVALID, "there is no such query parameter here", where=f"query.{key!a}", hint=there)
        if key not in _REPEATABLE and len(query.getlist(key)) > 1:
            raise EjbError(Code.INVALID, "this is given more than once", where=f"query.{key!a}")


def create_app(manager: ManagerPort, examine: doctor.Examine | None = None) -> FastAPI:
    """The application over a manager; `examine` makes the checks of `ejb doctor`.

    `app.state.closing` ends what waits; :func:`ejbd.api.server.serve` sets it.
    """
    app = FastAPI(
        title="Elastic Job Bundling",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(_query)],
    )
    app.state.manager = manager
    app.state.examine = examine
    app.state.holders = Holders()
    app.state.token_proofs = TokenProofs()
    app.state.open_ports = frozenset[int]()
    app.state.looks = {}
    app.state.roles = Roles(manager.settings)
    app.state.allowances = Allowances(manager.settings.limits)
    app.state.oidc = Oidc(manager.settings.oidc) if manager.settings.oidc is not None else None
    by_provider = app.state.oidc is not None and app.state.oidc.settings.client_id is not None
    app.state.sign_ins = SignIns(app.state.oidc) if by_provider else None
    app.state.links = signin.Links()
    app.state.closing = asyncio.Event()
    problems.install(app)
    # In the order in which they are tried: submissions and what workers say come most often.
    modules = (
        *(jobs, worker, events, logs, timelines, history, queues, cluster, savings, drains, pools),
        *(workflows, tokens, signin, doctor, audit, system),
    )
    app.state.declared = Declared(module.router for module in modules)
    for module in modules:
        app.include_router(module.router)
    app.add_middleware(Head)
    app.add_middleware(SubmissionDoor, manager=manager)
    app.add_middleware(Guard, manager=manager)
    app.state.trail = open_trail(manager.settings.audit)
    app.add_middleware(AuditDoor, trail=app.state.trail)
    app.add_middleware(WorkerDoor, manager=manager, max_body_bytes=manager.settings.limits.max_body_bytes)
    openapi.install(app)
    return app
