"""Queues where elastic jobs have lately ended later than J0 was promised to; the rule is `ejbd.core.lateness`'s.

Kept as a pause of the queue (:class:`ejbd.store.models.QueuePause`): `jobs` has the newest ends, `failures` how often
it has stopped.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.manager.facts.context import Context
from ejbd.manager.facts.queues import Failing
from ejbd.store.models import QueuePause


def watched(ctx: Context, queue: str) -> bool:
    """Whether the rule is on in a queue."""
    return ctx.queue_settings(queue).stop_when_late == "on"


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
