"""A queue where elastic jobs have lately ended later than J0 could hope to stops for a while, and tries again."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.lateness import FEWEST_ENDS, is_later, loses, stop_s
from ejbd.core.shortruns import NEWEST_RUNS
from ejbd.manager.effects import Effects, Insert, Keep, note, tell
from ejbd.manager.effects.ends import End, Final, Outcome
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.losing import part_of_requests, watched
from ejbd.manager.facts.queues import Failing
from ejbd.manager.facts.times import work_now
from ejbd.store.models import QueuePause
from ejbd.wire.kinds import EventKind
from ejbd.wire.states import JobState

WHAT = Failing.PROMISES.value


def note_end(world: JobWorld, end: End, outcome: Outcome) -> Effects[None]:
    """A subscriber to ends: an elastic job that came to its end was late, or not."""
    job, ctx = world.job, world.ctx
    if not isinstance(outcome, Final) or outcome.state is not JobState.COMPLETED:
        return
    if not job.elastic or job.rigid_start_s is None or not watched(ctx, job.queue):
        return
    row = ctx.session.get(QueuePause, (job.queue, WHAT, ""))
    if row is None:
        row = QueuePause(name=job.queue, what=WHAT, whose="", failures=0, jobs=[], since_s=ctx.now, reason="")
        yield Insert(row)
    if row.until_s is not None:
        return  # what ends in a stop was decided before it
    part = part_of_requests(ctx.session)
    late = int(is_later(ctx.now, job.submit_s, job.rigid_start_s, part, work_now(job, ctx.now)))
    ends = [*row.jobs, late][-NEWEST_RUNS:]
    yield note(row, jobs=ends)
    if loses(len(ends), sum(ends)):
        pause = stop_s(row.failures)
        why = f"{sum(ends)} of the last {len(ends)} elastic jobs ended later than J0 could hope to"
        yield note(row, jobs=[], failures=row.failures + 1, reason=why, since_s=ctx.now, until_s=ctx.now + pause)
        yield Keep({"stops_stand": True})
        yield tell(EventKind.QUEUE_PAUSED, queue=job.queue, what=WHAT, whose="", reason=why, pause_s=pause)
    elif len(ends) >= FEWEST_ENDS and 2 * sum(ends) < len(ends):
        yield note(row, failures=0)


def turn(ctx: Context) -> Effects[None]:
    """Once a poll: stops that are over, or of queues where the rule is off by now. Without a stop nothing is asked."""
    if not ctx.memory.stops_stand:
        return
    query = select(QueuePause).where(QueuePause.what == WHAT, QueuePause.until_s.is_not(None))
    rows = list(ctx.session.scalars(query))
    if not rows:  # and not once they are ended here: that may be undone
        yield Keep({"stops_stand": False})
    for row in rows:
        why = "" if watched(ctx, row.name) else "stop_when_late is off"
        if row.until_s is not None and row.until_s <= ctx.now:
            why = "its time is over"
        if why:
            failures = row.failures
            yield note(row, until_s=None)
            yield tell(EventKind.QUEUE_RESUMED, queue=row.name, what=WHAT, whose="", reason=why, failures=failures)
