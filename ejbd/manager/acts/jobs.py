"""Writes a job's state, where it is wanted, and the work that it has done."""

from __future__ import annotations

from ejbd.manager.effects import LoseWork, MoveJob, Rate, Want
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.times import work_now
from ejbd.store.transitions import move_job


def move(ctx: Context, effect: MoveJob) -> None:
    more = effect.data or {}
    move_job(ctx.session, effect.job, effect.state, ctx.now, reason=effect.reason, setback=effect.setback, **more)


def want(ctx: Context, effect: Want) -> None:
    effect.job.members = list(effect.members)


def rate(ctx: Context, effect: Rate) -> None:
    job = effect.job
    job.work_s = work_now(job, ctx.now)
    job.work_as_of_s = ctx.now
    job.work_rate = effect.rate


def lose_work(ctx: Context, effect: LoseWork) -> None:
    effect.job.work_s, effect.job.work_rate, effect.job.work_as_of_s = effect.kept_s, 0.0, ctx.now
