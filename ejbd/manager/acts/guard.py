"""One job's fault is its own: it undoes nothing of the other jobs', and stops none of them."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.engine import is_trouble
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

log = structlog.get_logger(__name__)


def guarded(world: JobWorld, action: Callable[[JobWorld], None]) -> None:
    """Run `action(world)` so that a fault in it undoes and stops nothing but itself.

    Trouble of the database (a full disk, a lost connection) is no job's fault. Whatever is under way is given up with
    it, and the next poll repeats it.
    """
    session = world.ctx.session
    nested = session.begin_nested()
    try:
        action(world)
        session.flush()
        nested.commit()
    except Exception as error:
        nested.rollback()
        if is_trouble(error):
            raise
        session.expire_all()
        _report_fault(world.ctx, world.job.id, error)


def _report_fault(ctx: Context, job_id: str, error: Exception) -> None:
    log.error("job-fault", job=job_id, error=repr(error), exc_info=error)
    add_event(ctx.session, EventKind.JOB_FAULT, ctx.now, job_id=job_id, error=str(error))
