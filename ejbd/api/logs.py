"""A job's output, read from its files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.access.allowance import CountedStream
from ejbd.api.auth import Caller, Manager, Principal, still_holds
from ejbd.api.closing import closing_event
from ejbd.api.models import Api
from ejbd.api.port import ManagerPort
from ejbd.api.selecting import Selector, select_job
from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import NotPlain, NotTheirs, apart
from ejbd.manager.facts.batchjob import passing
from ejbd.manager.facts.batchjob.output import output_paths, server_in
from ejbd.manager.jobspec import JobSpec
from ejbd.store import queries
from ejbd.store.models import Job, Operation, Subjob
from ejbd.store.states import JobState
from ejbd.wire.kinds import JobKind, OperationKind, SubjobRole

CHUNK = 256 * 1024
LOOK_S = 0.25
OFFSET_HEADER, COMPLETE_HEADER = "X-EJB-Next-Offset", "X-EJB-Complete"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class LogFilter(Api):
    """Which part of the output is wanted."""

    stream: Stream = Stream.STDOUT
    offset: Annotated[int, Field(ge=0, le=2**53, description="bytes to leave out")] = 0
    follow: Annotated[bool, Field(description="go on until the job has ended")] = False


@dataclass(frozen=True, slots=True)
class _File:
    """Where the output is, which user it must belong to, and whether nothing more will come."""

    path: str
    user: str
    complete: bool


_RESPONSE = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": f"The bytes from `offset` on. Without `follow` at most {CHUNK}: go on at {OFFSET_HEADER} until "
        f"{COMPLETE_HEADER} is true",
    }
}


@router.get("/{job}/logs", response_class=Response, responses=_RESPONSE)  # type: ignore[arg-type]
async def logs(
    request: Request, manager: Manager, caller: Caller, job: Selector, query: Annotated[LogFilter, Query()]
) -> Response:
    """The job's standard output or error. The daemon reads only regular files that belong to the job's user."""
    found = await select_job(manager, caller, job)
    if query.follow:
        body = _following(request.app, manager, caller, found.id, query.stream, query.offset)
        return CountedStream(request, caller, body, media_type="application/octet-stream")
    file = await _file(manager, found.id, query.stream)
    data = await _read_apart(manager, file, query.offset)
    complete = file.complete and len(data) < CHUNK
    headers = {OFFSET_HEADER: str(query.offset + len(data)), COMPLETE_HEADER: "true" if complete else "false"}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _following(
    app: FastAPI, manager: ManagerPort, caller: Principal, job_id: str, stream: Stream, offset: int
) -> AsyncIterator[bytes]:
    while not closing_event(app).is_set() and await still_holds(app.state.holders, manager, caller):
        file = await _file(manager, job_id, stream)
        data = await _read_apart(manager, file, offset)
        offset += len(data)
        if data:
            yield data
        elif file.complete:
            return
        if len(data) < CHUNK:
            await asyncio.sleep(LOOK_S)


async def _file(manager: ManagerPort, job_id: str, stream: Stream) -> _File:
    def look(session: Session) -> _File:
        job = queries.job(session, job_id)
        output, error = _paths(session, job, manager.settings.traits.names_output)
        path = output if stream is Stream.STDOUT or error is None else error
        return _File(path, job.user, JobState(job.state).over)

    return await manager.store.read(look)


def _paths(session: Session, job: Job, names_output: bool) -> tuple[str, str | None]:
    """The files that the lead was asked to write; those of a passed-through job by its specification."""
    if job.kind == JobKind.ARRAY:
        raise EjbError(
            Code.UNSUPPORTED, "each element of an array has an output of its own", hint=f"such as that of {job.id}_1"
        )
    query = select(Operation).where(Operation.job_id == job.id, Operation.kind == OperationKind.LEAD)
    told = session.scalars(query.order_by(Operation.seq.desc()).limit(1)).first()
    if told is not None:
        return told.payload["output"], told.payload["error"]
    spec = JobSpec.from_json(job.spec)
    own = select(Subjob).where(Subjob.job_id == job.id, Subjob.role == SubjobRole.RIGID)
    last = (Subjob.start_s.is_(None), Subjob.start_s.desc(), Subjob.ordinal.desc())
    rigid = session.scalars(own.order_by(*last)).first()  # of one that was queued again the last that began
    id = rigid.batch_id if rigid is not None and rigid.batch_id is not None else ""
    if not names_output or spec.asked is None:
        number = id.partition(".")[0] or None
        whole = None if job.array_id is None else session.scalar(select(Job.number).where(Job.id == job.array_id))
        element = None if job.array_id is None else (whole or job.id, job.array_index or 0)
        return output_paths(spec, job.id, job.user, node="", number=number, element=element, server=server_in(id))
    if spec.asked.array is not None:
        raise EjbError(Code.UNSUPPORTED, "each element of an array has an output of its own", where=spec.cwd)
    number = id if job.number is None or job.array_id is not None else job.number
    return passing.output_of(spec, spec.asked, number, job.user, list(rigid.nodes) if rigid is not None else [])


def _read(manager: ManagerPort, file: _File, offset: int) -> bytes:
    """Up to CHUNK bytes; none where the file is not there yet."""
    try:
        return manager.read_output(file.user, file.path, CHUNK, offset)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except NotPlain:
        raise EjbError(Code.UNSUPPORTED, "the output is not a regular file", where=file.path) from None
    except NotTheirs:
        raise EjbError(Code.FORBIDDEN, f"the output does not belong to {file.user}", where=file.path) from None
    except OSError as error:
        raise EjbError(Code.NOT_FOUND, f"the output cannot be read: {error.strerror}", where=file.path) from None


async def _read_apart(manager: ManagerPort, file: _File, offset: int) -> bytes:
    try:
        return await apart(lambda: _read(manager, file, offset), user=file.user)
    except TimeoutError:
        message = "the output cannot be read: its file system does not answer"
        raise EjbError(Code.NOT_FOUND, message, where=file.path, transient=True) from None
