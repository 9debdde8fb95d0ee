"""Which jobs a transaction changes rows of, announced with its commit: readers keep some of these rows in memory.

What goes through the session is noticed here. A statement that is executed on its connection names its jobs itself
(:func:`ejbd.store.transitions.wake` with their topics), as events do.
"""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction

from ejbd.store.models import Epoch, Job, Launch, Operation, Subjob, Worker
from ejbd.store.transitions import job_topic, rows_topic, wake

_BESIDE = (Worker, Launch, Epoch, Operation)
ANY_JOB_TOPIC = "any-job"
"""Of a transaction that may have changed any job's rows, or of which it is not known whether it was committed."""


class WriterSession(Session):
    """A session of the one writer."""


@event.listens_for(WriterSession, "after_flush")
def _flushed(session: Session, _context: UOWTransaction) -> None:
    for rows in (session.new, session.dirty, session.deleted):
        for row in rows:
            if isinstance(row, Job):
                wake(session, job_topic(row.id))
            elif isinstance(row, Subjob):
                wake(session, job_topic(row.job_id))
            elif isinstance(row, _BESIDE):
                wake(session, rows_topic(row.job_id))


@event.listens_for(WriterSession, "do_orm_execute")
def _executed(state: ORMExecuteState) -> None:
    if not state.is_select and state.bind_mapper is not None and state.bind_mapper.class_ in (Job, Subjob, *_BESIDE):
        wake(state.session, ANY_JOB_TOPIC)
