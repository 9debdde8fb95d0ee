"""Queues where elastic jobs have lately ended later than J0 could hope to; the rule is `ejbd.core.lateness`'s.

Kept as a pause of the queue (:class:`ejbd.store.models.QueuePause`): `jobs` has the newest ends, `failures` how often
it has stopped.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.lateness import used_part
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.history import LASTING_RUNS
from ejbd.manager.facts.queues import Failing
from ejbd.store.models import PastRun, QueuePause


def watched(ctx: Context, queue: str) -> bool:
    """Whether the rule is on in a queue."""
    return ctx.queue_settings(queue).stop_when_late == "on"


def part_of_requests(session: Session) -> float:
    """Which part of their requests the latest runs of all users have used; 1: too little is known."""
    columns = (PastRun.end_s, PastRun.processors, PastRun.run_s, PastRun.requested_s)
    query = select(*columns).where(PastRun.requested_s.is_not(None)).order_by(PastRun.id.desc()).limit(LASTING_RUNS)
    rows = sorted(row._tuple() for row in session.execute(query))
    return used_part((processors, run_s, asked_s or run_s) for _, processors, run_s, asked_s in rows)


def why_stopped(ctx: Context, queue: str) -> str:
    """In words, that no job of the queue is made elastic or started early now; "" where they are."""
    if not watched(ctx, queue):
        return ""
    query = select(QueuePause).where(QueuePause.what == Failing.PROMISES.value, QueuePause.name == queue)
    row = ctx.session.scalars(query).first()
    if row is None or row.until_s is None or row.until_s <= ctx.now:
        return ""
    again = row.until_s - ctx.now
    return f"{row.reason}; tried again in {again:.0f} s, or at once by `ejb queue resume {queue}`"
