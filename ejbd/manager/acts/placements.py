"""Writes launches and epochs."""

from __future__ import annotations

from ejbd.manager.effects import BeginEpoch, BeginLaunch, MoveEpoch
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.times import work_now
from ejbd.store.models import Epoch, Launch
from ejbd.store.states import EpochState, LaunchState
from ejbd.store.transitions import add_event, move_epoch
from ejbd.wire.kinds import EventKind


def begin_launch(world: JobWorld, effect: BeginLaunch) -> Launch:
    now = world.ctx.now
    launch = Launch(
        job_id=world.job.id,
        ordinal=effect.ordinal,
        state=LaunchState.ACTIVE,
        size=effect.size,
        file=effect.file,
        together=effect.together,
        work_at_start_s=work_now(world.job, now),
        created_s=now,
    )
    world.ctx.session.add(launch)
    world.ctx.session.flush()
    add_event(
        world.ctx.session,
        EventKind.LAUNCH_ASKED,
        now,
        job_id=world.job.id,
        ordinal=effect.ordinal,
        ranks=effect.size,
    )
    return launch


def begin_epoch(world: JobWorld, effect: BeginEpoch) -> Epoch:
    """The epoch that is launched, without its event, which is told once the workers have their orders."""
    ctx, job = world.ctx, world.job
    epoch = Epoch(
        job_id=job.id,
        state=EpochState.LAUNCHING,
        exits={},
        work_at_start_s=work_now(job, ctx.now),
        created_s=ctx.now,
        reason="",
        **effect.columns,
    )
    ctx.session.add(epoch)
    ctx.session.flush()
    world.set_epoch(epoch)
    return epoch


def move(world: JobWorld, effect: MoveEpoch) -> None:
    move_epoch(
        world.ctx.session,
        effect.epoch,
        effect.state,
        world.ctx.now,
        reason=effect.reason,
        code=effect.code,
        setback=effect.setback,
        **(effect.data or {}),
    )
