"""Applications that DMTCP cannot checkpoint, or not bring back: how that is found out, and what becomes of the job.

It is found out in one of three ways. The workers *see* in the running processes what DMTCP does not bring back; that
may pass, and they look again. The first checkpoint of an application is *tried* early, when little is lost: the ranks
are stopped, saved and started again where they were. And a checkpoint or a restart *fails* later on, which costs the
work since the start once.

From then on, or for as long as it is seen, the job is planned as one of engine `none` is: it is not moved, it begins
early only where it can be carried to its end on what is free, and it waits for J0 elsewhere. What runs is left alone
for as long as it has room. Where it was tried and has failed, jobs that come after it, of the same application, are
planned so from the beginning.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from ejbd.manager.acts.subjobs import release
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.past.history import remember
from ejbd.manager.facts.pauses import pause_s
from ejbd.manager.facts.times import work_now
from ejbd.plugins.engines import moving_engines
from ejbd.store.models import Epoch, Event, Obstacle, Subjob
from ejbd.store.states import EpochState, JobState
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind, OperationKind, SubjobRole

SEEN, FAILED, START = "seen", "failed", "start"  # how it became known
FIRST_S = 30.0  # a program that cannot begin under DMTCP ends within this time
EARLY_S = 60.0  # what a rank has done in this time is little to lose
EARLY_PART = 0.05  # and so is this part of what the job asked for
DEAR_PART = 0.1  # a checkpoint that takes more of what is left is not tried for its own sake
SEEN_FOR_S = 10.0  # what is seen for less may yet pass: nothing is begun anew for it
PROVED_FAILURES = 2  # an application that was moved before is given up for moves at a job's second failure


def seen(world: JobWorld, epoch: Epoch, why: str) -> None:
    """A worker saw in the ranks of `epoch` what cannot be moved. They run on where they are."""
    if world.job.engine == "dmtcp" and not world.job.not_movable and runs_under(world, epoch) == "dmtcp":
        _tell_not_movable(world, SEEN, why)


def passed(world: JobWorld, epoch: Epoch) -> None:
    """What was seen in the ranks of `epoch` is gone. Where that comes and goes they are moved after a pause."""
    ctx, job = world.ctx, world.job
    ways = _ways(world)
    if not job.not_movable or ways[-1:] != [SEEN] or runs_under(world, epoch) != "dmtcp":
        return
    add_event(ctx.session, EventKind.JOB_MOVABLE, ctx.now, job_id=job.id, reason=f"no longer: {job.not_movable}")
    job.not_movable = ""
    job.move_not_before_s = max(job.move_not_before_s, ctx.now + pause_s(ways.count(SEEN), free=1))


def launch_over(world: JobWorld) -> None:
    """A launch of a script has ended: what was seen in its ranks says nothing about those of the next."""
    ctx, job = world.ctx, world.job
    if job.not_movable and _ways(world)[-1:] == [SEEN]:
        reason = f"the launch in which this was seen has ended: {job.not_movable}"
        add_event(ctx.session, EventKind.JOB_MOVABLE, ctx.now, job_id=job.id, reason=reason)
        job.not_movable = ""


def failed(world: JobWorld, epoch: Epoch, why: str) -> None:
    """A checkpoint of `epoch` has ended its ranks, or they did not come back from one."""
    if world.job.engine != "dmtcp" or world.job.not_movable:
        return
    ctx = world.ctx
    add_event(ctx.session, EventKind.MOVE_FAILED, ctx.now, job_id=world.job.id, epoch=epoch.number, reason=why)
    if not proved(world) or _failures(world) >= PROVED_FAILURES:
        _know(world, FAILED, why)


def given_up(world: JobWorld, epoch: Epoch, why: str) -> None:
    """Nothing that was saved of the ranks of `epoch` comes back: they begin anew, and without DMTCP."""
    ctx, job = world.ctx, world.job
    add_event(ctx.session, EventKind.MOVE_FAILED, ctx.now, job_id=job.id, epoch=epoch.number, reason=why)
    if not job.not_movable:
        _know(world, FAILED, why)


def gave_up(world: JobWorld, epoch: Epoch, why: str) -> None:
    """DMTCP itself has ended the ranks of `epoch`, at no checkpoint. Where it cannot do something, it does so again."""
    ctx, job = world.ctx, world.job
    if job.not_movable:
        return
    add_event(ctx.session, EventKind.MOVE_FAILED, ctx.now, job_id=job.id, epoch=epoch.number, reason=why)
    if not proved(world) and _failures(world) >= PROVED_FAILURES:
        _know(world, FAILED, why)


def _know(world: JobWorld, how: str, why: str) -> None:
    _tell_not_movable(world, how, why)
    _keep(world, how, why)


def _tell_not_movable(world: JobWorld, how: str, why: str) -> None:
    ctx, job = world.ctx, world.job
    job.not_movable = why
    add_event(ctx.session, EventKind.JOB_NOT_MOVABLE, ctx.now, job_id=job.id, how=how, reason=why)


def _keep(world: JobWorld, how: str, why: str) -> None:
    """For the application's next jobs."""
    ctx, job = world.ctx, world.job
    remember(ctx.session, Obstacle(application=job.application, job_id=job.id, at_s=ctx.now, how=how, why=why))
    ctx.history.forget()


