"""Checkpoints against lost nodes: the ranks are stopped, saved, and started again where they were.

It is a move that leads nowhere else. So every engine that can move can do it, and each one is measured as a move is.
Nothing is saved where a move or an end is near that saves as well or makes it useless.
"""

from __future__ import annotations

from typing import TypedDict

from ejbd.core.checkpoint_interval import CheckpointInterval, checkpoint_interval
from ejbd.core.policy import Situation
from ejbd.core.question import ask
from ejbd.manager.effects import BeginCheckpoint, Effects, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.times import walltime_end, work_now
from ejbd.plugins.engines import moving_engines
from ejbd.store.models import Epoch
from ejbd.store.states import EpochState, JobState
from ejbd.wire.kinds import EventKind


class ToldCheckpoints(TypedDict):
    """The interval of periodic checkpoints (None: there are none), and when the next is due (None: no rank runs)."""

    interval_s: float | None
    why: str
    next_s: float | None


def interval_of(world: JobWorld) -> CheckpointInterval:
    """How often the job is checkpointed: as it says itself, else as its queue says."""
    job = world.job
    if job.engine not in moving_engines():
        return CheckpointInterval(None, f"no periodic checkpoints: engine {job.engine} has none")
    if world.not_movable:
        return CheckpointInterval(None, f"no periodic checkpoints: {world.not_movable}")
    settings = world.ctx.queue_settings(job.queue)
    own = job.spec.get("checkpoint")
    of = "the job" if own is not None else f"queue {job.queue}"
    setting = own if own is not None else settings.checkpoint_every
    epoch = world.live_epoch
    placed = {seat.worker for seat in epoch.placement} if epoch is not None else set()
    nodes = len({w.node for w in world.workers if w.id in placed}) if setting == "auto" else 0
    return checkpoint_interval(setting, of, world.cost.lambda_s, max(1, nodes), settings.node_mtbf_s)


def checkpoint_in_time(world: JobWorld) -> Effects[None]:
    """Checkpoint the ranks where they are, if that is due and worth it."""
    ctx, job = world.ctx, world.job
    if job.state != JobState.RUNNING or world.moving or world.awaited:
        return
    epoch = world.epoch
    if epoch is None or epoch.state != EpochState.RUNNING or ctx.now < job.move_not_before_s:
        return
    every = interval_of(world)
    due_s = _due(epoch, every)
    if due_s is None or ctx.now < due_s or not node_limit.can_move(world) or _not_worth_it(world):
        return
    yield tell(
        EventKind.DECISION_CHECKPOINT,
        job_id=job.id,
        epoch=epoch.number,
        interval_s=every.seconds,
        work_s=work_now(job, ctx.now),
        reason=every.why,
    )
    yield BeginCheckpoint(epoch)


def told(world: JobWorld) -> ToldCheckpoints:
    """The interval and when the next checkpoint is due, for `explain`."""
    every = interval_of(world)
    epoch = world.live_epoch
    running = epoch if epoch is not None and epoch.state == EpochState.RUNNING else None
    next_s = _due(running, every) if running is not None else None
    return {"interval_s": every.seconds, "why": every.why, "next_s": next_s}


def _due(epoch: Epoch, every: CheckpointInterval) -> float | None:
    if every.seconds is None or epoch.running_s is None:
        return None
    return epoch.running_s + every.seconds


def _not_worth_it(world: JobWorld) -> bool:
    """Whether the ranks are soon checkpointed anyway, are nearly done, or would not run again before their end."""
    now, lambda_s = world.ctx.now, world.parameters().lambda_s
    state = world.elastic_state(True)
    j0 = world.placeholder
    if j0 is not None and j0.id in world.job.members:
        return now + max(lambda_s, world.cost.reserve_s) >= walltime_end(j0, now)
    ends = ask(world.policy, Situation.SUBJOB_ENDS, state, now)
    next_s = ends.begin_s if ends.begin_s is not None else ends.expected_completion_s
    return next_s is not None and next_s - now <= lambda_s
