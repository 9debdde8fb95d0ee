"""Leaving subjobs that end: in time, by a move or a suspension; and what a job comes to that outlives its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.policy import Situation
from ejbd.core.question import Question, ask
from ejbd.core.view import BatchState
from ejbd.manager.effects import Conclude, Effects, Want, note, tell
from ejbd.manager.effects.ends import Again, PlanOutlived
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.room.verdicts import told, verdict
from ejbd.manager.facts.times import work_now
from ejbd.manager.rules.placements import setbacks, stopping
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import EventKind

SUSPENSION_POLLS = 2.0  # a suspension begins that much before its lambda: the next look, and the way to the workers


def leaves_in_time(world: JobWorld) -> Effects[bool]:
    """Move off the subjobs that end next. Where no rank would stay, keep the work and wait again. False: not yet."""
    now, poll_s = world.ctx.now, world.ctx.settings.poll_s
    can_move = node_limit.can_move(world)
    limit = node_limit.node_room(world, Situation.SUBJOB_ENDS)
    state = world.elastic_state(can_move, limit).with_lasting_placeholder()
    ends = ask(world.policy, Situation.SUBJOB_ENDS, state, now)
    if ends.begin_s is None:
        return False
    if not can_move and moving.may_begin_anew(world):
        yield from _begins_anew(world, ends)
        return True
    ahead = SUSPENSION_POLLS if ends.kind is DecisionKind.SUSPEND else 1.0
    if now + ahead * poll_s < ends.begin_s:
        return False
    if ends.kind is DecisionKind.LEAVE:
        yield from _tell_leaving(world, EventKind.DECISION_SHRINK, ends)
        yield Want(world.job, [m for m in world.job.members if m not in ends.cancel])
        return True
    if ends.kind is DecisionKind.SUSPEND:
        yield from _tell_leaving(world, EventKind.DECISION_SUSPEND, ends)
        yield from _suspend(world)
        return True
    if _cut_short(world) and not _savable(world):
        return False  # the batch system's doing: it ends the subjob, and J0 keeps the job's place
    yield from _tell_leaving(world, EventKind.DECISION_SHRINK, ends)
    if now >= ends.begin_s:
        yield from _give_up_room(world, ends.reason)
    return True


def leaves_beyond(world: JobWorld) -> Effects[bool]:
    """Give back what the job holds beyond the width that it asked for, where another job waits. False: it does not."""
    epoch = world.live_epoch
    if epoch is None or epoch.running_s is None or world.moving or not world.others_wait:
        return False
    state = world.elastic_state(node_limit.can_move(world), node_limit.node_room(world, Situation.SUBJOB_ENDS))
    if state.processors <= state.processes:
        return False
    ends = ask(world.policy, Situation.BEYOND, state, world.ctx.now)
    if ends.kind is not DecisionKind.LEAVE:
        return False
    yield from _tell_leaving(world, EventKind.DECISION_SHRINK, ends)
    yield Want(world.job, [m for m in world.job.members if m not in ends.cancel])
    return True


def _begins_anew(world: JobWorld, ends: Decision) -> Effects[None]:
    """Off subjobs that do not carry to its end what cannot be moved: begun anew on those that do, or by J0."""
    epoch = world.live_epoch
    if epoch is not None and ends.end_s is not None and moving.begins_anew_now(world, epoch, ends.end_s):
        yield from _tell_leaving(world, EventKind.DECISION_ANEW, ends)
        yield from setbacks.start_over(world, epoch, f"{ends.reason}, and it cannot be moved")


def gives_back(world: JobWorld, question: Question, decision: Decision, to: str) -> Effects[None]:
    """Checkpoint and wait again, since a batch job (`to`) that waits fits into what this one holds.

    Or leave some subjobs, where the ranks need not be moved for it (`in_place` of the queue).
    """
    if decision.kind is DecisionKind.LEAVE:
        yield note(world.job, decision_key=verdict(decision), expected_completion_s=decision.expected_completion_s)
        more = {"given_to": to, **told(world, question, decision)}
        yield from _tell_leaving(world, EventKind.DECISION_SHRINK, decision, **more)
        yield Want(world.job, [m for m in world.job.members if m not in decision.cancel])
        return
    yield note(world.job, decision_key=verdict(decision), expected_completion_s=None)
    yield from _tell_leaving(
        world, EventKind.DECISION_SUSPEND, decision, given_to=to, **told(world, question, decision)
    )
    yield from _suspend(world)


def _tell_leaving(world: JobWorld, kind: EventKind, ends: Decision, **more: Any) -> Effects[None]:
    job = world.job
    yield tell(
        kind,
        job_id=job.id,
        leaves=list(ends.cancel),
        stays=[member for member in job.members if member not in ends.cancel],
        end_s=ends.end_s,
        work_s=work_now(job, world.ctx.now),
        reason=ends.reason,
        **more,
    )


def _suspend(world: JobWorld) -> Effects[None]:
    """Checkpoint and wait again, for J0 or for more room, with the work kept. It is no overrun: it was planned."""
    yield Want(world.job, [])
    epoch = world.live_epoch
    if epoch is not None:
        yield from stopping.begin_checkpoint(world, epoch)


def overruns(world: JobWorld) -> Effects[bool]:
    """The application is slower than what it asked for allows: its subjobs end before it does, against the plan."""
    held = [s for s in world.open_subjobs if s.id in world.job.members and s.state == SubjobState.RUNNING]
    end = world.leave_by if _can_save(world) else world.usable_end
    if not held or world.ctx.now < max(map(end, held)) or _cut_short(world) or not _runs_there(world):
        return False
    if _was_to_be_suspended(world):
        return False  # it was to be suspended here, and the look at it that should have done so came late
    yield from _give_up_room(world, "the application outlived the time that was planned for it")
    return True


def _runs_there(world: JobWorld) -> bool:
    """Whether anything of the job is in its subjobs that can have outlived a plan. What they end with is told by the
    batch system: a look that came late finds their ranks ended, or themselves on their way out."""
    if world.live_epoch is None:
        return holds_shell(world.job) and world.worker(world.job.lead_worker) is not None
    view = world.ctx.view
    ending = {job.mark for job in view.jobs if job.state is BatchState.ENDING or job.state.ended} if view else set()
    held = [s for s in world.open_subjobs if s.id in world.job.members and s.state == SubjobState.RUNNING]
    return not all(s.tag in ending for s in held)


def _was_to_be_suspended(world: JobWorld) -> bool:
    """Whether the present placement was not to carry the job to its end, as things stood when its ranks began."""
    epoch = world.live_epoch
    if epoch is None or epoch.running_s is None or not node_limit.can_move(world):
        return False
    state = replace(world.elastic_state(True), work_s=epoch.work_at_start_s, stalled_until_s=None)
    suspends = world.policy.suspends and state.suspendable
    return suspends and ask(world.policy, Situation.SUBJOB_ENDS, state, epoch.running_s).begin_s is not None


def _cut_short(world: JobWorld) -> bool:
    """Whether a subjob that the job is on is taken away before its time: then nothing has outlived its plan."""
    held = [s for s in world.open_subjobs if s.id in world.job.members and s.state == SubjobState.RUNNING]
    return any(map(world.cut_short, held))


def _savable(world: JobWorld) -> bool:
    return node_limit.can_move(world) and world.live_epoch is not None and not holds_shell(world.job)


def _can_save(world: JobWorld) -> bool:
    """Whether a job that outlives its plan goes back to waiting with its work kept."""
    return _savable(world) and not world.job.overruns


def _give_up_room(world: JobWorld, why: str) -> Effects[None]:
    """Back to waiting for J0 with the last state saved, once; then, as a rigid job would, the end by time-out."""
    job, epoch = world.job, world.live_epoch
    if not _runs_there(world):
        return
    cut_short = _cut_short(world)
    end = PlanOutlived(_savable(world), cut_short, job.overruns, job.walltime_s, why)
    decided = yield Conclude(end)
    if isinstance(decided, Again) and not decided.whole and epoch is not None:
        yield note(job, overruns=job.overruns + (not cut_short and decided.walltime_s is None))
        yield Want(job, [])
        yield from stopping.begin_checkpoint(world, epoch)
