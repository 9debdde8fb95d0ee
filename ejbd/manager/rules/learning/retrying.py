"""The next of the walltimes that were learned, when one was not enough: after a time-out, or just before."""

from __future__ import annotations

from dataclasses import replace

from ejbd.core.view import BatchState
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.effects import Effects, LeaveEnding, note, tell
from ejbd.manager.effects.ends import Again, End, Final, Outcome, PassedThroughEnded, PlanOutlived, TimeUsedUp
from ejbd.manager.facts import raised
from ejbd.manager.facts.attempts import is_attempt
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.past.speculating import next_of
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.movability import is_link, is_saved_off
from ejbd.manager.facts.times import AHEAD_POLLS, CLOCKS_S, walltime_end, work_now
from ejbd.manager.rules.learning import gaps, standby
from ejbd.store.models import Subjob
from ejbd.store.states import EpochState, JobState
from ejbd.wire.kinds import EventKind


def take_next(world: JobWorld, end: End, outcome: Outcome) -> Effects[Outcome | None]:
    """A run that timed out is done again with the next walltime that was learned: asked about ends.

    A time-out and nothing else: what the batch system says of memory, nodes, preemption and cancellation is final. What
    outlived the plan of its subjobs, and is saved, is planned by the next one, too.
    """
    job = world.job
    ended = world.subjob(end.subjob) if isinstance(end, PassedThroughEnded) else None
    if isinstance(end, PassedThroughEnded) and ended is not None and is_attempt(job, ended):
        return (yield from gaps.after(world, end))
    if isinstance(end, PassedThroughEnded) and ended is not None and _was_not_raised(world, end, ended):
        yield note(job, walltimes={**(job.walltimes or {}), "raised": None})
        why = _why(end.said, ended.walltime_s, job.walltime_s)
        return Again(reason=why, whole=True, walltime_s=job.walltime_s)
    following = next_of(job.walltimes)
    if following is None:
        return None
    kept, before_s, next_s = following
    if isinstance(end, PlanOutlived) and isinstance(outcome, Again) and not end.cut_short:
        yield note(job, walltimes=kept)
        return replace(outcome, walltime_s=next_s, reason=_why(outcome.reason, before_s, next_s))
    if not isinstance(outcome, Final) or outcome.state is not JobState.TIMEOUT or "planned_s" in (job.walltimes or {}):
        return None
    if isinstance(end, PassedThroughEnded):
        # One that is being given back was cancelled before its time was over.
        given_back = ended is not None and ended.releasing
        if end.state is not BatchState.TIMEOUT or not world.spec.rerunnable or given_back:
            return None
    elif not isinstance(end, TimeUsedUp | PlanOutlived) or not _may_go_on(world):
        return None
    yield note(job, walltimes=kept)
    reach(CrashPoint.AGAIN_BEFORE_COMMIT)
    return Again(reason=_why(outcome.reason, before_s, next_s), whole=True, walltime_s=next_s)


def next_place_holder(world: JobWorld, end: End, outcome: Outcome) -> Effects[Outcome | None]:
    """A chain of place holders does not end with one of them: asked about ends.

    What a place holder's limit has ended before it was saved goes on from its last checkpoint, as after a setback.
    """
    job, limits = world.job, world.ctx.settings.limits
    chain = job.spec.get("chain")
    if chain is None or not isinstance(end, TimeUsedUp) or not isinstance(outcome, Final):
        return None
    lost_s = job.walltime_s - work_now(job, world.ctx.now)
    if outcome.state is not JobState.TIMEOUT or end.walltime_s < chain["limit_s"] - CLOCKS_S or lost_s <= 0.0:
        return None
    if job.setbacks >= limits.max_setbacks or not _may_go_on(world):
        return None
    yield from ()
    why = f"{outcome.reason}: it is longer than that, and goes on from its last checkpoint in the next place holder"
    return Again(reason=why, setback=True, whole=True)


def _was_not_raised(world: JobWorld, end: PassedThroughEnded, ended: Subjob) -> bool:
    """Whether a job that may be run again was killed by a plan from which no daemon raised it in time."""
    short = raised.under_way(world.job) is not None and ended.walltime_s < world.job.walltime_s
    return short and end.state is BatchState.TIMEOUT and world.spec.rerunnable and not ended.releasing


def _why(said: str, before_s: float, next_s: float) -> str:
    return f"{said}: {before_s:g} s were not enough, {next_s:g} s are planned with next"


def _may_go_on(world: JobWorld) -> bool:
    """Whether an elastic job has a checkpoint to go on from, or may begin again."""
    if holds_shell(world.job):
        return False
    epoch = world.epoch
    saved = epoch is not None and (epoch.state == EpochState.STOPPED or epoch.restart_from is not None)
    return saved or world.spec.rerunnable


def saves_in_time(world: JobWorld) -> Effects[bool]:
    """Save what runs on a J0 of a learned walltime that is nearly over, and wait again for another J0.

    So it is with each place holder but the last of a job that is longer than its queue's limit. It plans with the next
    walltime where the present one was not enough; a J0 may also have been asked for before.
    """
    job, ctx, j0 = world.job, world.ctx, world.placeholder
    epoch = world.live_epoch
    if not is_saved_off(world, j0) or j0 is None or epoch is None or epoch.state != EpochState.RUNNING:
        return False
    if is_link(world):
        yield from standby.queue_ahead(world, j0)
    begin_s = walltime_end(j0, ctx.now) - world.cost.reserve_s - AHEAD_POLLS * ctx.settings.poll_s
    if ctx.now < begin_s or not node_limit.can_move(world):
        return False
    following = next_of(job.walltimes)
    short = job.walltime_s - work_now(job, ctx.now) > ctx.now - begin_s + world.cost.lambda_s  # J0, not the plan
    if following is None and not short:
        return False
    kept, before_s, next_s = following if following is not None else (dict(job.walltimes or {}), 0.0, job.walltime_s)
    why = "J0 ends before what is planned" if short else _why("saved in time", before_s, next_s)
    if not (yield LeaveEnding([j0], why)):
        return False
    if not short:
        yield note(job, walltime_s=next_s, walltimes=kept)
    if is_link(world):
        yield note(job, spec={**job.spec, "chain": {**job.spec["chain"], "left": j0.id}})
    else:
        yield note(job, walltimes={**(job.walltimes or {}), "left": j0.id})
    yield tell(EventKind.JOB_AGAIN, job_id=job.id, walltime_s=job.walltime_s, pause_s=0.0, reason=why)
    return True
