"""Writes a job's state, where it is wanted, and the work that it has done."""

from __future__ import annotations

from ejbd.manager.effects import LoseWork, MoveJob, Rate, Want
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.times import work_now
from ejbd.store.transitions import move_job


def move(world: JobWorld, effect: MoveJob) -> None:
    ctx = world.ctx
    move_job(ctx.session, world.job, effect.state, ctx.now, reason=effect.reason, setback=effect.setback)


def want(world: JobWorld, effect: Want) -> None:
    world.job.members = list(effect.members)


def rate(world: JobWorld, effect: Rate) -> None:
    job, now = world.job, world.ctx.now
    job.work_s = work_now(job, now)
    job.work_as_of_s = now
    job.work_rate = effect.rate


def lose_work(world: JobWorld, effect: LoseWork) -> None:
    world.job.work_s, world.job.work_rate, world.job.work_as_of_s = effect.kept_s, 0.0, world.ctx.now
