"""Carries out what becomes of an end: the job is over, or goes back into the queue as a whole."""

from __future__ import annotations

from dataclasses import replace

from ejbd.manager.effects import (
    AdoptStandby,
    AskWhole,
    Consult,
    Effects,
    LetStandbyGo,
    LoseWork,
    MoveEpoch,
    MoveJob,
    Rate,
    Release,
    Want,
    note,
    tell,
)
from ejbd.manager.effects.ends import Again, End, Final, GoesOn, Outcome, PassedThroughEnded
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.rules.ends.ending import end_job, stop_ranks
from ejbd.manager.rules.ends.outcomes import outcome
from ejbd.store.states import EpochState, JobState, LaunchState
from ejbd.wire.kinds import EpochCode, EventKind, JobKind


def conclude(world: JobWorld, end: End) -> Effects[Outcome]:
    """Decide with all subscribers what becomes of `end`, and do it as far as it concerns the whole job.

    What is answered is left to the caller where it is an :class:`Again` that is not `whole`.
    """
    job = world.job
    decided: Outcome = outcome(end, world.ctx.settings.limits)
    if job.state == JobState.ENDING and not job.elastic:  # its user has cancelled it, which may have come too late
        if not isinstance(end, PassedThroughEnded) or not isinstance(decided, Final):
            decided = Final(JobState.CANCELLED)
        if decided.state is JobState.CANCELLED:
            decided = replace(decided, reason=job.reason)
    elif JobState(job.state).terminal or job.state == JobState.ENDING:
        return decided if isinstance(decided, Again) and not decided.whole else GoesOn()
    else:
        decided = yield Consult(end, decided)
    if isinstance(decided, Final):
        yield from _end(world, end, decided)
    elif isinstance(decided, Again):
        yield note(job, setbacks=job.setbacks + decided.setback)
        if decided.walltime_s is not None:
            yield note(job, walltime_s=decided.walltime_s)
        if decided.queue is not None:
            yield note(job, queue=decided.queue)
        if decided.whole:
            yield from _queue_again(world, decided)
    return decided


def _end(world: JobWorld, end: End, final: Final) -> Effects[None]:
    job = world.job
    yield note(job, exit_signal=final.exit_signal)
    if job.elastic or not (isinstance(end, PassedThroughEnded) or job.state == JobState.ENDING):
        yield from end_job(world, final.state, final.exit_code, final.reason)
        return
    yield note(job, exit_code=final.exit_code)
    yield LetStandbyGo("the job is over")
    yield MoveJob(job, final.state, reason=final.reason)
    if isinstance(end, PassedThroughEnded) and end.end_s is not None:  # as the batch system has it: before this look
        yield note(job, end_s=min(world.ctx.now, max(job.start_s or 0.0, end.end_s)))


def _queue_again(world: JobWorld, again: Again) -> Effects[None]:
    """The job goes back into the batch system's queue: J0, or the passed-through job, is submitted anew."""
    job = world.job
    epoch = world.live_epoch if job.elastic else None
    if epoch is not None:
        yield from stop_ranks(world, epoch)
        yield MoveEpoch(epoch, EpochState.FAILED, reason=again.reason, code=EpochCode.AGAIN)
        yield LoseWork(job, epoch.work_at_start_s)
    yield Rate(job, 0.0)
    yield Want(job, [])
    yield note(job, lead_worker=None)
    stands_by = not again.after_s and again.queue is None and (not job.elastic or job.spec.get("chain") is not None)
    waits = (yield AdoptStandby(job.walltime_s, again.reason)) if stands_by else None
    for subjob in world.open_subjobs:
        if subjob is not waits:
            yield Release(subjob, again.reason)
    yield tell(
        EventKind.JOB_AGAIN,
        job_id=job.id,
        walltime_s=job.walltime_s,
        pause_s=again.after_s,
        reason=again.reason,
        **({} if again.queue is None else {"queue": again.queue}),
    )
    launch = world.last_launch if job.elastic and job.kind == JobKind.COMMAND else None
    if launch is not None and launch.state == LaunchState.ENDED:  # a command has this one launch, which is made again
        yield note(launch, state=LaunchState.ACTIVE, exit_code=None, ended_s=None)
    if job.state != JobState.WAITING:
        yield MoveJob(job, JobState.WAITING, setback=True, reason=again.reason)
    if waits is None:
        yield AskWhole(delay_s=again.after_s)
