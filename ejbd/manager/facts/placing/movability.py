"""Whether an application can be moved, as far as that is known, and under which engine it is launched."""

from __future__ import annotations

from typing import TypedDict

from sqlalchemy import select

from ejbd.core.policy import Situation
from ejbd.core.question import ask
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.times import CLOCKS_S, work_now
from ejbd.plugins.engines import moving_engines
from ejbd.store.models import Epoch, Event, Subjob
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, OperationKind

SEEN, FAILED, NODE = "seen", "failed", "node"  # how it became known that a job cannot be moved
FIRST_S = 30.0  # of a program that ends so early DMTCP may be the cause


EARLY_S = 60.0  # what a rank has done in this time is little to lose


EARLY_PART = 0.05  # and so is this part of what the job asked for


DEAR_PART = 0.1  # a checkpoint that takes more of what is left is not tried for its own sake


SEEN_FOR_S = 10.0  # what is seen for less may yet pass: nothing is begun anew for it


PROVED_FAILURES = 2  # an application that was moved before is given up for moves at a job's second failure


class ToldMovability(TypedDict):
    """Whether a job can be moved, and why. `movable` None: that is not known yet."""

    movable: bool | None
    why: str


def is_beginning(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the ranks of an epoch are in their first seconds, under a DMTCP that their user did not ask for."""
    if world.spec.engine != "auto" or epoch.restart_from is not None or runs_under(world, epoch) != "dmtcp":
        return False
    return world.ctx.now - (epoch.running_s if epoch.running_s is not None else world.ctx.now) <= FIRST_S


def ways_known(world: JobWorld) -> list[str]:
    """How it became known that the job cannot be moved, each time."""
    query = select(Event.data).where(Event.job_id == world.job.id, Event.kind == EventKind.JOB_NOT_MOVABLE)
    return [str(data["how"]) for data in world.ctx.session.scalars(query.order_by(Event.id))]


def _may_pass(world: JobWorld) -> bool:
    """Whether the job cannot be moved for what was seen just now."""
    query = select(Event).where(Event.job_id == world.job.id, Event.kind == EventKind.JOB_NOT_MOVABLE)
    last = world.ctx.session.scalars(query.order_by(Event.id.desc()).limit(1)).first()
    return last is not None and last.data["how"] == SEEN and world.ctx.now - last.at_s < SEEN_FOR_S


def moves_failed(world: JobWorld) -> int:
    return world.count_events(EventKind.MOVE_FAILED)


def proved(world: JobWorld) -> bool:
    """Whether the application has come back from a checkpoint before, in this job or in another."""
    return any(move.restart_s is not None for move in world.ctx.history.moves(world.job.application or ""))


def proved_elsewhere(world: JobWorld) -> bool:
    """The same in another job, or twice in this one: a program may break some time after its first restart."""
    return sum(1 for move in world.ctx.history.moves(world.job.application or "") if move.restart_s is not None) > 1


def launch_engine(world: JobWorld, restart_from: int | None) -> str:
    """The engine of the next placement: what cannot be moved has nothing from DMTCP, nor from a profile that is not for
    it. One that is says at every start what a width needs."""
    without = world.no_profile if world.job.engine == "profile" else world.not_movable
    return "none" if without and restart_from is None else world.job.engine


def runs_under(world: JobWorld, epoch: Epoch) -> str:
    """The engine by which the ranks of an epoch were started."""
    return world.runs_under(epoch) or world.job.engine


def can_do_without(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the launch of an epoch is still to be tried without DMTCP."""
    return world.job.engine == "dmtcp" and runs_under(world, epoch) == "dmtcp"


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
    ends = ask(world.policy, Situation.SUBJOB_ENDS, world.elastic_state(True), ctx.now)
    if epoch.processors >= epoch.size and ends.begin_s is None:
        return False  # it stays where it is
    done_s = ends.expected_completion_s
    return done_s is None or world.parameters().lambda_s <= DEAR_PART * (done_s - ctx.now)


def early(world: JobWorld, epoch: Epoch) -> bool:
    """Whether little is lost if the ranks begin anew now."""
    done_s = work_now(world.job, world.ctx.now)
    ran_s = world.ctx.now - (epoch.running_s if epoch.running_s is not None else world.ctx.now)
    return ran_s <= EARLY_S or done_s <= EARLY_PART * world.job.walltime_s


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


def is_link(world: JobWorld) -> bool:
    """Whether the job is a chain of place holders, and the present one is not meant to be its last."""
    chain, j0 = world.job.spec.get("chain"), world.placeholder
    return chain is not None and j0 is not None and j0.walltime_s >= chain["limit_s"] - CLOCKS_S


def is_saved_off(world: JobWorld, j0: Subjob | None) -> bool:
    """Whether what runs on J0 is saved before that ends, and waits for another one."""
    job = world.job
    if j0 is None or j0.state != SubjobState.RUNNING or j0.id not in job.members or holds_shell(job):
        return False
    return bool((job.walltimes or {}).get("progress_s")) or is_link(world)


def told(world: JobWorld) -> ToldMovability:
    """For `explain`: whether the job can be moved, as far as that is known, and why."""
    job = world.job
    if job.engine not in moving_engines():
        return {"movable": False, "why": f"engine {job.engine}"}
    if world.not_movable:
        return {"movable": False, "why": world.not_movable}
    if not node_limit.can_move(world):
        cannot = "its ranks are on several nodes" if node_limit.fits_a_node(world) else "no node holds all its ranks"
        return {"movable": False, "why": f"{cannot}; {node_limit.why_one_node(world)}"}
    if job.engine == "profile":
        return {"movable": True, "why": f"engine profile ({(job.spec.get('profile') or {}).get('name')})"}
    if job.engine != "dmtcp":
        return {"movable": True, "why": f"engine {job.engine}"}
    if proved(world):
        return {"movable": True, "why": "it came back from a checkpoint before"}
    return {"movable": None, "why": "it was never checkpointed; the first time is tried early, when little is lost"}
