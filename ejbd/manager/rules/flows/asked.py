"""What users ask of workflows: to take one, to end it, to try again what failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.manager.effects import CancelJob, Effects, Flush, Insert, MoveStage, MoveWorkflow, Wake, note, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.flows.standing import standing
from ejbd.manager.rules.flows.steps import conclude
from ejbd.store.flows import WORKFLOWS_TOPIC
from ejbd.store.models import Workflow, WorkflowStage
from ejbd.store.states import JobState, StageState, WorkflowState
from ejbd.wire.kinds import EventKind
from ejbd.workflow.graph import groups
from ejbd.workflow.plan import Plan


def receive(
    ctx: Context, id: str, plan: Plan, user: str, surroundings: Mapping[str, Any], key: str | None, digest: str
) -> Effects[None]:
    """Store a plan with its allocations."""
    yield Insert(
        Workflow(
            id=id,
            name=plan.name,
            user=user,
            state=WorkflowState.RUNNING,
            plan=plan.to_json(),
            surroundings=dict(surroundings),
            key=key,
            request_hash=digest,
            submit_s=ctx.now,
        )
    )
    yield Flush()
    found = groups(plan)
    for at, group in enumerate(found):
        yield Insert(WorkflowStage(workflow_id=id, name=group.name, ordinal=at, state=StageState.WAITING))
    yield tell(EventKind.WORKFLOW_RECEIVED, workflow=id, name=plan.name, user=user, allocations=len(found))
    yield Wake((WORKFLOWS_TOPIC,))


def cancel(ctx: Context, id: str, by: str) -> Effects[None]:
    """End a workflow: nothing new begins, and what runs is ended. Raises EjbError (CONFLICT) where it has ended."""
    found = standing(ctx, id)
    if found.workflow.state != WorkflowState.RUNNING:
        raise EjbError(Code.CONFLICT, f"workflow {id} is {found.workflow.state} and cannot be cancelled")
    if found.workflow.cancelled_by is not None:
        return
    yield note(found.workflow, cancelled_by=by)
    yield tell(EventKind.WORKFLOW_CANCEL_ASKED, workflow=id, by=by)
    for stage in found.stages.values():
        job = found.job(stage)
        if stage.state == StageState.SUBMITTED and job is not None and not JobState(job.state).terminal:
            yield CancelJob(job.id, by)
    yield from conclude(ctx, found)
    yield Wake((WORKFLOWS_TOPIC,))


def retry(ctx: Context, id: str) -> Effects[None]:
    """Try again what did not end well; what did is not run again. Raises EjbError (CONFLICT) where nothing failed."""
    found = standing(ctx, id)
    if found.workflow.state not in (WorkflowState.FAILED, WorkflowState.CANCELLED):
        message = f"workflow {id} is {found.workflow.state}; only one that has failed can be tried again"
        raise EjbError(Code.CONFLICT, message)
    yield note(found.workflow, cancelled_by=None)
    yield MoveWorkflow(found.workflow, WorkflowState.RUNNING)
    for stage in found.stages.values():
        if not StageState(stage.state).done:
            yield note(stage, failures=0, dropping=False)
            yield MoveStage(stage, StageState.WAITING)
