"""Pools: allocations in which EJB runs its user's own jobs, folded in place for the next one (docs/malleable.md).

To this daemon a pool is a job that is passed through. What runs in it is for the pool's own daemon to say, which has
this same API. A pool is known by its key: an Idempotency-Key with a space in it, which no request can have. It names
the pool and the job that this was before, so that of requests at the same moment one begins it.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import sys
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.jobs import IdempotencyKey
from ejbd.api.models import NAME, Api, JobSubmission, JobView, OverridesBody
from ejbd.api.port import ManagerPort
from ejbd.api.submission import submitted
from ejbd.api.views import job_views
from ejbd.errors import Code, EjbError
from ejbd.store import models
from ejbd.store.models import Job
from ejbd.wire.states import LIVING_JOB, JobState

router = APIRouter(prefix="/v1/pools", tags=["pools"])
JOB_NAME = "ejb-pool-"
KEY_OF_POOLS = "pool "

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PoolName = Annotated[str, Path(pattern=_NAME)]
Owner = Annotated[str | None, Query(max_length=256, pattern=NAME, description="its owner; for operators")]


class PoolRequest(Api):
    """An allocation for a pool."""

    name: Annotated[str, Field(pattern=_NAME, examples=["play"])]
    nodes: Annotated[int, Field(ge=1, le=100_000, description="whole nodes")] = 1
    time: Annotated[str, Field(pattern=r"^[0-9:-]{1,32}$", description="for so long, as sbatch has it")] = "1:00:00"
    partition: Annotated[str | None, Field(max_length=256, pattern=NAME)] = None
    cwd: Annotated[str, Field(min_length=1, max_length=4096, pattern="^/[^\\x00]*$", examples=["/"])] = "/"
    env: dict[str, str] = Field(default_factory=dict, max_length=20_000, fail_fast=True, description="the submitter's")
    output: Annotated[str | None, Field(max_length=4096, pattern=NAME, description="what the pool itself prints")] = (
        None
    )
    after: Annotated[str | None, Field(max_length=64, pattern=NAME, description="the job of one that is ending")] = None
    python: Annotated[str | None, Field(max_length=4096, pattern=NAME, description="that has EJB, on the nodes")] = None


class PoolView(Api):
    """A pool that has not ended."""

    name: str
    user: str
    job: Annotated[str, Field(description="the job that it is; `GET /v1/jobs/{job}` has the rest")]
    state: JobState
    nodes: list[str]
    submit_s: float
    start_s: float | None
    walltime_s: float


class Pools(Api):
    """Those that have not ended."""

    pools: list[PoolView]


@router.get("")
async def list_pools(manager: Manager, caller: Caller) -> Pools:
    """Pools that have not ended, the newest first: one's own, for operators all users'."""
    return Pools(pools=[view for view, _ in await _find(manager, None if caller.sees_all else caller.user)])


@router.post("", status_code=201, responses={200: {"model": PoolView, "description": "Answered before"}})
async def start(
    request: Request,
    manager: Manager,
    caller: Caller,
    body: PoolRequest,
    response: Response,
    key: IdempotencyKey = None,
) -> PoolView:
    """Take an allocation for a pool of one's own. It is durable when this answers, and runs when Slurm starts it."""
    if manager.settings.batch != "slurm":
        raise EjbError(Code.UNSUPPORTED, "a pool is an allocation of Slurm, which is not the batch system here")
    asked = f"{key or secrets.token_hex()} {body.model_dump_json()}"
    digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
    before = await _find(manager, caller.user, body.name, alive=False)
    for view, known in before:
        if known == digest:
            response.status_code = 200
            return view
        if view.state in LIVING_JOB and view.job != body.after:
            raise _taken(body.name)
    serving = shlex.join([body.python or sys.executable, "-m", "ejbd.cli.pool_serving", body.name, body.time])
    overrides = OverridesBody(
        name=JOB_NAME + body.name,
        nodes=body.nodes,
        time=body.time,
        partition=body.partition,
        output=body.output,
        elastic="off",
        options=["--exclusive"],
    )
    script = f"#!/bin/sh\nexec {serving}\n"
    job = JobSubmission(cwd=body.cwd, env=body.env, script=script, script_name="pool", overrides=overrides)
    own = f"{KEY_OF_POOLS}{body.name} {''.join(view.job for view, _ in before)}"
    try:
        made = await submitted(manager, request.app.state.allowances, caller, job, own, digest)
    except EjbError as error:
        raise _taken(body.name) if error.code is Code.KEY_REUSED else error from None
    response.status_code = 201 if made.created else 200
    return (await _find(manager, caller.user, body.name, alive=False))[0][0]


def _taken(name: str) -> EjbError:
    return EjbError(Code.CONFLICT, f"there is a pool {name} already", hint=f"ejb pool stop {name}, or another name")


@router.get("/{name}")
async def show(manager: Manager, caller: Caller, name: PoolName, user: Owner = None) -> PoolView:
    """One pool that has not ended."""
    return await _one(manager, caller, name, user)


@router.delete("/{name}")
async def stop(manager: Manager, caller: Caller, name: PoolName, user: Owner = None) -> PoolView:
    """End a pool, with what runs in it."""
    found = await _one(manager, caller, name, user)
    caller.touched.job, caller.touched.user = found.job, found.user
    await manager.cancel(found.job, caller.user)
    return found


async def _one(manager: ManagerPort, caller: Principal, name: str, user: str | None) -> PoolView:
    if user not in (None, caller.user) and not caller.sees_all:
        raise EjbError(Code.FORBIDDEN, "the pools of others are for operators", where="query.user")
    found = await _find(manager, user or caller.user, name)
    if not found:
        raise EjbError(Code.NOT_FOUND, f"there is no pool {name} that has not ended", hint="ejb pool list")
    return found[0][0]


async def _find(
    manager: ManagerPort, user: str | None, name: str | None = None, *, alive: bool = True
) -> list[tuple[PoolView, str]]:
    """Pools, the newest first, and the digest of what asked for each; without `alive` also those that have ended."""
    keys = models.IdempotencyKey
    begins = KEY_OF_POOLS if name is None else f"{KEY_OF_POOLS}{name} "
    wanted = select(Job, keys.key, keys.request_hash).join(keys, keys.job_id == Job.id)
    wanted = wanted.where(keys.key.startswith(begins, autoescape=True)).order_by(Job.seq.desc())
    if alive:
        wanted = wanted.where(Job.state.in_(LIVING_JOB))
    if user is not None:
        wanted = wanted.where(Job.user == user)

    def look(session: Session) -> list[tuple[PoolView, str]]:
        rows = session.execute(wanted.limit(None if alive else 1)).all()
        views = job_views([row.Job for row in rows], session)
        return [(_view(view, row.key), row.request_hash) for view, row in zip(views, rows, strict=True)]

    return await manager.store.read(look)


def _view(job: JobView, key: str) -> PoolView:
    return PoolView(
        name=key.split(" ")[1],
        user=job.user,
        job=job.id,
        state=job.state,
        nodes=job.nodes,
        submit_s=job.submit_s,
        start_s=job.start_s,
        walltime_s=job.walltime_s,
    )
