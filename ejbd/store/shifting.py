"""The machine's clock was set: what was noted by the old time and is still reckoned with moves along.

Times of what has happened, of events and of what is over, stay as they were.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Update, null, select, true, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from ejbd.store.models import Drain, Epoch, Intent, Job, Launch, Move, Operation, QueuePause, Subjob, Worker
from ejbd.store.states import LIVING_JOB, OPEN_SUBJOB, IntentState

_OPEN_INTENT = (IntentState.PENDING, IntentState.EXECUTING, IntentState.UNKNOWN)


def shift(session: Session, by_s: float) -> None:
    """Move every time that an interval is reckoned from, of all that is not over, by `by_s` seconds."""
    open_jobs = select(Job.id).where(Job.state.in_(LIVING_JOB))

    def move(where: Any, *columns: InstrumentedAttribute[Any], **more: Any) -> None:
        table = columns[0].class_
        statement: Update = update(table).where(where)
        moved = {column.key: column + by_s for column in columns}  # NULL stays NULL
        session.execute(statement.values(**moved, **more), execution_options={"synchronize_session": False})

    # A job's end is set while it is ending.
    move(Job.state.in_(LIVING_JOB), Job.work_as_of_s, Job.not_before_s, Job.move_not_before_s, Job.end_s)
    move(
        Subjob.state.in_(OPEN_SUBJOB),
        *(Subjob.created_s, Subjob.submit_s, Subjob.start_s, Subjob.end_s),
        *(Subjob.planned_start_s, Subjob.heard_s, Subjob.missing_since_s, Subjob.warned_s, Subjob.leave_by_s),
    )
    move(
        Epoch.job_id.in_(open_jobs),
        *(Epoch.created_s, Epoch.running_s, Epoch.stopping_s, Epoch.ended_s),
        progress=null(),  # a stretch over the jump says nothing about the ranks' speed
    )
    move(Launch.job_id.in_(open_jobs), Launch.created_s, Launch.ended_s)
    move(Operation.job_id.in_(open_jobs), Operation.created_s, Operation.lease_until_s, Operation.done_s)
    move(Intent.state.in_(_OPEN_INTENT), Intent.created_s, Intent.not_before_s)
    move(Worker.alive, Worker.last_seen_s)
    move(Move.job_id.in_(open_jobs) & Move.restart_s.is_(None), Move.at_s)
    move(true(), QueuePause.since_s, QueuePause.until_s)
    move(true(), Drain.asked_s)  # the time by which is a time of day, and stays
    session.expire_all()
