"""What is to be done about elastic arrays: a few elements at a time, whenever one of them has changed."""

from __future__ import annotations

from sqlalchemy import func, select

from ejbd.manager.acts.guard import guarded
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.rules.linked import elements
from ejbd.manager.rules.requests import requests
from ejbd.store.models import Array, Dependency, Job
from ejbd.store.states import TERMINAL_JOB, JobState
from ejbd.store.transitions import move_job

ARRAYS_AT_ONCE = 8
CANCELLED_AT_ONCE = 8


def step(ctx: Context, most: int) -> bool:
    """Make at most `most` elements jobs, cancel some of what is to be cancelled, end what is over. True: there is more
    to do at once."""
    waiting = select(Dependency.job_id)
    query = select(Array, Job).join(Job, Array.job_id == Job.id).where(Array.changed, Array.job_id.not_in(waiting))
    did = False
    for array, job in ctx.session.execute(query.order_by(Job.seq).limit(ARRAYS_AT_ONCE)).all():
        done = 0

        def go_on(world: JobWorld, array: Array = array, most: int = most) -> None:
            nonlocal done
            done = _go_on(world.ctx, array, world.job, most)

        guarded(JobWorld(ctx, job), go_on)
        most -= done
        did = did or done > 0
    return did


def _go_on(ctx: Context, array: Array, job: Job, most: int) -> int:
    """How many elements were begun or cancelled."""
    done = 0
    if job.state == JobState.RECEIVED:
        move_job(ctx.session, job, JobState.WAITING, ctx.now)
    if array.cancelled_by is not None:
        done = _cancel_some(ctx, array)
    elif not job.held and most > 0:
        done = elements.unfold(ctx, array, job, most)
    if not done and (most > 0 or job.held or not array.ahead):
        array.changed = False
    if job.state == JobState.WAITING and _begun(ctx, job):
        move_job(ctx.session, job, JobState.RUNNING, ctx.now)
    if not array.ahead and array.open == 0:
        _end(ctx, array, job)
    return done


def _begun(ctx: Context, job: Job) -> bool:
    query = select(Job.seq).where(Job.array_id == job.id, Job.start_s.is_not(None)).limit(1)
    return ctx.session.scalar(query) is not None


def _end(ctx: Context, array: Array, job: Job) -> None:
    """An array is what the worst of its elements is, with the highest of their codes."""
    array.changed = False
    which = elements.indices(ctx.session, job.id)
    worst = next(state for state in elements.WORST_FIRST if state in which)
    job.exit_code = ctx.session.scalar(select(func.max(Job.exit_code)).where(Job.array_id == job.id))
    move_job(ctx.session, job, worst, ctx.now, reason=elements.in_words(which))


def _cancel_some(ctx: Context, array: Array) -> int:
    query = select(Job.id).where(Job.array_id == array.job_id, Job.state.not_in((*TERMINAL_JOB, JobState.ENDING)))
    ids = ctx.session.scalars(query.order_by(Job.seq).limit(CANCELLED_AT_ONCE)).all()
    for id in ids:
        requests.cancel(ctx, id, array.cancelled_by or "")
    return len(ids)
