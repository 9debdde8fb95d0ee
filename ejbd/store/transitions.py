"""Changes of state. Each checks its table of :mod:`ejbd.store.states`, and sets the time columns that belong to the new
state. It appends its event and names the readers to wake, all in the session's one transaction.

`now` is in seconds since the epoch. A move to the state that the row already has writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Insert, insert
from sqlalchemy.orm import Session

from ejbd.store.models import Array, Base, Epoch, Event, Intent, Job, Operation, Subjob
from ejbd.store.states import (
    EPOCH,
    EPOCH_SETBACK,
    INTENT,
    INTENT_SETBACK,
    JOB,
    JOB_SETBACK,
    OPERATION,
    SUBJOB,
    SUBJOB_SETBACK,
    EpochState,
    IntentState,
    JobState,
    OperationState,
    S,
    SubjobState,
    Table,
    check,
)
from ejbd.wire.kinds import EPOCH_EVENT, INTENT_EVENT, JOB_EVENT, SUBJOB_EVENT, EventKind

WAKE = "wake"  # key of Session.info: a set of topics that Store.write hands out after the commit
EVENTS_TOPIC = "events"
INTENTS_TOPIC = "intents"
NEW_JOBS_TOPIC = "new-jobs"
QUEUES_TOPIC = "queues"  # of a change of their settings
STARTED_TOPIC = "started"  # a batch job has started, as its worker reports, and only a poll can say more
LEFT_TOPIC = "left"  # a worker has left: its processors are about to be free
JOB_TOPICS = "job:"  # with a job's id behind it
ROWS_TOPICS = "rows-of:"  # the same: its workers, launches, placements or operations


def job_topic(job_id: str) -> str:
    """The topic of everything that happens to this job."""
    return JOB_TOPICS + job_id


def rows_topic(job_id: str) -> str:
    """The topic of the rows beside those of this job and its subjobs, of which not each change is told to readers."""
    return ROWS_TOPICS + job_id


def wake(session: Session, *topics: str) -> None:
    """Have `topics` handed to the store's `on_commit` callbacks once this transaction is durable."""
    session.info.setdefault(WAKE, set()).update(topics)


def insert_row(session: Session, model: type[Base], **values: Any) -> None:
    """Insert a row that this transaction does not go on to work with, at a fraction of what an object costs."""
    session.connection().execute(_insert_into(model), values)


