"""Workflows: plans of stages, each with a width of its own (docs/workflows.md)."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.access.groups import refuse_another_group
from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.jobs import IdempotencyKey
from ejbd.api.models import MOST_WORDS, NAME, Api, Body, Limit
from ejbd.api.models.submission import Profiles
from ejbd.api.port import ManagerPort
from ejbd.manager.submission.flows import Asked
from ejbd.manager.telling import flows as telling
from ejbd.store.flows import resolve_workflow
from ejbd.store.models import Workflow
from ejbd.wire.states import JobState, StageState, WorkflowState
from ejbd.workflow.tree import MOST_CHARACTERS

router = APIRouter(prefix="/v1/workflows", tags=["workflows"])

Selector = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9-]{1,64}$",
        description="`last` (your newest workflow), `last-2`, an id, or the beginning of just one",
    ),
]


class WorkflowSubmission(Body):
    """A plan, and what its stages are run with: those of the submitter."""

    plan: Annotated[
        str,
        Field(
            max_length=MOST_CHARACTERS,
            description="the text of the plan, in YAML",
            examples=["workflow: {command: hostname, stage1: {tasks: 1, walltime: 5}}"],
        ),
    ]
    file: Annotated[str, Field(max_length=4096, pattern=NAME, description="what errors call the plan")] = "plan.yaml"
    cwd: Annotated[
        str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$", description="absolute path", examples=["/"])
    ]
    env: Annotated[dict[str, str], Field(default_factory=dict, max_length=MOST_WORDS, fail_fast=True)]
    umask: Annotated[int | None, Field(ge=0, le=0o777)] = None
    limits: Annotated[
        dict[Limit, Annotated[int, Field(ge=-1, le=2**63 - 1)]], Field(default_factory=dict, fail_fast=True)
    ]
    profiles: Profiles = Field(default_factory=dict)

    def asked(self) -> Asked:
        """As the manager takes it."""
        without = set() if self.profiles else {"profiles"}  # so that a request from before it has the same digest
        told = self.model_dump(mode="json", exclude={"plan", "file", *without})
        return Asked(self.plan, self.file, told)


class StageView(Api):
    """An allocation: a stage, or several that share it; by the name of its first one. `needs`: allocations."""

    name: str
    stages: list[str]
    needs: list[str]
    tasks: Annotated[int, Field(description="processors, of all elements of a scattered stage together")]
    walltime_s: float
    state: StageState
    attempt: int
    job: Annotated[str | None, Field(description="of the latest attempt")]
    job_state: JobState | None
    reason: str
    end_s: float | None


class WorkflowView(Api):
    """A workflow and how far it is."""

    id: str
    name: str
    user: str
    state: WorkflowState
    mode: Literal["default", "fast"]
    reason: str
    submit_s: float
    end_s: float | None
    stages: list[StageView]


class Workflows(Api):
    """Newest first."""

    workflows: list[WorkflowView]


class Checked(Api):
    """The plan can be right, and this site would take its allocations."""

    ok: Literal[True]


class CoreHours(Api):
    """`held` is the sum of the others: `used` by ranks, lost to `moves` (launches and checkpoints), and idle."""

    held: float
    used: float
    moves: float
    waits: Annotated[float, Field(description="held with no rank running")]


class MarkView(Api):
    """A stage that shared an allocation with others."""

    stage: str
    begin_s: float
    end_s: float | None
    code: int | None


class AttemptView(Api):
    """One attempt at an allocation. `outcome`: how its job ended; empty: it goes on; `lingered`: queued in vain."""

    stage: str
    attempt: int
    stages: list[str]
    job: str | None
    ahead: bool
    outcome: str
    tasks: int
    submit_s: float
    start_s: float | None
    end_s: float | None
    run_s: float | None
    wait_s: float
    core_h: CoreHours
    marks: list[MarkView]


class WorkflowReport(Api):
    """Accounts in core-hours, beside one allocation of the greatest width (Eq. 1 of E-HPC)."""

    id: str
    name: str
    state: WorkflowState
    submit_s: float
    end_s: float | None
    turnaround_s: float
    widest: int
    run_s: Annotated[float, Field(description="of all attempts, one after the other")]
    wait_s: Annotated[float, Field(description="from a submission to its start, of all attempts")]
    core_h: CoreHours
    one_allocation_core_h: float
    saved_percent: float | None
    attempts: list[AttemptView]


@router.post("", status_code=201, responses={200: {"model": WorkflowView, "description": "Answered before"}})
async def submit(
    request: Request,
    manager: Manager,
    caller: Caller,
    body: WorkflowSubmission,
    response: Response,
    key: IdempotencyKey = None,
) -> WorkflowView:
    """Store a workflow. It is durable when this answers."""
    refuse_another_group(caller, manager.settings)
    await request.app.state.allowances.workflow(caller, manager)
    id, created = await manager.submit_workflow(body.asked(), caller.user, key)
    response.status_code = 201 if created else 200
    return await _view(manager, caller, id)


@router.post("/check")
async def check(manager: Manager, caller: Caller, body: WorkflowSubmission) -> Checked:
    """Whether the plan can be right, and this site would take its allocations. Nothing is kept."""
    await manager.check_workflow(body.asked(), caller.user)
    return Checked(ok=True)


@router.get("")
async def list_workflows(
    manager: Manager, caller: Caller, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> Workflows:
    """The newest workflows: one's own, for operators all users'."""

    def look(session: Session) -> dict[str, Any]:
        query = select(Workflow).order_by(Workflow.seq.desc()).limit(limit)
        if not caller.sees_all:
            query = query.where(Workflow.user == caller.user)
        return {"workflows": [telling.view(session, one) for one in session.scalars(query)]}

    return Workflows.model_validate(await manager.store.read(look))


@router.get("/{workflow}")
async def show(manager: Manager, caller: Caller, workflow: Selector) -> WorkflowView:
    """One workflow."""
    return await _view(manager, caller, workflow)


@router.get("/{workflow}/report")
async def report(manager: Manager, caller: Caller, workflow: Selector) -> WorkflowReport:
    """Its accounts: what its jobs held and used, by attempt, beside one allocation."""

    def look(session: Session) -> dict[str, Any]:
        return telling.report(session, _found(session, caller, workflow), time.time())

    return WorkflowReport.model_validate(await manager.store.read(look))


@router.post("/{workflow}/cancel")
async def cancel(manager: Manager, caller: Caller, workflow: Selector) -> WorkflowView:
    """End a workflow: nothing new begins, and what runs is ended."""
    id = await _id(manager, caller, workflow)
    await manager.cancel_workflow(id, caller.user)
    return await _view(manager, caller, id)


@router.post("/{workflow}/retry")
async def retry(manager: Manager, caller: Caller, workflow: Selector) -> WorkflowView:
    """Try again what did not end well."""
    id = await _id(manager, caller, workflow)
    await manager.retry_workflow(id)
    return await _view(manager, caller, id)


def _found(session: Session, caller: Principal, selector: str) -> Workflow:
    found = resolve_workflow(session, selector, caller.user, all_users=caller.sees_all)
    caller.touched.user = found.user
    return found


async def _id(manager: ManagerPort, caller: Principal, selector: str) -> str:
    return await manager.store.read(lambda s: _found(s, caller, selector).id)


async def _view(manager: ManagerPort, caller: Principal, selector: str) -> WorkflowView:
    found = await manager.store.read(lambda s: telling.view(s, _found(s, caller, selector)))
    return WorkflowView.model_validate(found)