# -- programs that do not even begin under DMTCP -----------------------------------------------------------------------


def fails_to_begin(world: JobWorld, epoch: Epoch) -> bool:
    """Whether a rank's end is to be tried again without DMTCP before it is told as the program's own.

    That is asked of what ended in its first seconds, under an engine that its user did not ask for, and once a job.
    Whatever has written a checkpoint under DMTCP does begin there.
    """
    job, now = world.job, world.ctx.now
    if world.spec.engine != "auto" or job.not_movable or epoch.restart_from is not None:
        return False
    if now - (epoch.running_s if epoch.running_s is not None else now) > FIRST_S:
        return False
    if runs_under(world, epoch) != "dmtcp" or world.ctx.history.moves(job.application or ""):
        return False
    return START not in _ways(world)


def tried_without(world: JobWorld, why: str) -> None:
    """The launch begins once more, without DMTCP: its end then tells whether that was to blame."""
    _tell_not_movable(world, START, why)


def learn_of_beginning(world: JobWorld, epoch: Epoch, code: int) -> None:
    """The ranks of an epoch are over. One that :func:`tried_without` tells whether its program begins under DMTCP."""
    job, now = world.job, world.ctx.now
    if job.engine != "dmtcp" or not job.not_movable or runs_under(world, epoch) == "dmtcp":
        return
    if _ways(world)[-1:] != [START]:
        return
    if code and now - (epoch.running_s if epoch.running_s is not None else now) <= FIRST_S:
        job.not_movable = ""  # the program's own failure, and what the script launches next may be another one
        return
    _keep(world, FAILED, job.not_movable)


def _ways(world: JobWorld) -> list[str]:
    """How it became known that the job cannot be moved, each time."""
    query = select(Event.data).where(Event.job_id == world.job.id, Event.kind == EventKind.JOB_NOT_MOVABLE)
    return [str(data["how"]) for data in world.ctx.session.scalars(query.order_by(Event.id))]


def _may_pass(world: JobWorld) -> bool:
    """Whether the job cannot be moved for what was seen just now."""
    query = select(Event).where(Event.job_id == world.job.id, Event.kind == EventKind.JOB_NOT_MOVABLE)
    last = world.ctx.session.scalars(query.order_by(Event.id.desc()).limit(1)).first()
    return last is not None and last.data["how"] == SEEN and world.ctx.now - last.at_s < SEEN_FOR_S


def _failures(world: JobWorld) -> int:
    return world.count_events(EventKind.MOVE_FAILED)


def proved(world: JobWorld) -> bool:
    """Whether the application has come back from a checkpoint before, in this job or in another."""
    return any(move.restart_s is not None for move in world.ctx.history.moves(world.job.application or ""))


def proved_elsewhere(world: JobWorld) -> bool:
    """The same in another job, or twice in this one: a program may break some time after its first restart."""
    return sum(1 for move in world.ctx.history.moves(world.job.application or "") if move.restart_s is not None) > 1


# -- how it is launched ------------------------------------------------------------------------------------------------


def launch_engine(world: JobWorld, restart_from: int | None) -> str:
    """The engine of the next placement: what cannot be moved has nothing from DMTCP."""
    return "none" if world.not_movable and restart_from is None else world.job.engine