def insert_rows(session: Session, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert many rows of the same columns by one statement."""
    if rows:
        session.connection().execute(_insert_into(model), rows)


@cache
def _insert_into(model: type[Base]) -> Insert:
    return insert(model.__table__)  # type: ignore[arg-type]


def add_event(
    session: Session,
    kind: EventKind,
    now: float,
    *,
    job_id: str | None = None,
    subjob_id: str | None = None,
    **data: Any,
) -> None:
    """Append an event; `data` must be plain JSON values."""
    insert_row(session, Event, at_s=now, job_id=job_id, subjob_id=subjob_id, kind=kind.value, data=data)
    wake(session, EVENTS_TOPIC)
    if job_id is not None:
        wake(session, job_topic(job_id))


def add_events(session: Session, events: Sequence[dict[str, Any]]) -> None:
    """Append many events by one statement: the columns of each, with its `job_id`."""
    if not events:
        return
    session.connection().execute(_insert_into(Event), [{"subjob_id": None, **event} for event in events])
    wake(session, EVENTS_TOPIC, *(job_topic(event["job_id"]) for event in events))


def move_job(
    session: Session, job: Job, new: JobState, now: float, *, reason: str = "", setback: bool = False, **data: Any
) -> None:
    """Event `job.<new>`. `setback` goes down the order and begins the next incarnation.

    Raises IllegalTransition. `start_s` is the first start, whatever happened since; `end_s` is set on a terminal state.
    The job's reason becomes `reason`, that of its new state, which has none where nothing is said.
    """
    old = JobState(job.state)
    if new is old:
        return
    _check(JOB, JOB_SETBACK, old, new, setback)
    job.state = new.value
    if setback:
        job.incarnation += 1
        data["incarnation"] = job.incarnation
    if new is JobState.RUNNING and job.start_s is None:
        job.start_s = now
    if new.terminal:
        job.end_s = now
    job.reason = reason  # what was said of the state before is over with it
    if new.terminal or new is JobState.RUNNING:
        wake(session, NEW_JOBS_TOPIC)  # others may wait for it
        array = session.get(Array, job.array_id) if job.array_id is not None else None
        if array is not None:
            array.open -= new.terminal
            array.changed = True
    add_event(session, JOB_EVENT[new], now, job_id=job.id, **_step(old.value, reason), **data)


def move_subjob(
    session: Session,
    subjob: Subjob,
    new: SubjobState,
    now: float,
    *,
    reason: str = "",
    setback: bool = False,
    **data: Any,
) -> None:
    """Event `subjob.<new>`. `setback`: the batch system has put it back into its queue, or lets it run on after a
    suspension. Raises IllegalTransition.

    `submit_s` and `start_s` are left alone where the batch system's own times were put there before. `end_s` becomes
    `now` on a terminal state, since until then it held the planned end. A caller that knows better puts it there
    afterwards.
    """
    old = SubjobState(subjob.state)
    if new is old:
        return
    _check(SUBJOB, SUBJOB_SETBACK, old, new, setback)
    subjob.state = new.value
    if setback and new is SubjobState.PENDING:
        subjob.start_s = subjob.end_s = None
        subjob.nodes = []
    if new in (SubjobState.PENDING, SubjobState.RUNNING) and subjob.submit_s is None:
        subjob.submit_s = now
    if new is SubjobState.RUNNING and subjob.start_s is None:
        subjob.start_s = now
    if new.terminal:
        subjob.end_s = now
    if reason or new is not SubjobState.PENDING:
        subjob.reason = reason  # why it waited is over
    add_event(
        session,
        SUBJOB_EVENT[new],
        now,
        job_id=subjob.job_id,
        subjob_id=subjob.id,
        **_step(old.value, reason),
        **data,
    )


def move_epoch(
    session: Session,
    epoch: Epoch,
    new: EpochState,
    now: float,
    *,
    reason: str = "",
    code: str = "",
    setback: bool = False,
    **data: Any,
) -> None:
    """Event `epoch.<new>` with `epoch` its number. `setback`: no rank stopped, so it runs on. `code`: an EpochCode.

    Raises IllegalTransition.
    """
    old = EpochState(epoch.state)
    if new is old:
        return
    _check(EPOCH, EPOCH_SETBACK, old, new, setback)
    epoch.state = new.value
    if new is EpochState.RUNNING:
        epoch.stopping_s = None
        if epoch.running_s is None:
            epoch.running_s = now
    elif new is EpochState.STOPPING:
        epoch.stopping_s = now
    elif not new.live:
        epoch.ended_s = now
    if reason:
        epoch.reason = reason
    if code:
        epoch.code = code
        data["code"] = code
    add_event(
        session,
        EPOCH_EVENT[new],
        now,
        job_id=epoch.job_id,
        epoch=epoch.number,
        **_step(old.value, reason),
        **data,
    )


def move_operation(
    session: Session, operation: Operation, new: OperationState, now: float, *, reason: str = "", **data: Any
) -> None:
    """Raises IllegalTransition. Only a failure has an event (`operation.failed`); `reason` becomes its `error`.

    The caller sets `lease_until_s` of a leased operation; it is cleared when the operation is over.
    """
    old = OperationState(operation.state)
    if new is old:
        return
    check(OPERATION, old, new)
    operation.state = new.value
    if reason:
        operation.error = reason
    if new is not OperationState.LEASED:
        operation.done_s = now
        operation.lease_until_s = None
        wake(session, job_topic(operation.job_id))
    if new is OperationState.FAILED:
        add_event(
            session,
            EventKind.OPERATION_FAILED,
            now,
            job_id=operation.job_id,
            operation=operation.kind,
            seq=operation.seq,
            epoch=operation.epoch,
            worker=operation.worker_id,
            **_step(old.value, reason),
            **data,
        )


def move_intent(
    session: Session,
    intent: Intent,
    new: IntentState,
    now: float,
    *,
    reason: str = "",
    setback: bool = False,
    **data: Any,
) -> None:
    """Event `intent.<new>` with `intent` its kind. `setback`: it proved not to have happened and is pending again.

    Raises IllegalTransition. `reason` becomes its `error`.
    """
    old = IntentState(intent.state)
    if new is old:
        return
    _check(INTENT, INTENT_SETBACK, old, new, setback)
    intent.state = new.value
    if reason:
        intent.error = reason
    if new is IntentState.PENDING:
        wake(session, INTENTS_TOPIC)
    elif not INTENT[new]:
        intent.done_s = now
    add_event(
        session,
        INTENT_EVENT[new],
        now,
        job_id=intent.job_id,
        subjob_id=intent.subjob_id,
        intent=intent.kind,
        number=intent.id,
        **_step(old.value, reason),
        **data,
    )


def _check(table: Table[S], setbacks: Table[S], old: S, new: S, setback: bool) -> None:
    """A setback is asked for by name: it may not be taken for a step forward, nor a step forward for a setback."""
    if setback:
        check({old: frozenset()}, old, new, setback=setbacks)
    else:
        check(table, old, new)


def _step(old: str, reason: str) -> dict[str, str]:
    return {"from": old, "reason": reason} if reason else {"from": old}
