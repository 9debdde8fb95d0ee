"""How long a placement may take until its ranks run."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Move, Operation
from ejbd.store.states import EpochState
from ejbd.wire.kinds import EpochCode

PATIENCE = 4  # a checkpoint or a restart has failed when it takes so many times what is known of the application's
WORKERS_PART = 0.9  # of the time: the worker's own sentence comes before ours
PREPARE_S = 600.0  # for the commands before a start at another width, until they were measured
LATE_PART = 0.8  # a placement that failed after so much of its time did so for want of time
MOST_DOUBLINGS = 6
APART_PART = 0.5  # of a launch's time: ranks that waited so long for others may have given them up


def launch_timeout_s(world: JobWorld, launch_ordinal: int, restart_from: int | None) -> float:
    """The time for a launch or a restart that begins now (seconds).

    A restart reads what its checkpoint has written: it gets several times what that took, and what restarts of the
    application have taken before. Each restart in a row that had too little time doubles that of the next.
    """
    limit_s = world.ctx.settings.limits.launch_timeout_s
    resume = (world.job.spec.get("profile") or {}).get("resume") or {}
    if resume.get("prepare") and (restart_from is not None or resume.get("fresh")):
        limit_s += PREPARE_S
    if restart_from is None:
        return limit_s
    query = select(Move).where(Move.job_id == world.job.id, Move.epoch == restart_from).order_by(Move.id.desc())
    move = world.ctx.session.scalars(query.limit(1)).first()
    took = [move.checkpoint_s, move.restart_s] if move is not None else []
    known = [PATIENCE * seconds for seconds in (*took, world.cost.restart_s) if seconds is not None]
    return max(limit_s, *known, 0.0) * 2.0 ** min(MOST_DOUBLINGS, _late(world, launch_ordinal))


def told_timeout_s(world: JobWorld, operations: Sequence[Operation]) -> float:
    """The time that the launch was given to which these operations belong (seconds)."""
    told = [float(o.payload["timeout_s"]) / WORKERS_PART for o in operations if o.payload.get("timeout_s")]
    return max(told, default=world.ctx.settings.limits.launch_timeout_s)


def came_up_after_s(world: JobWorld, epoch: Epoch) -> float:
    """From when the placement was asked for until its last worker said that its ranks were up (seconds)."""
    return (epoch.running_s or world.ctx.now) - epoch.created_s


def came_apart(world: JobWorld, epoch: Epoch) -> bool:
    """Whether ranks that end now may have waited too long for those of other workers, which heard of the launch late.

    So it is where the daemon died in the middle of a launch. It says nothing about the program, once a launch: what
    comes up late a second time and fails again has failed by itself.
    """
    limit_s = world.ctx.settings.limits.launch_timeout_s
    coming_s = came_up_after_s(world, epoch)
    if epoch.restart_from is not None or len({seat.worker for seat in epoch.placement}) < 2:
        return False
    if coming_s < APART_PART * limit_s or world.ctx.now - epoch.created_s - coming_s > limit_s:
        return False
    before = select(Epoch.number).where(
        Epoch.job_id == world.job.id, Epoch.launch_ordinal == epoch.launch_ordinal, Epoch.code == EpochCode.CAME_APART
    )
    return world.ctx.session.scalars(before.limit(1)).first() is None


def _late(world: JobWorld, launch_ordinal: int) -> int:
    """How many restarts of the launch, the latest in a row, did not come up in their time."""
    query = select(Epoch).where(Epoch.job_id == world.job.id, Epoch.launch_ordinal == launch_ordinal)
    found = 0
    for epoch in world.ctx.session.scalars(query.order_by(Epoch.number.desc())):
        if epoch.state == EpochState.LAUNCHING:
            continue
        if epoch.state != EpochState.FAILED or epoch.running_s is not None or epoch.restart_from is None:
            break
        lasted_s = (epoch.ended_s or epoch.created_s) - epoch.created_s
        if lasted_s < LATE_PART * world.ctx.settings.limits.launch_timeout_s:
            break
        found += 1
    return found
