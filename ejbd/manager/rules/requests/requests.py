"""What users ask of the manager: submit, cancel, hold, release, settings of queues. Each is one transaction."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.batch.base import Mark
from ejbd.core.evolving.course import Course
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import (
    Act,
    Conclude,
    DropElements,
    Effects,
    In,
    MoveJob,
    Release,
    ReplaceTail,
    ToRanks,
    ToScript,
    Wake,
    note,
    tell,
)
from ejbd.manager.effects.ends import CancelAsked
from ejbd.manager.facts.attempts import under_way
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.tags import mark_of
from ejbd.manager.jobspec.indices import chosen
from ejbd.options.signals import EndSignal
from ejbd.store.models import Array, Job
from ejbd.store.states import TERMINAL_JOB, JobState, SubjobState
from ejbd.store.transitions import NEW_JOBS_TOPIC
from ejbd.wire.kinds import EventKind, IntentKind, JobKind, SubjobRole


def cancel(ctx: Context, job_id: str, by: str) -> Effects[None]:
    """End a job for good, whatever it is doing."""
    world = _live(ctx, job_id, "cancelled")
    job = world.job
    said = f"cancelled by {by}"
    yield tell(EventKind.JOB_CANCEL_ASKED, job_id=job.id, by=by)
    if job.state == JobState.ENDING:
        return  # it is over already, and its output is being collected
    if job.kind == JobKind.ARRAY:
        array = ctx.session.get_one(Array, job.id)
        yield note(array, cancelled_by=by)
        yield DropElements(array, None)
        yield Wake((NEW_JOBS_TOPIC,))  # the others are cancelled some at a time
        return
    if not job.elastic and world.open_subjobs:
        for subjob in world.open_subjobs:
            yield In(world, Release(subjob, said))
        its_own = any(subjob.role == SubjobRole.RIGID for subjob in world.open_subjobs)
        if its_own and job.state in (JobState.WAITING, JobState.RUNNING):  # the batch system has the last word
            yield note(job, final_state=JobState.CANCELLED)
            yield MoveJob(job, JobState.ENDING, reason=said)
            return
    yield In(world, Conclude(CancelAsked(said)))


def cancel_elements(ctx: Context, array_id: str, wanted: str, by: str) -> Effects[None]:
    """End these elements of an array (as --array has them) for good. Raises EjbError (CONFLICT) where none is left."""
    job = _live(ctx, array_id, "cancelled").job
    if job.kind != JobKind.ARRAY:
        raise EjbError(Code.NOT_FOUND, f"job {array_id} is no array of EJB's own")
    query = select(Job.id, Job.array_index).where(Job.array_id == array_id, Job.state.not_in(TERMINAL_JOB))
    open_ones = {index or 0: id for id, index in ctx.session.execute(query.order_by(Job.seq))}
    try:
        which = chosen(wanted, open_ones)
    except ValueError:
        hint = f"such as {array_id}_[1-5,7]"
        raise EjbError(Code.INVALID, f"{wanted!r} names no elements", where=array_id, hint=hint) from None
    dropped = yield DropElements(ctx.session.get_one(Array, array_id), wanted)
    living = [open_ones[index] for index in which.intiter()]
    if not dropped and not living:
        raise EjbError(Code.CONFLICT, f"no element of {array_id}_[{wanted}] is left to be cancelled")
    yield tell(EventKind.JOB_CANCEL_ASKED, job_id=array_id, by=by, elements=wanted)
    for id in living:
        yield from cancel(ctx, id, by)
    yield Wake((NEW_JOBS_TOPIC,))


def hold(ctx: Context, job_id: str, by: str) -> Effects[None]:
    """Keep a waiting job from starting."""
    world = _live(ctx, job_id, "held")
    job = world.job
    if job.kind == JobKind.ARRAY and not job.held:
        yield note(job, held=True)
        yield tell(EventKind.JOB_HELD, job_id=job.id, by=by)
        for element in _waiting_elements(ctx, job.id, held=False):
            yield from hold(ctx, element.id, by)
        return
    if job.state not in (JobState.RECEIVED, JobState.WAITING) or job.members:
        raise EjbError(Code.CONFLICT, f"job {job.id} has started; only a waiting job can be held")
    if job.held:
        return
    if under_way(job) is not None:
        hint = "hold it once it waits again, or cancel it"
        raise EjbError(Code.CONFLICT, f"job {job.id} is on its way into a gap and cannot be held", hint=hint)
    yield note(job, held=True)
    yield tell(EventKind.JOB_HELD, job_id=job.id, by=by)
    for subjob in world.awaited:
        yield In(world, Release(subjob, "the job is held"))
    yield from _tell_first(ctx, world, IntentKind.HOLD)


def unhold(ctx: Context, job_id: str, by: str) -> Effects[None]:
    """Let a held job start again."""
    world = _live(ctx, job_id, "released")
    job = world.job
    if not job.held:
        raise EjbError(Code.CONFLICT, f"job {job.id} is not held")
    yield note(job, held=False)
    yield tell(EventKind.JOB_RELEASED, job_id=job.id, by=by)
    if job.kind == JobKind.ARRAY:
        yield note(ctx.session.get_one(Array, job.id), changed=True)
        for element in _waiting_elements(ctx, job.id, held=True):
            yield from unhold(ctx, element.id, by)
    yield Wake((NEW_JOBS_TOPIC,))
    yield from _tell_first(ctx, world, IntentKind.RELEASE)


def signal(ctx: Context, job_id: str, name: str, to: str, by: str) -> Effects[tuple[int, dict[str, Mark]]]:
    """Send a signal to the ranks of an elastic job, to the shell of its script, or to both (`to`: ranks, script, all).

    Answers its number, and the batch jobs to which the batch system's adapter has to send it, with what they are known
    by: those of a passed-through job. Raises EjbError: INVALID for what is no signal, UNSUPPORTED for a passed-through
    job that only a command of the batch system signals, CONFLICT where nothing runs to send it to.
    """
    try:
        told = EndSignal.read(name)
    except ValueError:
        raise EjbError(Code.INVALID, f"{name!r} is no signal", where="signal", hint="such as USR1") from None
    world = _live(ctx, job_id, "signalled")
    job = world.job
    if job.kind == JobKind.ARRAY:
        query = select(Job).where(Job.array_id == job.id, Job.state == JobState.RUNNING)
        worlds = [JobWorld(ctx, element) for element in ctx.session.scalars(query)]
    else:
        worlds = [world]
    if not job.elastic and ctx.settings.traits.signals:
        subjobs = [subjob for one in worlds for subjob in one.open_subjobs if subjob.state == SubjobState.RUNNING]
        running = {subjob.batch_id: mark_of(subjob) for subjob in subjobs if subjob.batch_id is not None}
        if not running:
            raise EjbError(Code.CONFLICT, f"nothing of job {job.id} runs that a signal could be sent to")
        yield tell(EventKind.JOB_SIGNAL_ASKED, job_id=job.id, by=by, signal=told.name, to=to)
        return told.number, running
    if not job.elastic:
        raise EjbError(Code.UNSUPPORTED, f"job {job.id} is passed through", hint="the batch system signals it: scancel")
    reached = False
    for one in worlds:
        here = to in ("ranks", "all") and (yield In(world, ToRanks(told.number)))
        shell = one.spec.script is not None and to in ("script", "all")
        here = (shell and (yield In(world, ToScript(told.number)))) or here
        if here:
            yield tell(EventKind.JOB_SIGNAL_ASKED, job_id=one.job.id, by=by, signal=told.name, to=to)
        reached = reached or here
    if not reached:
        raise EjbError(Code.CONFLICT, f"nothing of job {job.id} runs that a signal could be sent to")
    return told.number, {}


def evolve(ctx: Context, job_id: str, tail: str, dry_run: bool, by: str) -> Effects[Course]:
    """Replace what comes of an evolving job, such as `now:64,+30m:128`; answers its course. `dry_run`: only answers.

    Raises EjbError: INVALID for what is no tail of it, UNSUPPORTED for another job, CONFLICT where it does not run.
    """
    world = _live(ctx, job_id, "changed")
    course: Course = yield In(world, ReplaceTail(tail, by, dry_run))
    return course


def resize(
    ctx: Context, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
) -> Effects[Course]:
    """Give an evolving job so many places from now to its end (None: what it holds throughout); answers its course.

    `change`: so many more than it has now, or less, instead. The same asked for once more is one: a program that was
    restored from a checkpoint asks again. A `change` is so with a `key` alone. Raises EjbError as :func:`evolve` does.
    """
    world = _live(ctx, job_id, "resized")
    base = world.course.base if world.course is not None else 1
    width = f"by:{change}" if change is not None else f"to:{base if places is None else places}"
    found: Course = yield In(world, ReplaceTail(width, by, False, key))
    return found


def _waiting_elements(ctx: Context, array_id: str, *, held: bool) -> list[Job]:
    states = (JobState.RECEIVED, JobState.WAITING)
    query = select(Job).where(Job.array_id == array_id, Job.state.in_(states), Job.held.is_(held)).order_by(Job.seq)
    return [job for job in ctx.session.scalars(query) if not job.members]


def _tell_first(ctx: Context, world: JobWorld, kind: IntentKind) -> Effects[None]:
    """The batch system holds or releases J0 (or the passed-through job), if it has it. What stands by waits anyhow."""
    for subjob in world.open_subjobs:
        if subjob.role in (SubjobRole.PLACEHOLDER, SubjobRole.RIGID) and subjob.state in (
            SubjobState.PLANNED,
            SubjobState.PENDING,
        ):
            yield Act(kind, world.job.id, subjob=subjob)


def _live(ctx: Context, job_id: str, what: str) -> JobWorld:
    job = ctx.session.scalars(select(Job).where(Job.id == job_id)).first()
    if job is None:
        raise EjbError(Code.NOT_FOUND, f"there is no job {job_id}")
    if JobState(job.state).terminal:
        raise EjbError(Code.CONFLICT, f"job {job.id} is {job.state} and cannot be {what}")
    return JobWorld(ctx, job)
