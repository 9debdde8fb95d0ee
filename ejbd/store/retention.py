"""What is old goes: finished jobs with everything of theirs, old events that belong to no job, and old measurements.

A live job keeps all of its events, however old: its timeline is made of them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, CursorResult, Delete, Select, delete, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from ejbd.store.models import (
    Array,
    Dependency,
    Epoch,
    Event,
    IdempotencyKey,
    Intent,
    Job,
    Launch,
    Move,
    Obstacle,
    Operation,
    OtherDay,
    OtherGap,
    OtherJob,
    OtherKept,
    OtherPriority,
    OtherReplay,
    Overhead,
    Run,
    Speed,
    Subjob,
    Token,
    Worker,
    Workflow,
    WorkflowRun,
    WorkflowStage,
)
from ejbd.store.queries import open_or_ended
from ejbd.store.states import LIVING_JOB, OPEN_SUBJOB, TERMINAL_JOB, IntentState, WorkflowState
from ejbd.store.store import Store

DAY_S = 86400.0
BATCH_ROWS = 1000
NO_EVENT = 2**62  # a number that no event has
UNSETTLED = (IntentState.PENDING.value, IntentState.EXECUTING.value, IntentState.UNKNOWN.value)

# Many a job: deleted bit by bit. The rest goes with the job; those that others point at come last.
_MANY: tuple[tuple[InstrumentedAttribute[int], ColumnElement[Any]], ...] = (
    (Operation.seq, Operation.job_id.expression),
    (Intent.id, Intent.job_id.expression),
    (Event.id, Event.job_id.expression),
)
_MEASURED: tuple[tuple[InstrumentedAttribute[int], ColumnElement[float]], ...] = (
    (Move.id, Move.at_s.expression),
    (Speed.id, Speed.at_s.expression),
    (Run.id, Run.at_s.expression),
    (Obstacle.id, Obstacle.at_s.expression),
    (Overhead.id, Overhead.at_s.expression),
)
_FEW = (IdempotencyKey, Epoch, Launch, Worker, Subjob, Array, Dependency)


def prune(session: Session, now: float, days: float, *, rows: int = BATCH_ROWS) -> int:
    """Delete at most about `rows` rows that are older than `days`; returns how many went. 0: nothing is left to do.

    A job is old when it ended that long ago. It may have no subjob at the batch system, and no action on the batch
    system under way.
    """
    before = now - days * DAY_S
    left = rows
    # An element stays as long as its array goes on, which ends as they did.
    living = select(Array.job_id).join(Job).where(Job.state.in_(LIVING_JOB))
    old = _old_jobs(before).where(or_(Job.array_id.is_(None), Job.array_id.not_in(living)))
    for job_id in session.scalars(old.limit(rows)).all():
        left -= _delete_job(session, job_id, left)
        if left <= 0:
            return rows - left
    left -= _delete_workflows(session, before, left)
    if left <= 0:
        return rows - left
    first_kept = select(Event.id).where(Event.at_s >= before).order_by(Event.id).limit(1).scalar_subquery()
    is_its_own = or_(Event.job_id.is_(None), ~exists().where(Job.id == Event.job_id))
    of_no_job = select(Event.id).where(Event.id < func.coalesce(first_kept, NO_EVENT), is_its_own).limit(left)
    left -= _delete(session, Event.id, of_no_job)
    if left > 0:
        left -= _count(session, delete(Token).where(or_(Token.expires_s.is_(None), Token.expires_s < now)))
    for key, at_s in _MEASURED:
        if left <= 0:
            break
        left -= _delete(session, key, select(key).where(at_s < before).limit(left))
    return rows - left


async def prune_all(store: Store, now: float, days: float) -> int:
    """:meth:`prune` until nothing is left, a transaction each, so that other writers get their turns in between."""
    total = 0
    while went := await store.write(lambda session: prune(session, now, days)):
        total += went
    return total


async def prune_others(store: Store, now: float, jobs_days: float, days: float) -> int:
    """Let go of jobs that are not EJB's and ended more than `jobs_days` ago, and of what they gained `days` ago."""
    before, total = now - jobs_days * DAY_S, 0
    old = select(OtherJob.seq).where(OtherJob.open.is_(False), OtherJob.changed_s < before).limit(BATCH_ROWS)
    while went := await store.write(lambda session: _delete(session, OtherJob.seq, old)):
        total += went

    def reckoned(session: Session) -> int:
        _count(session, delete(OtherPriority).where(OtherPriority.started_s < now - days * DAY_S))
        _count(session, delete(OtherKept).where(OtherKept.end_s < now - days * DAY_S))
        went = _count(session, delete(OtherGap).where(OtherGap.until_s < now - days * DAY_S))
        for table in (OtherDay, OtherReplay):
            went += _count(session, delete(table).where(table.day_s < now - days * DAY_S))
        return went

    return total + await store.write(reckoned)


def in_use(session: Session, now: float, days: float) -> set[str]:
    """The jobs with files that may still be wanted. They did not end more than `days` ago, or have not ended at the
    batch system.
    """
    before = now - days * DAY_S
    found = set(session.scalars(select(Job.id).where(open_or_ended(Job, before))))
    found.update(session.scalars(select(Subjob.job_id).where(Subjob.state.in_(OPEN_SUBJOB))))
    found.update(session.scalars(select(Intent.job_id).where(Intent.state.in_(UNSETTLED))))
    return found


def _old_jobs(before: float) -> Select[Any]:
    subjobs = select(Subjob.job_id).where(Subjob.state.in_(OPEN_SUBJOB))
    intents = select(Intent.job_id).where(Intent.state.in_(UNSETTLED))
    return (
        select(Job.id)
        .where(Job.state.in_([state.value for state in TERMINAL_JOB]), Job.end_s < before)
        .where(Job.id.not_in(subjobs), Job.id.not_in(intents))
        .order_by(Job.seq)
    )


def _delete_job(session: Session, job_id: str, rows: int) -> int:
    """Delete a job, or the first `rows` of what hangs on it; returns how many went."""
    left = rows
    for key, owner in _MANY:
        left -= _delete(session, key, select(key).where(owner == job_id).limit(left))
        if left <= 0:
            return rows - left  # the job's own row is still there, so that the next batch finds the rest
    for table in _FEW:
        left -= _count(session, delete(table).where(table.job_id == job_id))
    return rows - left + _count(session, delete(Job).where(Job.id == job_id))


def _delete_workflows(session: Session, before: float, rows: int) -> int:
    """Delete workflows that ended before then, with what they asked for; what their jobs cost goes with them."""
    old = select(Workflow.id).where(Workflow.state != WorkflowState.RUNNING, Workflow.end_s < before)
    went = 0
    for id in session.scalars(old.order_by(Workflow.seq).limit(rows)).all():
        for table in (WorkflowRun, WorkflowStage):
            went += _count(session, delete(table).where(table.workflow_id == id))
        went += _count(session, delete(Workflow).where(Workflow.id == id))
    return went


def _delete(session: Session, key: InstrumentedAttribute[int], which: Select[Any]) -> int:
    return _count(session, delete(key.class_).where(key.in_(which)))


def _count(session: Session, statement: Delete) -> int:
    result = session.execute(statement, execution_options={"synchronize_session": False})
    return result.rowcount if isinstance(result, CursorResult) else 0
