"""What an evolving job may be, and where its profile fits into what is free of its queue."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.evolving.course import base_of, profile_from_json
from ejbd.core.evolving.profiles import time_words
from ejbd.core.evolving.refit import fitted_whole
from ejbd.core.evolving.space import FreeSpace
from ejbd.core.needs import seen_by
from ejbd.core.progress import degree
from ejbd.core.room.windows import free_ahead
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import Code, EjbError
from ejbd.manager.facts.batchjob.begins import begins_of, is_guaranteed
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import launchwidth
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import SubjobRole


def check_evolving(spec: JobSpec, engine: str, omax: int, *, moves: bool, split: str = "") -> None:
    """Raise EjbError (UNSUPPORTED) where the widths of a job cannot change as it says.

    `omax`: how many of its ranks may share a processor. `moves`: its ranks are placed one by one. `split`: why ranks
    under DMTCP cannot be brought back on several hosts, or "".
    """
    if spec.evolving is None:
        return
    if spec.evolving.get("stages"):
        if spec.wants.shape or not moves:
            what = "each launch of the job has a width of its own, and its ranks are placed as one"
            raise EjbError(Code.UNSUPPORTED, what, where="stages", hint="leave stages out, or -N and GPUs")
        return
    profile = profile_from_json(spec.evolving)
    if engine == "none":
        what = "the job has a profile of widths, and its program cannot be moved: no engine can checkpoint it"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="see `ejb doctor`, or leave --profile out")
    if engine == "dmtcp" and split:
        what = f"the job has a profile of widths, and DMTCP cannot take its ranks from one node to several: {split}"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="see `ejb doctor`, or leave --profile out")
    if not moves or spec.wants.shape:
        what = "the job has a profile of widths, and its ranks are placed as one: their width cannot change"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="leave --profile out")
    share = degree(spec.processes, base_of(profile))
    if share > omax:
        what = f"in its narrowest step {share} ranks would share a processor, and at most {omax} may"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="widen that step, or allow more with --omax")


def space_of(world: JobWorld) -> FreeSpace | None:
    """What is free of a job's queue from now on, in places of the job; None where nothing is known of it.

    By planned ends and planned starts of all others, and by the begins of other evolving jobs' widths. What the job
    holds beside J0 counts as free, J0 does not.
    """
    ctx, needs = world.ctx, world.needs
    if ctx.view is None:
        return None
    own = {subjob.tag: subjob for subjob in world.open_subjobs}
    seen = seen_by(ctx.view, needs)
    others = replace(seen, jobs=tuple(job for job in seen.jobs if job.mark not in own))
    found = free_ahead(others, world.job.queue.partition(",")[0], ctx.now)
    if found is None:
        return None
    free, changes = found
    held = [s for s in own.values() if s.role == SubjobRole.SUBJOB and s.state == SubjobState.RUNNING]
    space = FreeSpace.of_releases(free + sum(needs.places(s.processors) for s in held), ctx.now, changes)
    planned = {job.mark for job in ctx.view.jobs if _is_planned(job)}
    for begin_s, lasting_s, processors in _unplanned(world, planned):
        begin_s = max(begin_s, ctx.now)  # what is due and has not begun is still to come
        space.take(begin_s, begin_s + lasting_s, -(-processors // needs.processors))
    space.levels = [max(0, level) for level in space.levels]  # less than nothing is free where plans overlap
    return space


def _is_planned(job: BatchJobView) -> bool:
    """Whether the view alone says when it holds its processors: not of what is held (PBS holds what begins later)."""
    if job.state is BatchState.PENDING:
        return job.planned_start_s is not None or not job.blocked
    return job.state is not BatchState.HELD


def _unplanned(world: JobWorld, planned: set[str]) -> list[tuple[float, float, int]]:
    """What other evolving jobs have queued with a begin that no view tells: begin, seconds and processors."""
    query = select(Subjob, Job.spec).join(Job, Subjob.job_id == Job.id)
    query = query.where(
        Job.queue == world.job.queue,
        Job.id != world.job.id,
        Subjob.state.in_((SubjobState.PLANNED, SubjobState.PENDING)),
        Subjob.releasing.is_(False),
    )
    found = []
    for subjob, spec in world.ctx.session.execute(query):
        begin_s = begins_of(spec).get(subjob.id)
        if begin_s is not None and subjob.tag not in planned:
            found.append((begin_s, subjob.walltime_s, subjob.processors))
    return found


def foreseen(world: JobWorld, space: FreeSpace | None) -> Decision:
    """What a dry run shows of an evolving job: its profile, fitted into what is free from now on."""
    if world.staged:
        return Decision(DecisionKind.NOTHING, world.job.id, world.ctx.now, launchwidth.told_ahead(world))
    profile, now, needs = world.evolving, world.ctx.now, world.needs
    course = fitted_whole(profile, space) if profile is not None and space is not None else None
    if course is None:
        why = "what is known to be free does not hold its profile: its widths follow once J0 starts"
        return Decision(DecisionKind.NOTHING, world.job.id, now, why)
    late_s = course.starts_s[0] - now
    when = "from now on" if late_s <= world.ctx.settings.poll_s else f"{time_words(round(late_s))} from now"
    why = f"all its widths fit {when}, {asked_how(world)}; {grace_words(world)}"
    timeline = course.timeline(now, world.job.processes, needs.processors)
    return Decision(DecisionKind.NOTHING, world.job.id, now, why, timeline=timeline)


def told_ahead(space: FreeSpace, each: int) -> list[tuple[float, int]]:
    """How many processors are free from when on, as pairs; `each`: processors of a place."""
    steps = zip(space.times[: space.steps], space.levels[: space.steps], strict=True)
    return [(at_s, level * each) for at_s, level in steps]


def asked_how(world: JobWorld) -> str:
    """How sure its widths are, in some words."""
    if is_guaranteed(world.job.spec):
        return "and each is queued with its begin before the job begins"
    return "as long as nothing else takes them: best effort"


def told_at_submission(spec: JobSpec, after_s: float) -> str:
    """What a job with a profile is told as it comes in."""
    evolving = spec.evolving or {}
    if evolving.get("stages"):
        return "each launch has its own width, asked for as it comes, and the script one place between them"
    how = "asked for as it comes" if evolving.get("best_effort") else "queued with its begin before the job begins"
    return f"each of its widths is {how}; one that is not left {after_s:g} s and a move after its last step ends it"


def grace_s(world: JobWorld) -> float:
    """How long after the end of a step a width may still be held: a move, and as long as the site allows."""
    configured = world.ctx.queue_settings(world.job.queue).parameters.lambda_s  # no measurement makes it shorter
    return world.ctx.settings.limits.give_back_grace_s + configured


def grace_words(world: JobWorld) -> str:
    """What a job is told beforehand."""
    return f"a width that is not left {grace_s(world):.0f} s after its last step ends the job"


def in_words(world: JobWorld) -> str:
    """Where an evolving job is in its course, and what comes next; "" of any other job."""
    profile, course, now = world.evolving, world.course, world.ctx.now
    if profile is None:
        return ""
    if world.staged:
        return launchwidth.in_words(world)
    if course is None:
        return _before(world)
    at = course.step_at(now)
    held = [s for s in world.open_subjobs if s.id in world.job.members]
    width = sum(world.needs.places(s.processors) for s in held)
    planned = course.profile.steps[at].processors
    told = f"step {at + 1} of {len(course.starts_s)}, {width} of {planned} places"
    if width < planned and str(at) not in world.job.spec["evolving"].get("slow", {}):
        told += ": it waits for its width, and the step before is held"
    if at + 1 == len(course.starts_s):
        return f"{told}; the last one, to its end in {max(0.0, course.end_s - now):.0f} s"
    behind = course.profile.steps[at + 1].processors
    less = f"; {grace_words(world)}" if behind < planned else ""
    return f"{told}; {behind} in {course.starts_s[at + 1] - now:.0f} s{less}"


def _before(world: JobWorld) -> str:
    """Of a job that has not begun."""
    profile, plan, j0 = world.evolving, world.plan, world.placeholder
    if profile is None:
        return ""
    told = f"its widths are {profile.words()}, and begin once {base_of(profile)} places are there"
    if plan is None:
        return told
    queued = [s for s in world.open_subjobs if s.role == SubjobRole.SUBJOB and s.state != SubjobState.PLANNED]
    told += f"; {len(queued)} of {len(plan.increments)} increments are queued"
    late_s = plan.starts_s[0] - world.ctx.now
    if late_s > 0:
        told += f", and all of it fits in {late_s:.0f} s"
    if world.job.state == JobState.WAITING and j0 is not None and j0.state == SubjobState.RUNNING:
        told += ": the places are there, and it begins when every width is queued"
    return told
