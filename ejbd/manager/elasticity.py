"""Whether a job that arrives is made elastic, by its queue's settings."""

from __future__ import annotations

from ejbd.config import Elasticity
from ejbd.manager.context import Context


def elasticity(ctx: Context, queue: str, processes: int, wanted: bool | None) -> tuple[bool, str]:
    """Whether a job that arrives now is made elastic, and why (or why not)."""
    settings = ctx.queue_settings(queue)
    if wanted is False:
        return False, "the job asked for elastic=off"
    if settings.elasticity is Elasticity.OFF:
        return False, f"elasticity is off in queue {queue}"
    if processes < settings.min_processors:
        return False, f"{processes} processors are fewer than the queue's minimum of {settings.min_processors}"
    if settings.elasticity is Elasticity.AUTO:
        waiting = sum(1 for j in ctx.view.jobs if j.queue == queue and j.state == "pending") if ctx.view else 0
        threshold = settings.auto_queue_length
        if waiting < threshold:
            return False, f"{waiting} jobs wait in queue {queue}; elasticity begins at {threshold}"
        return True, f"{waiting} jobs wait in queue {queue}, at least {threshold}"
    return True, f"elasticity is on in queue {queue}"
