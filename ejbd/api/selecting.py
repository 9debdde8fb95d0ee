"""Jobs as a caller may name them, within what the caller may see."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from sqlalchemy.orm import Session

from ejbd.api.auth import Principal
from ejbd.api.port import ManagerPort
from ejbd.store.models import Job
from ejbd.store.queries import resolve_job

SELECTION = r"^[A-Za-z0-9_.-]{1,256}$"  # of a range, whose dots are no part of a job's id

Selector = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="`last` (your newest job), `last-2` (two before it), an id, or the beginning of just one id",
    ),
]


async def select_job(manager: ManagerPort, caller: Principal, selector: str) -> Job:
    """The job. Raises EjbError (NOT_FOUND, also for other people's jobs; CONFLICT where several begin so)."""

    def look(session: Session) -> Job:
        return resolve_job(session, selector, caller.user, everybody=caller.admin)

    return await manager.store.read(look)
