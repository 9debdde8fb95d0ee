"""A copy of a database becomes another site's: what is open in it stays with the daemon that the copy is of."""

from __future__ import annotations

import time
from functools import partial

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store import marks
from ejbd.store.engine import place
from ejbd.store.flows import move_stage, move_workflow
from ejbd.store.models import (
    Array,
    Dependency,
    Epoch,
    Intent,
    Job,
    Mark,
    Operation,
    Subjob,
    Worker,
    Workflow,
    WorkflowStage,
)
from ejbd.store.states import (
    TERMINAL_JOB,
    TERMINAL_SUBJOB,
    EpochState,
    IntentState,
    JobState,
    OperationState,
    StageState,
    SubjobState,
    WorkflowState,
)
from ejbd.store.store import Store
from ejbd.store.transitions import move_epoch, move_intent, move_job, move_operation, move_subjob

LEFT = "left to the daemon that has the database of which this one is a copy"
_INTENT_ENDS = {
    IntentState.PENDING: IntentState.DROPPED,
    IntentState.EXECUTING: IntentState.FAILED,
    IntentState.UNKNOWN: IntentState.FAILED,
}


def make_another_site(url: str, *, leave_jobs: bool = False) -> int:
    """Give the database another name, and end what is open in it here alone; the number of such jobs.

    Nothing is asked of the batch system or a spool. Raises EjbError: `conflict` where a daemon runs on it, or where it
    has open jobs and `leave_jobs` does not say that they are another daemon's; `store`.
    """
    store = Store(url)
    try:
        store.acquire_single_writer()
        store.upgrade()
        open_jobs = store.read_sync(lambda s: s.scalar(select(func.count()).where(Job.state.not_in(TERMINAL_JOB)))) or 0
        if open_jobs and not leave_jobs:
            why = f"the database has {open_jobs} open jobs, which no daemon on it would know any more"
            hint = "--leave-jobs says that another daemon has them"
            raise EjbError(Code.CONFLICT, why, where=place(store.url), hint=hint)
        store.write_sync(partial(_leave, now=time.time()))
        return open_jobs
    finally:
        store.close()


def _leave(session: Session, now: float) -> None:
    for intent in session.scalars(select(Intent).where(Intent.state.in_(_INTENT_ENDS))):
        move_intent(session, intent, _INTENT_ENDS[IntentState(intent.state)], now, reason=LEFT)
    unanswered = Operation.state.in_((OperationState.QUEUED, OperationState.LEASED))
    for operation in session.scalars(select(Operation).where(unanswered)):
        move_operation(session, operation, OperationState.ABANDONED, now)
    for epoch in session.scalars(select(Epoch).where(Epoch.state.in_([state for state in EpochState if state.live]))):
        move_epoch(session, epoch, EpochState.FAILED, now, reason=LEFT)
    session.execute(update(Worker).where(Worker.alive).values(alive=False))
    for subjob in session.scalars(select(Subjob).where(Subjob.state.not_in(TERMINAL_SUBJOB))):
        move_subjob(session, subjob, SubjobState.LOST, now, reason=LEFT)
    for stage in session.scalars(select(WorkflowStage)):
        if not StageState(stage.state).terminal:
            move_stage(session, stage, StageState.CANCELLED, now, LEFT)
    for workflow in session.scalars(select(Workflow).where(Workflow.state == WorkflowState.RUNNING)):
        move_workflow(session, workflow, WorkflowState.CANCELLED, now, LEFT)
    session.execute(delete(Dependency))
    session.execute(update(Array).values(ahead=""))
    for job in session.scalars(select(Job).where(Job.state.not_in(TERMINAL_JOB))):
        move_job(session, job, JobState.CANCELLED, now, reason=LEFT)
    session.execute(delete(Mark).where(Mark.name.in_((marks.DATABASE, marks.SPOOL, marks.SIGN))))
    marks.identity(session)
