"""Batch jobs that the batch system has stopped for a while: by an operator (qsig, scontrol suspend), or for others.

Nothing of theirs is taken. No decision is made about such a job, and what it could not do in that time is not held
against it. Its batch job has so much longer. Its processors are kept for it (ejbd.core.room.suspended).
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.effects import Effects, MoveSubjob, Rate, note
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Event, Subjob
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, JobKind


def look(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    """A batch job that has started, as it is seen now."""
    if seen.state is BatchState.SUSPENDED and subjob.state == SubjobState.RUNNING:
        yield from _suspended(world, subjob)
    elif seen.state is not BatchState.SUSPENDED and subjob.state == SubjobState.SUSPENDED:
        yield from _runs_on(world, subjob)


def _suspended(world: JobWorld, subjob: Subjob) -> Effects[None]:
    job = world.job
    why = f"the batch system has suspended its batch job {subjob.batch_id}"
    yield MoveSubjob(subjob, SubjobState.SUSPENDED, reason=why)
    if not job.elastic or world.frozen:
        yield note(job, reason=why)
    if job.elastic and world.frozen:
        yield Rate(job, 0.0)


def _runs_on(world: JobWorld, subjob: Subjob) -> Effects[None]:
    ctx, job = world.ctx, world.job
    last = select(Event.at_s).where(Event.job_id == subjob.job_id, Event.kind == EventKind.SUBJOB_SUSPENDED)
    last = last.where(Event.subjob_id == subjob.id)
    since_s = ctx.session.scalars(last.order_by(Event.id.desc()).limit(1)).first()
    away_s = ctx.now - since_s if since_s is not None else 0.0
    was_frozen, said = world.frozen, subjob.reason
    yield MoveSubjob(subjob, SubjobState.RUNNING, setback=True)
    # The time in which it was stopped does not count against its walltime.
    yield note(subjob, walltime_s=subjob.walltime_s + away_s, usable_s=subjob.usable_s + away_s)
    if subjob.leave_by_s is not None:
        yield note(subjob, leave_by_s=subjob.leave_by_s + away_s)
    if job.reason == said:
        yield note(job, reason="")
    if not job.elastic or not was_frozen or world.frozen or job.state != JobState.RUNNING:
        return
    epoch = world.live_epoch
    if epoch is None:
        yield Rate(job, 1.0 if job.kind == JobKind.SCRIPT else 0.0)
    elif epoch.state == EpochState.LAUNCHING:
        yield note(epoch, created_s=epoch.created_s + away_s)
    # Of ranks that run the rate is set by the next look at their placement.
