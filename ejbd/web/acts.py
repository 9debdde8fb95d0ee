"""What forms do: each by the function that does it for REST, with the same rights."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from ejbd.api import doctor, jobs, queues
from ejbd.api.auth import Caller, Manager
from ejbd.api.doctor import DoctorRequest
from ejbd.api.queues import QueueName
from ejbd.api.selecting import Selector
from ejbd.errors import Code, EjbError
from ejbd.web.forms import Form
from ejbd.web.render import html
from ejbd.web.shared import Shared
from ejbd.web.site import Site

router = APIRouter(prefix="/web")
_ACTS = {"cancel": jobs.cancel, "hold": jobs.hold, "release": jobs.release}


@router.post("/jobs/{job}/{act}")
async def steer(
    manager: Manager,
    caller: Caller,
    form: Form,
    job: Selector,
    act: Annotated[Literal["cancel", "hold", "release"], Path()],
) -> Response:
    """Cancel, hold or release a job."""
    found = await _ACTS[act](manager, caller, job)
    return RedirectResponse(f"/web/jobs/{found.id}", 303)


@router.post("/queues/{name}/{act}")
async def set_queue(
    request: Request,
    manager: Manager,
    caller: Caller,
    form: Form,
    name: QueueName,
    act: Annotated[Literal["set", "resume"], Path()],
) -> Response:
    """Set a queue's elasticity (empty: as configured), or have it tried again at once. For operators."""
    if act == "resume":
        await queues.resume_queue(manager, caller, name)
    else:
        wanted = form.get("elasticity", "")
        if wanted not in ("", "on", "off", "auto"):
            raise EjbError(Code.INVALID, f"elasticity is on, off or auto, not {wanted[:20]!a}", where="elasticity")
        await queues.set_queue(manager, caller, name, {"elasticity": wanted or None})
    sites: Shared[Site] = request.app.state.sites
    sites.forget()
    return RedirectResponse(f"/web/queues#{quote(name)}", 303)


@router.post("/doctor")
async def examine(request: Request, manager: Manager, caller: Caller, form: Form) -> Response:
    """The checks of `ejb doctor`, faults first. For administrators."""
    found = await doctor.doctor(request, caller, DoctorRequest())
    findings = sorted(found.findings, key=lambda one: one.good)
    return html("doctor.html", (request, caller), good=found.good, findings=findings)
