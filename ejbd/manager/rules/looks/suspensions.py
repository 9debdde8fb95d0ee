"""Batch jobs that the batch system has stopped for a while: by an operator (qsig, scontrol suspend), or for others.

Nothing of theirs is taken: no decision is made about such a job, what it could not do in that time is not held against
it, and its batch job has so much longer. Its processors are kept for it (ejbd.core.room.suspended).
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.times import set_rate
from ejbd.store.models import Event, Subjob
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.store.transitions import move_subjob
from ejbd.wire.kinds import EventKind, JobKind


def look(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> None:
    """A batch job that has started, as it is seen now."""
    if seen.state is BatchState.SUSPENDED and subjob.state == SubjobState.RUNNING:
        _suspended(world, subjob)
    elif seen.state is not BatchState.SUSPENDED and subjob.state == SubjobState.SUSPENDED:
        _runs_on(world, subjob)


def _suspended(world: JobWorld, subjob: Subjob) -> None:
    ctx, job = world.ctx, world.job
    why = f"the batch system has suspended its batch job {subjob.batch_id}"
    move_subjob(ctx.session, subjob, SubjobState.SUSPENDED, ctx.now, reason=why)
    if not job.elastic or world.frozen:
        job.reason = why
    if job.elastic and world.frozen:
        set_rate(job, 0.0, ctx.now)


def _runs_on(world: JobWorld, subjob: Subjob) -> None:
    ctx, job = world.ctx, world.job
    last = select(Event.at_s).where(Event.subjob_id == subjob.id, Event.kind == EventKind.SUBJOB_SUSPENDED)
    since_s = ctx.session.scalars(last.order_by(Event.id.desc()).limit(1)).first()
    away_s = ctx.now - since_s if since_s is not None else 0.0
    was_frozen, said = world.frozen, subjob.reason
    move_subjob(ctx.session, subjob, SubjobState.RUNNING, ctx.now, setback=True)
    # The time in which it was stopped does not count against its walltime.
    subjob.walltime_s += away_s
    subjob.usable_s += away_s
    if subjob.leave_by_s is not None:
        subjob.leave_by_s += away_s
    if job.reason == said:
        job.reason = ""
    if not job.elastic or not was_frozen or world.frozen or job.state != JobState.RUNNING:
        return
    epoch = world.live_epoch
    if epoch is None:
        set_rate(job, 1.0 if job.kind == JobKind.SCRIPT else 0.0, ctx.now)
    elif epoch.state == EpochState.LAUNCHING:
        epoch.created_s += away_s
    # Of ranks that run the rate is set by the next look at their placement.
