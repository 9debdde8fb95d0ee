"""What others are about to take of a queue's windows, though the view still shows it as free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ejbd.core.room.slots import Margins
from ejbd.core.room.windows import Windows
from ejbd.core.view import BatchJobView, BatchState


def less_what_starts_next(
    found: Windows,
    jobs: Iterable[BatchJobView],
    queues: Collection[str],
    fitting: Mapping[str, float],
    margins: Margins,
) -> tuple[Windows, dict[str, float]]:
    """Processors that came free a moment ago go to the waiting `jobs` of these queues that fit, at the batch system's
    next pass.

    One that fits and does not start waits for something else than room, and holds no other up for longer than a
    start-up. `fitting` tells since when which jobs have fitted (by their ids, absolute seconds); the new one comes
    back, too.
    """
    still: dict[str, float] = {}
    if not found.available(0.0):
        return found, still  # none fits, however many wait
    for job in jobs:
        if job.queue not in queues or job.state is not BatchState.PENDING or job.blocked or job.walltime_s is None:
            continue
        if job.processors <= found.available(job.walltime_s):
            since = still[job.id] = fitting.get(job.id, found.now_s)
            if found.now_s - since <= margins.start_up_s:
                found = found.take(job.processors, job.walltime_s)
    return found, still


def less_what_is_coming(found: Windows, coming: Iterable[tuple[int, float]]) -> Windows:
    """Subjobs (processors, seconds) that were asked for and have not started will take what they fit into."""
    for processors, length_s in coming:
        available = min(found.available(length_s), processors)
        if available:
            found = found.take(available, length_s)
    return found
