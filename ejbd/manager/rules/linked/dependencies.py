"""Jobs that wait for other jobs of EJB (--dependency), elastic or passed through, before the batch system has them.

Slurm counts no time of a job that waits for another one, either: it loses no place in the queue by coming later. What
--dependency says of jobs of the batch system by their numbers is left to the batch system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from ejbd.core.view import ClusterView
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Apart, Conclude, Delete, Effects, note, tell
from ejbd.manager.effects.ends import CancelAsked
from ejbd.manager.facts.batchjob import numbers
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.depends import Condition, Depends, When
from ejbd.manager.jobspec.indices import Indices, unfolded
from ejbd.store.models import Array, Dependency, Job
from ejbd.store.queries import by_number
from ejbd.store.states import LIVING_JOB, TERMINAL_JOB, JobState
from ejbd.wire.kinds import EventKind, JobKind
from ejbd.wire.numbers import may_be_slurms

OPTION, KILL = "--dependency=", "--kill-on-invalid-dep="
WAITS, NEVER = "Dependency", "DependencyNeverSatisfied"  # as Slurm says it


IDS_AT_ONCE = 500
_IS_OVER = exists().where(Job.id == Dependency.job_id, Job.state != JobState.RECEIVED)
_OVER = select(Dependency.job_id).where(_IS_OVER).limit(IDS_AT_ONCE)  # cancelled while they waited
# The first of the singletons of each name: no later one can be met before.
_FIRST = select(Job.id).where(
    Job.seq.in_(
        select(func.min(Job.seq))
        .join(Dependency, Dependency.job_id == Job.id)
        .where(Dependency.conditions.contains(When.SINGLETON), Dependency.never.is_(False))
        .group_by(Job.user, Job.name)
    )
)


class Met(StrEnum):
    """How it is with a condition."""

    YES = "yes"
    NOT_YET = "not yet"
    NEVER = "never"


# -- at submission ----------------------------------------------------------------------------------------------------


def divided(
    session: Session, spec: JobSpec, *, batch_jobs: bool = False, batch_waits: bool = True
) -> tuple[JobSpec, str]:
    """The job with what the batch system is to wait for, and what EJB is, as --dependency has it ("": nothing).

    `batch_jobs`: its numbers are those of batch jobs, and the batch system waits for all of them. `batch_waits`: it
    waits for jobs at all. Where it does not, EJB waits for its own, and a number that is none of theirs is passed over.
    Raises EjbError (INVALID) for jobs that are not known, and for what cannot be waited for in two places.
    """
    text = spec.wants.dependency
    found = Depends.read(text) if text else None
    if found is None:
        return spec, ""
    ours: list[Condition] = []
    theirs: list[Condition] = []
    for one in found.conditions:
        known = None if batch_jobs else _known(session, one.job, batch_waits) if one.job else ""
        if known is not None:
            ours.append(replace(one, job=known))
        elif (number := one.job.partition("_")[0]).isdigit() and may_be_slurms(number):
            theirs.append(one)
        else:
            message = f"there is no job {one.job!r} to depend on"
            raise EjbError(Code.INVALID, message, where="--dependency", hint="give the whole id of a job")
    if not batch_waits and not batch_jobs:
        # As on a Slurm a job that it does not know is waited for no more, and of several it is the first to have ended.
        ours = [] if theirs and found.either else ours
        return _passed_through(spec, ""), str(found.only(ours)) if ours else ""
    if ours and theirs and found.either:
        message = "any of several jobs can be waited for only if all are EJB's, or all the batch system's"
        raise EjbError(Code.INVALID, message, where="--dependency", hint="put a comma where the question mark is")
    # The batch system knows a passed-through job by its name, and so what else of that name is not EJB's.
    singles = [] if found.either else [one for one in ours if one.when is When.SINGLETON]
    first = tuple(word for word in spec.wants.first if not word.startswith(OPTION))
    if theirs:
        kill = spec.wants.kill_invalid
        said = () if kill is None else (KILL + ("yes" if kill else "no"),)
        first = (*first, OPTION + str(found.only(theirs)), *said)
    spec = replace(spec, wants=replace(spec.wants, first=first))
    if not ours:
        return spec, ""
    return _passed_through(spec, str(found.only((*theirs, *singles)))), str(found.only(ours))


def _passed_through(spec: JobSpec, passed_through: str) -> JobSpec:
    """With the part that the batch system is told of where the job is passed through."""
    rigid = tuple(word for word in spec.rigid_options if not word.startswith(OPTION))
    if passed_through:
        rigid = (*rigid, OPTION + passed_through)
    asked = spec.asked
    if asked is not None:  # said last, so that it holds over the script's own lines
        words = tuple(word for word in asked.options if not word.startswith(OPTION))
        asked = replace(asked, options=(*words, OPTION + passed_through))
    return replace(spec, rigid_options=rigid, asked=asked)


def of_whole(session: Session, conditions: str) -> str:
    """What an elastic array waits for as a whole: without what each of its elements waits for."""
    found = Depends.read(conditions)
    if found is None or found.either:
        return conditions
    arrays = set(_corresponding(session, found))
    return str(found.only(one for one in found.conditions if one.when is not When.AFTERCORR or one.job not in arrays))


def of_elements(session: Session, spec: JobSpec, indices: Iterable[int]) -> dict[int, str]:
    """What these elements of an array wait for, index by index (aftercorr).

    It is the element of the other array that has the same index, or, where it has none, the other array. Empty where
    they wait for nothing of their own.
    """
    if When.AFTERCORR not in spec.wants.dependency:
        return {}
    found = Depends.read(divided(session, spec)[1])
    others = _corresponding(session, found) if found is not None else {}
    if not others:
        return {}
    return {
        at: ",".join(
            str(Condition(When.AFTERCORR, f"{id}_{at}" if theirs is not None and at in theirs else id))
            for id, theirs in others.items()
        )
        for at in indices
    }


def _corresponding(session: Session, depends: Depends) -> dict[str, Indices | None]:
    targets = [one.job for one in depends.conditions if one.when is When.AFTERCORR]
    arrays = session.execute(select(Job.id, Job.spec).where(Job.id.in_(targets), Job.kind == JobKind.ARRAY))
    return {id: Indices.read(str(spec["array"])) for id, spec in arrays}


def _known(session: Session, id: str, batch_waits: bool) -> str | None:
    """The job of EJB that is meant: by its id, or by a number of it. None: none is, or the batch system knows it by
    this number as well as EJB does, and waits itself."""
    base, _, index = id.partition("_")
    job = session.scalar(select(Job.id).where(Job.id == base))
    if job is None and (named := by_number(session, select(Job), base)) is not None:
        job = None if batch_waits and numbers.is_slurms(session, named, base) else named.id
    if job is None or not index:
        return job
    array = session.scalar(select(Job).where(Job.id == job, Job.kind == JobKind.ARRAY))
    if array is None:
        return None
    indices = str(array.spec["array"])
    found = Indices.read(indices)
    if found is None or int(index) not in found:
        message = f"array {job} has no element {int(index)} to depend on"
        raise EjbError(
            Code.INVALID, message, where="--dependency", hint=f"its elements are {indices.partition('%')[0]}"
        )
    return f"{job}_{int(index)}"


def waits_for(conditions: str) -> str:
    """The reason of a job that waits."""
    return f"{WAITS}: {conditions}"


# -- later ------------------------------------------------------------------------------------------------------------


def step(ctx: Context) -> Effects[None]:
    """Let jobs go where their dependencies are met. End or keep those where they never will be."""
    waiting = select(Dependency.job_id, Dependency.conditions).where(Dependency.never.is_(False))
    targets = {
        row.job_id: [one.job for one in _read(row.conditions) if one.job] for row in ctx.session.execute(waiting)
    }
    if not targets:
        return
    ids = _worth_a_look(ctx.session, targets)
    query = select(Dependency, Job).join(Job, Dependency.job_id == Job.id).where(Dependency.job_id.in_(ids))
    for dependency, job in ctx.session.execute(query.order_by(Job.seq)).all():

        def look(world: JobWorld, dependency: Dependency = dependency) -> Effects[None]:
            yield from _look(world, dependency)

        yield Apart(JobWorld(ctx, job), look)


def _worth_a_look(session: Session, targets: Mapping[str, Sequence[str]]) -> list[str]:
    """Those with a condition that may have changed: waiting jobs may be many, and this is asked often."""
    asked = sorted({target for some in targets.values() for target in some})
    begun: set[str] = set()
    for at in range(0, len(asked), IDS_AT_ONCE):
        told = or_(Job.start_s.is_not(None), Job.state.in_(TERMINAL_JOB))
        begun.update(session.scalars(select(Job.id).where(Job.id.in_(asked[at : at + IDS_AT_ONCE]), told)))
    # Arrays of which an element may have ended without ever having been a job.
    arrays = {target.partition("_")[0] for target in asked if "_" in target}
    settled = set(session.scalars(select(Array.job_id).where(Array.dropped != "", Array.job_id.in_(arrays))))
    first = session.scalars(_FIRST)
    over = session.scalars(_OVER)
    changed = {
        id
        for id, some in targets.items()
        if any(target in begun or target.partition("_")[0] in settled for target in some)
    }
    return sorted(changed.union(first, over))


@lru_cache(maxsize=4096)
def _read(conditions: str) -> tuple[Condition, ...]:
    found = Depends.read(conditions)
    return found.conditions if found is not None else ()


_MAY_BE_MET = select(Dependency.job_id).where(Dependency.never.is_(False)).limit(1)


def any_wait(session: Session) -> bool:
    """Whether a job waits for others."""
    return session.scalar(_MAY_BE_MET) is not None


def never_met(session: Session, job: Job) -> bool:
    """Whether a job waits for what can never be."""
    dependency = session.get(Dependency, job.id)
    return dependency is not None and dependency.never


def _look(world: JobWorld, dependency: Dependency) -> Effects[None]:
    ctx, job = world.ctx, world.job
    found = Depends.read(dependency.conditions)
    if job.state != JobState.RECEIVED or found is None:
        yield Delete(dependency)
        return
    met, why = _all(ctx, job, found)
    if met is Met.NOT_YET:
        return
    said = why if met is Met.NEVER else ""
    yield tell(EventKind.JOB_DEPENDENCY, job_id=job.id, met=met is Met.YES, reason=said)
    if met is Met.YES:
        yield Delete(dependency)
        yield note(job, reason="")
        return
    yield note(dependency, never=True)
    yield note(job, reason=f"{NEVER}: {why}")
    asked = world.spec.wants.kill_invalid
    if asked or (asked is None and ctx.view is not None and ctx.view.kills_unmet):
        yield Conclude(CancelAsked(job.reason))


def _all(ctx: Context, job: Job, depends: Depends) -> tuple[Met, str]:
    """How it is with all conditions together, and the first that can never be met."""
    each = [(one, _met(ctx, job, one)) for one in depends.conditions]
    states = [met for _, met in each]
    never = next((f"{one}, which can no longer be" for one, met in each if met is Met.NEVER), "")
    if depends.either:
        if Met.YES in states:
            return Met.YES, ""
        return (Met.NOT_YET, "") if Met.NOT_YET in states else (Met.NEVER, never)
    if never:
        return Met.NEVER, never
    return (Met.NOT_YET if Met.NOT_YET in states else Met.YES), ""


def _met(ctx: Context, job: Job, one: Condition) -> Met:
    if one.when is When.SINGLETON:
        return Met.YES if _alone(ctx, job) else Met.NOT_YET
    target = ctx.session.scalar(select(Job).where(Job.id == one.job))
    if target is None:
        return _of_no_job(ctx.session, one)
    if one.when is When.AFTER:
        begun_s = _begun_s(ctx.session, target)
        return Met.YES if begun_s is not None and begun_s + 60.0 * one.minutes <= ctx.now else Met.NOT_YET
    if one.when is When.AFTERCORR and target.kind == JobKind.ARRAY and job.kind == JobKind.ARRAY:
        return Met.YES  # each element waits for its own
    state = JobState(target.state)
    return _ENDED[one.when](state is JobState.COMPLETED) if state.terminal else Met.NOT_YET


_ENDED: dict[When, Callable[[bool], Met]] = {
    When.AFTERANY: lambda well: Met.YES,
    When.AFTEROK: lambda well: Met.YES if well else Met.NEVER,
    When.AFTERCORR: lambda well: Met.YES if well else Met.NEVER,
    When.AFTERNOTOK: lambda well: Met.NEVER if well else Met.YES,
}


def _of_no_job(session: Session, one: Condition) -> Met:
    """An element that is no job yet, or never was one; or a job that is so old that it was forgotten."""
    base, _, index = one.job.partition("_")
    array = session.get(Array, base) if index else None
    if array is not None and int(index) in set(unfolded(array.ahead).intiter()):
        return Met.NOT_YET
    return Met.YES if one.when is When.AFTER else _ENDED[one.when](False)


def _begun_s(session: Session, job: Job) -> float | None:
    """When a job began, or had ended without; an array, when the last of its elements had."""
    if job.kind != JobKind.ARRAY or JobState(job.state).terminal:
        return job.start_s if job.start_s is not None else job.end_s if JobState(job.state).terminal else None
    array = session.get_one(Array, job.id)
    of_it = select(func.count()).where(Job.array_id == job.id, Job.start_s.is_(None), Job.state.not_in(TERMINAL_JOB))
    if array.ahead or session.scalar(of_it):
        return None
    return session.scalar(select(func.max(Job.start_s)).where(Job.array_id == job.id)) or job.submit_s


def _alone(ctx: Context, job: Job) -> bool:
    """Whether all earlier jobs of the same name and user have ended, EJB's and those of the batch system."""
    query = select(Job.seq).where(
        Job.user == job.user, Job.name == job.name, Job.seq < job.seq, Job.state.in_(LIVING_JOB)
    )
    if ctx.session.scalar(query.limit(1)) is not None:
        return False
    return not job.elastic or not _stands_before(ctx.view, job)


def _stands_before(view: ClusterView | None, job: Job) -> bool:
    """Whether the user has a batch job of the same name that is not EJB's and was submitted earlier."""
    return any(
        seen.name == job.name
        and seen.user == job.user  # of many users any may call a job so
        and not (seen.foreign or seen.state.ended or seen.mark.startswith(TAG_PREFIX))
        and (seen.submit_s is None or seen.submit_s <= job.submit_s)
        for seen in (view.jobs if view is not None else ())
    )
