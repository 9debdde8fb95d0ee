"""The checks of `ejb doctor`, made by the daemon: with its configuration, its environment and its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from ejbd.api.auth import Caller
from ejbd.api.models import Api
from ejbd.errors import Code, EjbError

router = APIRouter(prefix="/v1", tags=["daemon"])
Examine = Callable[[bool, bool], Awaitable[list[dict[str, Any]]]]


class DoctorRequest(Api):
    """What is to be tried beside the usual checks, instead of them."""

    build_plugin: Annotated[bool, Field(description="compile and prove the DMTCP plugin, into the spool")] = False
    mpi: Annotated[bool, Field(description="try whether ranks of this site's MPI start without mpiexec, and end")] = (
        False
    )


class FindingView(Api):
    """One thing that was checked; where it is not good, `text` says how to mend it."""

    subject: str
    good: bool
    text: str


class Diagnosis(Api):
    """What was found; `good` where all of it is."""

    good: bool
    findings: list[FindingView]


@router.post("/doctor")
async def doctor(request: Request, caller: Caller, body: DoctorRequest) -> Diagnosis:
    """Check the site as this daemon sees it: batch commands, spool, clock, engines. For administrators."""
    examine: Examine | None = request.app.state.examine
    if examine is None:
        raise EjbError(Code.UNSUPPORTED, "this daemon makes no checks", hint="ejb doctor --config FILE")
    findings = await examine(body.build_plugin, body.mpi)
    return Diagnosis.model_validate({"good": all(one["good"] for one in findings), "findings": findings})
