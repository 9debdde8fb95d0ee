"""An evolving job from look to look (Klein & Perez 2011, section 3.2): increments are asked for, decrements given back.

J0 is what all steps have in common. Every other block is a subjob: asked for so early that it should be there in time,
wanted from the beginning of its first step, and left at the end of its last one. Where it is late the step before is
held, and what is behind is put off. No width is reserved ahead: the batch system gives it in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ejbd.core.evolving.blocks import Block
from ejbd.core.evolving.course import Course, parse_tail
from ejbd.core.room.walltimes import slack
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Ask, Effect, Effects, EnsurePlaceholder, GivesBackLate, Release, Want, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.room.windows import margins
from ejbd.store.models import Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, SubjobRole

SLACK_POLLS = 2.0  # what a look may come late, at the beginning of a block and at its end


def evolve(world: JobWorld) -> Effects[None]:
    """One look: ask for the widths that come, want those that are there, and leave what is over."""
    job, now = world.job, world.ctx.now
    j0 = world.placeholder
    if j0 is None:
        if job.state == JobState.WAITING:
            yield EnsurePlaceholder()
        return
    if j0.state != SubjobState.RUNNING:
        return
    if job.state == JobState.WAITING and not job.members:
        if not (yield GivesBackLate(j0)):
            yield from _begin(world, j0)
        return
    course = world.course
    if course is None or job.state != JobState.RUNNING:
        return
    course = yield from _in_time(world, course)
    wanted = [j0.id]
    for block in course.increments:
        if course.begins(block) - _ahead_s(world) <= now < course.ends(block):
            wanted += yield from _held(world, course, block)
    yield from _give_up(world, course, wanted)
    if not world.moving and set(wanted) != set(job.members):
        yield from _want(world, course, wanted)


def _begin(world: JobWorld, j0: Subjob) -> Effects[None]:
    """J0 has started: the course begins, or goes on after a setback from where it stood."""
    job, now = world.job, world.ctx.now
    profile, before = world.evolving, world.course
    if profile is None:
        return
    why = "its widths from now on"
    if before is None:
        course = Course.beginning(profile, now)
    else:
        epoch = world.epoch
        stood_s = epoch.ended_s if epoch is not None and epoch.ended_s is not None else now
        course, why = before.resumed(stood_s, now), "it goes on where it stood"
    yield from _take(world, course, why)
    yield Want(job, [j0.id])


def _take(world: JobWorld, course: Course, why: str) -> Effects[None]:
    """This is its course from now on."""
    yield _noted(world, **course.to_json())
    yield tell(EventKind.DECISION_EVOLVE, job_id=world.job.id, **course.to_json(), reason=why)


def _in_time(world: JobWorld, course: Course) -> Effects[Course]:
    """The course with every step put off that waits for its width: the step before is held meanwhile."""
    now = world.ctx.now
    late = course
    for block in course.increments:
        if late.begins(block) < now and not _begun(world, block):
            late = late.put_off(block.first, now)
    if late is not course:
        yield _noted(world, **late.to_json())
    return late


def _begun(world: JobWorld, block: Block) -> bool:
    """Whether ranks were on a subjob of this block, or are to be."""
    asked = world.job.spec["evolving"].get("asked", {})
    key = [block.first, block.processors]
    return any(asked.get(s.id) == key and (s.joined or s.id in world.job.members) for s in world.subjobs)


def _noted(world: JobWorld, **values: Any) -> Effect:
    return note(world.job, spec={**world.job.spec, "evolving": {**world.job.spec["evolving"], **values}})


def _held(world: JobWorld, course: Course, block: Block) -> Effects[list[str]]:
    """The subjob of a block that is to be held, where ranks can be; it is asked for where there is none."""
    now, job = world.ctx.now, world.job
    subjob = _subjob_of(world, block)
    if subjob is None:
        if now >= job.not_before_s:
            yield from _ask(world, course, block)
        return []
    if now + world.ctx.settings.poll_s >= world.leave_by(subjob):
        return []  # it ends before its step does: another one is asked for once it is left
    ready = world.ready(subjob) and now >= course.begins(block)
    return [subjob.id] if ready or subjob.id in job.members else []


def _ask(world: JobWorld, course: Course, block: Block) -> Effects[None]:
    polls_s = SLACK_POLLS * world.ctx.settings.poll_s
    subjob = yield Ask(
        SubjobRole.SUBJOB,
        block.processors,
        course.ends(block) - world.ctx.now + polls_s,
        slack_s=slack(world.cost.kept_s, margins(world.ctx, world.cost.tail_s)),
    )
    asked = world.job.spec["evolving"].get("asked", {})
    yield _noted(world, asked={**asked, subjob.id: [block.first, block.processors]})


def _give_up(world: JobWorld, course: Course, wanted: Iterable[str]) -> Effects[None]:
    """What no ranks were ever on, and no block wants any more."""
    now = world.ctx.now
    for subjob in world.open_subjobs:
        idle = subjob.role == SubjobRole.SUBJOB and not subjob.joined and not subjob.releasing
        if not idle or subjob.id in world.job.members or subjob.id in wanted:
            continue
        block = next((one for one in course.increments if _subjob_of(world, one) is subjob), None)
        if block is None or now >= course.ends(block):
            yield Release(subjob, "its step is over, or is none any more")


def _want(world: JobWorld, course: Course, wanted: list[str]) -> Effects[None]:
    """The ranks move to the width of the step that is under way, as far as it is there."""
    job, step = world.job, course.step_at(world.ctx.now)
    width = sum(world.needs.places(s.processors) for s in world.open_subjobs if s.id in wanted)
    of = f"step {step + 1} of {len(course.starts_s)}"
    yield tell(
        EventKind.DECISION_EVOLVE,
        job_id=job.id,
        **course.to_json(),
        reason=f"{of}: {width} of the {course.profile.steps[step].processors} places that it has then",
    )
    yield Want(job, wanted)


def _subjob_of(world: JobWorld, block: Block) -> Subjob | None:
    """The open subjob that was asked for a block: for what begins with its step, and is as wide."""
    asked = world.job.spec["evolving"].get("asked", {})
    key = [block.first, block.processors]
    return next((s for s in world.open_subjobs if not s.releasing and asked.get(s.id) == key), None)


def _ahead_s(world: JobWorld) -> float:
    """How long before its step a block is asked for: until its workers answer."""
    return world.parameters().start_up_s + SLACK_POLLS * world.ctx.settings.poll_s


def replace_tail(world: JobWorld, tail: str, by: str, dry_run: bool) -> Effects[Course]:
    """What comes of an evolving job is replaced: from the first time on that `tail` names. What has begun stays.

    Answers the course that comes of it; `dry_run`: it is not taken. The profile ends when it did, or with the job's
    walltime where the tail reaches further. Raises EjbError: INVALID for what is no tail of it, UNSUPPORTED for another
    job, CONFLICT where it has not begun.
    """
    job, now, course, j0 = world.job, world.ctx.now, world.course, world.placeholder
    if world.evolving is None:
        what = f"job {job.id} has no profile of widths that could be replaced"
        raise EjbError(Code.UNSUPPORTED, what, hint="submit it with --profile")
    if course is None or job.state != JobState.RUNNING or j0 is None or j0.end_s is None:
        raise EjbError(Code.CONFLICT, f"job {job.id} does not run now, and its profile is replaced as it runs")
    try:
        steps = parse_tail(tail, now)
        last_s = max(at for at, _ in steps)
        changed = course.replaced(steps, course.end_s if course.end_s > last_s else j0.end_s)
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="tail") from None
    if changed.profile.peak > job.processes:
        what = f"a step of {changed.profile.peak} places is wider than the job, which has {job.processes} ranks"
        raise EjbError(Code.INVALID, what, where="tail", hint="a job cannot have more than its profile's peak")
    if not dry_run:
        yield from _take(world, changed, f"{by} replaced what comes")
    return changed
