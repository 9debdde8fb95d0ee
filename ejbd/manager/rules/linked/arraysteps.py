"""What is to be done about elastic arrays: a few elements at a time, whenever one of them has changed."""

from __future__ import annotations

from sqlalchemy import func, select

from ejbd.manager.effects import Apart, CancelJob, Effects, MoveJob, note
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.rules.linked import elements
from ejbd.store.models import Array, Dependency, Job
from ejbd.store.states import TERMINAL_JOB, JobState

ARRAYS_AT_ONCE = 8
CANCELLED_AT_ONCE = 8


def step(ctx: Context, most: int) -> Effects[bool]:
    """Make at most `most` elements jobs, cancel some of what is to be cancelled, end what is over. True: there is more
    to do at once."""
    waiting = select(Dependency.job_id)
    query = select(Array, Job).join(Job, Array.job_id == Job.id).where(Array.changed, Array.job_id.not_in(waiting))
    did = False
    for array, job in ctx.session.execute(query.order_by(Job.seq).limit(ARRAYS_AT_ONCE)).all():
        done = 0

        def go_on(world: JobWorld, array: Array = array, most: int = most) -> Effects[None]:
            nonlocal done
            done = yield from _go_on(world.ctx, array, world.job, most)

        yield Apart(JobWorld(ctx, job), go_on)
        most -= done
        did = did or done > 0
    return did


def _go_on(ctx: Context, array: Array, job: Job, most: int) -> Effects[int]:
    """How many elements were begun or cancelled."""
    done = 0
    if job.state == JobState.RECEIVED:
        yield MoveJob(job, JobState.WAITING)
    if array.cancelled_by is not None:
        done = yield from _cancel_some(ctx, array)
    elif not job.held and most > 0:
        done = yield from elements.unfold(ctx, array, job, most)
    if not done and (most > 0 or job.held or not array.ahead):
        yield note(array, changed=False)
    if job.state == JobState.WAITING and _begun(ctx, job):
        yield MoveJob(job, JobState.RUNNING)
    if not array.ahead and array.open == 0:
        yield from _end(ctx, array, job)
    return done


def _begun(ctx: Context, job: Job) -> bool:
    query = select(Job.seq).where(Job.array_id == job.id, Job.start_s.is_not(None)).limit(1)
    return ctx.session.scalar(query) is not None


def _end(ctx: Context, array: Array, job: Job) -> Effects[None]:
    """An array is what the worst of its elements is, with the highest of their codes."""
    yield note(array, changed=False)
    which = elements.indices(ctx.session, job.id)
    worst = next(state for state in elements.WORST_FIRST if state in which)
    yield note(job, exit_code=ctx.session.scalar(select(func.max(Job.exit_code)).where(Job.array_id == job.id)))
    yield MoveJob(job, worst, reason=elements.in_words(which))


def _cancel_some(ctx: Context, array: Array) -> Effects[int]:
    query = select(Job.id).where(Job.array_id == array.job_id, Job.state.not_in((*TERMINAL_JOB, JobState.ENDING)))
    ids = ctx.session.scalars(query.order_by(Job.seq).limit(CANCELLED_AT_ONCE)).all()
    for id in ids:
        yield CancelJob(id, array.cancelled_by or "")
    return len(ids)
