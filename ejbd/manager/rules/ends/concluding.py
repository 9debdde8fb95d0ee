"""Carries out what becomes of an end: the job is over, or goes back into the queue as a whole."""

from __future__ import annotations

from ejbd.manager.acts.subjobs import add_whole, release
from ejbd.manager.effects.ends import Again, End, Final, GoesOn, Outcome, PassedThroughEnded
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.times import set_rate
from ejbd.manager.rules.ends.ending import end_job, stop_ranks
from ejbd.manager.rules.ends.outcomes import outcome
from ejbd.manager.rules.learning import standby
from ejbd.store.states import EpochState, JobState
from ejbd.store.transitions import add_event, move_epoch, move_job
from ejbd.wire.kinds import EpochCode, EventKind


def conclude(world: JobWorld, end: End) -> Outcome:
    """Decide with all subscribers what becomes of `end`, and do it as far as it concerns the whole job.

    What is answered is left to the caller where it is an :class:`Again` that is not `whole`.
    """
    job = world.job
    decided = outcome(end, world.ctx.settings.limits)
    if JobState(job.state).terminal or job.state == JobState.ENDING:
        return decided if isinstance(decided, Again) and not decided.whole else GoesOn()
    decided = world.ctx.subscribers.consult(world, end, decided)
    if isinstance(decided, Final):
        _end(world, end, decided)
    elif isinstance(decided, Again):
        job.setbacks += decided.setback
        if decided.walltime_s is not None:
            job.walltime_s = decided.walltime_s
        if decided.whole:
            _queue_again(world, decided)
    return decided


def _end(world: JobWorld, end: End, final: Final) -> None:
    job = world.job
    if job.elastic or not isinstance(end, PassedThroughEnded):
        end_job(world, final.state, final.exit_code, final.reason)
        return
    job.exit_code = final.exit_code
    standby.let_go(world, "the job is over")
    move_job(world.ctx.session, job, final.state, world.ctx.now, reason=final.reason)


def _queue_again(world: JobWorld, again: Again) -> None:
    """The job goes back into the batch system's queue: J0, or the passed-through job, is submitted anew."""
    ctx, job = world.ctx, world.job
    epoch = world.live_epoch if job.elastic else None
    if epoch is not None:
        stop_ranks(world, epoch)
        move_epoch(ctx.session, epoch, EpochState.FAILED, ctx.now, reason=again.reason, code=EpochCode.AGAIN)
        job.work_s, job.work_rate, job.work_as_of_s = epoch.work_at_start_s, 0.0, ctx.now
    set_rate(job, 0.0, ctx.now)
    job.members, job.lead_worker = [], None
    waits = standby.adopt(world, job.walltime_s, again.reason) if not (job.elastic or again.after_s) else None
    for subjob in world.open_subjobs:
        if subjob is not waits:
            release(world, subjob, again.reason)
    add_event(
        ctx.session,
        EventKind.JOB_AGAIN,
        ctx.now,
        job_id=job.id,
        walltime_s=job.walltime_s,
        pause_s=again.after_s,
        reason=again.reason,
    )
    if job.state != JobState.WAITING:
        move_job(ctx.session, job, JobState.WAITING, ctx.now, setback=True, reason=again.reason)
    if waits is None:
        add_whole(world, delay_s=again.after_s)