def runs_under(world: JobWorld, epoch: Epoch) -> str:
    """The engine by which the ranks of an epoch were started."""
    return world.runs_under(epoch) or world.job.engine


def can_do_without(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the launch of an epoch is still to be tried without DMTCP."""
    return world.job.engine == "dmtcp" and runs_under(world, epoch) == "dmtcp"


# -- the early trial ---------------------------------------------------------------------------------------------------


def try_due(world: JobWorld) -> bool:
    """Whether the application's first checkpoint is to be tried now.

    Only what may have to move, was never moved, and has little to lose; one that is about to move tries it by that.
    """
    ctx, job = world.ctx, world.job
    after_s = ctx.queue_settings(job.queue).first_checkpoint_s
    if job.engine != "dmtcp" or after_s <= 0 or job.state != JobState.RUNNING or world.moving or world.awaited:
        return False
    epoch, j0 = world.epoch, world.placeholder
    if epoch is None or epoch.state != EpochState.RUNNING or epoch.running_s is None or epoch.restart_from is not None:
        return False
    if ctx.now < epoch.running_s + after_s or (j0 is not None and j0.id in job.members):
        return False
    if proved(world) or world.not_movable or world.operations(OperationKind.CHECKPOINT) or not early(world, epoch):
        return False
    ends = world.policy.subjob_ends(world.elastic_state(True), ctx.now)
    if epoch.processors >= epoch.size and ends.begin_s is None:
        return False  # it stays where it is
    done_s = ends.expected_completion_s
    return done_s is None or world.parameters().lambda_s <= DEAR_PART * (done_s - ctx.now)


def early(world: JobWorld, epoch: Epoch) -> bool:
    """Whether little is lost if the ranks begin anew now."""
    done_s = work_now(world.job, world.ctx.now)
    ran_s = world.ctx.now - (epoch.running_s if epoch.running_s is not None else world.ctx.now)
    return ran_s <= EARLY_S or done_s <= EARLY_PART * world.job.walltime_s


# -- where it can be ---------------------------------------------------------------------------------------------------


def may_begin_anew(world: JobWorld) -> bool:
    """Whether the ranks run under DMTCP as what could be moved, and turned out not to: they were placed for moves.

    Not where the shell of a script would be lost. What begins anew does so without DMTCP, and so only once.
    """
    epoch = world.epoch
    if not world.job.not_movable or epoch is None or holds_shell(world.job):
        return False
    return runs_under(world, epoch) == "dmtcp"


def begins_anew_now(world: JobWorld, epoch: Epoch, end_s: float) -> bool:
    """Whether ranks that `may_begin_anew`, and that their subjobs do not carry to their end, are to do so now.

    At once while little is lost; else when the first subjob is about to end, in case the program is done before.
    """
    if early(world, epoch) and not _may_pass(world):
        return True
    return world.ctx.now + world.ctx.settings.poll_s >= end_s


def room_that_lasts(world: JobWorld, members: list[Subjob]) -> list[Subjob]:
    """Of the subjobs on which what `may_begin_anew` would, those that carry it to its end; others are given back."""
    if not may_begin_anew(world) or any(s.role == SubjobRole.PLACEHOLDER for s in members):
        return members
    while members:
        ends = world.policy.subjob_ends(world.elastic_state(False), world.ctx.now)
        if ends.begin_s is None:
            break
        for subjob in [s for s in members if s.id in ends.cancel]:
            release(world, subjob, "it ends before what cannot be moved would")
        members = [s for s in members if s.id not in ends.cancel]
        world.job.members = [s.id for s in members]
    return members


def told(world: JobWorld) -> dict[str, Any]:
    """For `explain`: whether the job can be moved, as far as that is known, and why."""
    job = world.job
    if job.engine != "dmtcp":
        return {"movable": job.engine in moving_engines(), "why": f"engine {job.engine}"}
    if world.not_movable:
        return {"movable": False, "why": world.not_movable}
    if proved(world):
        return {"movable": True, "why": "it came back from a checkpoint before"}
    return {"movable": None, "why": "it was never checkpointed; the first time is tried early, when little is lost"}
