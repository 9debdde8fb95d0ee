"""What the audit has, for administrators."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from ejbd.api.audit.records import read_back
from ejbd.api.audit.trail import IDENTIFIER, Trail
from ejbd.api.auth import Caller
from ejbd.api.models import NAME, Api
from ejbd.errors import Code, EjbError

router = APIRouter(prefix="/v1", tags=["daemon"])


class AuditFilter(Api):
    """Which lines are wanted."""

    user: Annotated[str | None, Field(max_length=256, pattern=NAME, description="that did it, or for which")] = None
    job: Annotated[str | None, Field(max_length=64, pattern=NAME)] = None
    outcome: Annotated[str | None, Field(pattern="^(done|refused|failed|unanswered)$")] = None
    since_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    until_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    limit: Annotated[int, Field(ge=1, le=10_000, description="the newest so many")] = 100


class AuditLines(Api):
    """Lines of the audit, the oldest first, as they stand in the file (docs/operators.md)."""

    lines: list[dict[str, Any]]


@router.get("/audit")
async def audit(request: Request, caller: Caller, query: Annotated[AuditFilter, Query()]) -> AuditLines:
    """What users did, or were refused. For administrators."""
    trail: Trail | None = request.app.state.trail
    if trail is None:
        raise EjbError(Code.UNSUPPORTED, "this daemon keeps no audit", hint="see `audit` in the configuration")
    if trail.path is None:
        raise EjbError(Code.UNSUPPORTED, "the journal has it", hint=f"journalctl -t {IDENTIFIER} -o cat")
    wanted = query.model_dump(exclude={"limit"})
    try:
        return AuditLines(lines=await asyncio.to_thread(read_back, trail.path, query.limit, **wanted))
    except OSError as error:
        message = f"the audit cannot be read: {error.strerror}"
        raise EjbError(Code.STORE, message, where=str(trail.path), transient=True) from None
