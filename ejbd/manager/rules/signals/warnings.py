"""Subjobs that will end before their time: the batch system has warned, or their end was moved forward.

A preemption with a grace, or `scancel --signal=TERM`, reaches the workers as a TERM that is not the end itself. What
can be checkpointed is, at once, and goes on elsewhere or waits again with its work kept. It counts against no job.
"""

from __future__ import annotations

from collections.abc import Collection

from ejbd.manager.effects import BeginCheckpoint, Effects, EndIfTimeIsUp, EnsurePlaceholder, Release, Want, note, tell
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.times import AHEAD_POLLS, walltime_end, work_now
from ejbd.store.models import Subjob, Worker
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, SubjobRole

WARNED = "the batch system warned that it will end it"


def take_warning(world: JobWorld, worker: Worker) -> Effects[None]:
    """A worker has had the batch system's warning."""
    ctx, job = world.ctx, world.job
    subjob = next((s for s in world.open_subjobs if s.id == worker.subjob_id), None)
    if subjob is None or subjob.releasing or subjob.state != SubjobState.RUNNING:
        return
    if job.state not in (JobState.WAITING, JobState.RUNNING) or (yield EndIfTimeIsUp([subjob.id])):
        return
    if not subjob.warned:
        end_s = min(ctx.now + ctx.settings.limits.warned_grace_s, walltime_end(subjob, ctx.now))
        yield note(subjob, warned_s=ctx.now, leave_by_s=end_s)
        yield tell(EventKind.SUBJOB_WARNED, job_id=job.id, subjob_id=subjob.id, end_s=end_s)
    if subjob.id in job.members:
        yield from leave(world, [subjob], WARNED)
    elif subjob.id not in (world.live_epoch.members if world.live_epoch else ()):
        yield Release(subjob, WARNED)
        if subjob.role == SubjobRole.PLACEHOLDER:
            yield EnsurePlaceholder()


def leaves_what_ends(world: JobWorld) -> Effects[bool]:
    """Leave in time what was warned of, and a J0 that is to end earlier. Whether there was anything to leave.

    Other subjobs that end early are left by the policy, like those that end as they were meant to.
    """
    gone = [s for s in world.open_subjobs if s.id in world.job.members and has_to_be_left(world, s)]
    return bool(gone) and (yield from leave(world, gone, WARNED if gone[0].warned else "its end was moved forward"))


def has_to_be_left(world: JobWorld, subjob: Subjob) -> bool:
    """Whether ranks have to go from a subjob now, since it will end before its time."""
    if subjob.warned:
        return True
    if subjob.state != SubjobState.RUNNING or subjob.role != SubjobRole.PLACEHOLDER or not world.cut_short(subjob):
        return False
    ahead_s = world.cost.reserve_s + AHEAD_POLLS * world.ctx.settings.poll_s
    return world.ctx.now >= walltime_end(subjob, world.ctx.now) - ahead_s


def leave(world: JobWorld, gone: Collection[Subjob], why: str) -> Effects[bool]:
    """Checkpoint, and go on with what is left, or wait. False: it cannot be moved, and runs on until the end comes."""
    ctx, job = world.ctx, world.job
    epoch = world.live_epoch
    left = {subjob.id for subjob in gone}
    stays = [s for s in world.open_subjobs if s.id in job.members and s.id not in left]
    if epoch is not None and not node_limit.can_move(world):
        return False
    if holds_shell(job) and job.script_run and (not stays or any(subjob.anchor for subjob in gone)):
        return False  # what it would be kept for is lost with the shell
    room = sum(s.processors for s in stays if s.state == SubjobState.RUNNING)
    if room * world.parameters().omax < job.processes and not holds_shell(job):
        stays = []
    kind = EventKind.DECISION_SHRINK if stays else EventKind.DECISION_SUSPEND
    yield tell(
        kind,
        job_id=job.id,
        leaves=[m for m in job.members if m not in {s.id for s in stays}],
        stays=[s.id for s in stays],
        end_s=min(walltime_end(subjob, ctx.now) for subjob in gone),
        work_s=work_now(job, ctx.now),
        reason=why,
    )
    yield Want(job, [s.id for s in stays])
    if epoch is None:
        for subjob in gone:
            yield Release(subjob, why)
    elif epoch.state == EpochState.RUNNING:
        yield BeginCheckpoint(epoch)
    return True
