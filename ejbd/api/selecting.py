"""Jobs as a caller may name them, within what the caller may see."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path
from sqlalchemy.orm import Session

from ejbd.api.auth import Principal
from ejbd.api.port import ManagerPort
from ejbd.store.models import Job
from ejbd.store.queries import resolve_job

SELECTION = r"^[A-Za-z0-9_.-]{1,256}$"  # of a range: its dots are no part of a job's id

Selector = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="`last` (your newest job), `last-2` (two before it), an id, or the beginning of just one id; with "
        "`_7` behind it that element of an array",
    ),
]
ELEMENTS = re.compile(r"(?P<array>[A-Za-z0-9-]+)_(?:(?P<one>[0-9]{1,7})|\[(?P<some>[0-9,:-]+)\])", re.ASCII)
SomeSelector = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_-]{1,64}(_\[[0-9,:-]{1,1024}\])?$",
        description="as elsewhere; with `_[1-5,7]` behind it these elements of an array",
    ),
]


async def select_job(manager: ManagerPort, caller: Principal, selector: str) -> Job:
    """The job. Raises EjbError (NOT_FOUND, also for other people's jobs; CONFLICT where several begin so)."""

    def look(session: Session) -> Job:
        return job_of(session, caller, selector)

    return await manager.store.read(look)


def job_of(session: Session, caller: Principal, selector: str) -> Job:
    """As :func:`select_job`, within a look. What was looked at is noted for the audit."""
    found = resolve_job(session, selector, caller.user, all_users=caller.sees_all)
    caller.touched.job, caller.touched.user = found.id, found.user
    return found
