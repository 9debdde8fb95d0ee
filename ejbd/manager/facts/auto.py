"""Whether a queue's waiting jobs may be started early now: with `elasticity=auto` by its length, and not for a moment.

A waiting job has its J0 in the batch system's queue whether it is on or off: no job loses its place by a switch. Jobs
that are off merely ask for no room, and those that run go on.
"""

from __future__ import annotations

from ejbd.config import Elasticity
from ejbd.core.view import BatchState
from ejbd.manager.facts.context import Context

OFF_BELOW = 0.5  # of auto_queue_length: what has been on goes off once fewer wait than that part of it


def waiting_in(ctx: Context, queue: str) -> int:
    """How many batch jobs wait in the queue."""
    if ctx.view is None:
        return 0
    names = ctx.view.names_of(queue)
    return sum(1 for job in ctx.view.jobs if job.queue in names and job.state is BatchState.PENDING)


def is_on(ctx: Context, queue: str) -> bool:
    """Whether jobs of this queue that wait may ask for room now; remembers it of `auto`."""
    settings = ctx.queue_settings(queue)
    if settings.elasticity is not Elasticity.AUTO:
        ctx.auto_on.pop(queue, None)
        return settings.elasticity is Elasticity.ON
    threshold, waiting = settings.auto_queue_length, waiting_in(ctx, queue)
    on = waiting >= (threshold * OFF_BELOW if ctx.auto_on.get(queue) else threshold)
    ctx.auto_on[queue] = on
    return on


def is_off(ctx: Context, queue: str) -> bool:
    """Whether no job of this queue is elastic, however many wait."""
    return ctx.queue_settings(queue).elasticity is Elasticity.OFF


def why_off(ctx: Context, queue: str) -> str:
    """Why it is off now, in words; "" where it is on."""
    if is_on(ctx, queue):
        return ""
    if is_off(ctx, queue):
        return f"elasticity is off in queue {queue}"
    begins = ctx.queue_settings(queue).auto_queue_length
    return f"{waiting_in(ctx, queue)} jobs wait in queue {queue}; elasticity begins at {begins}"
