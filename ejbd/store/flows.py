"""Workflows in the store: changes of state, and how one is named."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store.models import Workflow, WorkflowStage
from ejbd.store.states import (
    STAGE,
    STAGE_SETBACK,
    WORKFLOW,
    WORKFLOW_SETBACK,
    StageState,
    WorkflowState,
    check,
)
from ejbd.store.transitions import add_event, wake
from ejbd.wire.kinds import STAGE_EVENT, WORKFLOW_EVENT

WORKFLOWS_TOPIC = "workflows"
LAST = re.compile(r"last(?:-([0-9]{1,9}))?")


def move_workflow(session: Session, workflow: Workflow, new: WorkflowState, now: float, reason: str = "") -> None:
    """Event `workflow.<new>`. Raises IllegalTransition."""
    old = WorkflowState(workflow.state)
    if new is old:
        return
    check(WORKFLOW, old, new, setback=WORKFLOW_SETBACK)
    workflow.state, workflow.reason = new.value, reason
    workflow.end_s = now if new.terminal else None
    told = {"reason": reason} if reason else {}
    add_event(session, WORKFLOW_EVENT[new], now, workflow=workflow.id, **{"from": old.value, **told})
    wake(session, WORKFLOWS_TOPIC)


def move_stage(session: Session, stage: WorkflowStage, new: StageState, now: float, reason: str = "") -> None:
    """Event `stage.<new>`. Raises IllegalTransition."""
    old = StageState(stage.state)
    if new is old:
        return
    check(STAGE, old, new, setback=STAGE_SETBACK)
    stage.state, stage.reason = new.value, reason
    stage.end_s = now if new.terminal else None
    told: dict[str, Any] = {"from": old.value, **({"reason": reason} if reason else {})}
    if stage.job_id is not None:
        told["job"] = stage.job_id
    told |= {"workflow": stage.workflow_id, "stage": stage.name, "attempt": stage.attempt}
    add_event(session, STAGE_EVENT[new], now, **told)
    wake(session, WORKFLOWS_TOPIC)


def resolve_workflow(session: Session, selector: str, user: str, *, all_users: bool = False) -> Workflow:
    """The workflow that `selector` names: `last`, `last-2`, an id, or the beginning of just one.

    Only `user`'s own are looked at, unless `all_users`. Raises EjbError (NOT_FOUND, CONFLICT).
    """
    own = select(Workflow).where(Workflow.user == user)
    if (last := LAST.fullmatch(selector)) is not None:
        newest = session.scalar(own.order_by(Workflow.seq.desc()).offset(int(last[1] or 0)).limit(1))
        if newest is None:
            raise EjbError(Code.NOT_FOUND, f"{user} has no such workflow", where=selector)
        return newest
    within = select(Workflow) if all_users else own
    begin = Workflow.id.startswith(selector, autoescape=True)
    found = session.scalars(within.where(begin).order_by(Workflow.seq.desc()).limit(2)).all()
    if not found:
        raise EjbError(Code.NOT_FOUND, f"there is no workflow {selector!r}", hint="`ejb workflow status` lists yours")
    if len(found) > 1 and found[0].id != selector:
        message = f"{selector!r} is the beginning of several workflows' ids"
        raise EjbError(Code.CONFLICT, message, hint="give more of the id")
    return found[0]
