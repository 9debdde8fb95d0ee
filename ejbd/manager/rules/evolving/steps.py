"""An evolving job from look to look (Klein & Perez 2011, section 3.2): increments are asked for, decrements given back.

J0 is what all steps have in common. Every other block is a subjob: wanted from the beginning of its first step, and
left at the end of its last one. Where it is late the step before is held, and what is behind is put off.

Guaranteed, each block is queued with its begin before the job begins: its profile is fitted into what is free, and
fitted again when J0 has started. Under best effort a block is asked for so early that it should be there in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ejbd.core.cost import Source
from ejbd.core.delta import delta_at
from ejbd.core.evolving.blocks import Block
from ejbd.core.evolving.course import Course
from ejbd.core.evolving.refit import fitted_from, fitted_whole
from ejbd.core.progress import degree, rate
from ejbd.core.room.walltimes import slack
from ejbd.core.view import BatchState
from ejbd.manager.effects import (
    Act,
    Ask,
    Conclude,
    Effect,
    Effects,
    EnsurePlaceholder,
    GivesBackLate,
    Release,
    Want,
    note,
    tell,
)
from ejbd.manager.effects.ends import NotGivenBack
from ejbd.manager.facts.batchjob.begins import begins_of, is_guaranteed
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.room.evolving import asked_how, grace_s, grace_words, space_of
from ejbd.manager.facts.room.windows import margins
from ejbd.manager.rules.evolving.launches import stage
from ejbd.store.models import Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

SLACK_POLLS = 2.0  # what a look may come late, at the beginning of a block and at its end
LATER_PART = 0.1  # of what is left until a begin: it is put off once it differs by more, not at every look
LATE_PART = 0.25  # of the first step: J0 is that late before its increments are put off
_WAITS = (SubjobState.PLANNED, SubjobState.PENDING)
_KNOWN = (Source.JOB, Source.MEASURED, Source.CALIBRATED)


def evolve(world: JobWorld) -> Effects[None]:
    """One look: ask for the widths that come, want those that are there, and leave what is over."""
    if world.staged:
        yield from stage(world)
        return
    job, now = world.job, world.ctx.now
    guaranteed = is_guaranteed(job.spec)
    j0 = world.placeholder
    if j0 is None:
        if job.state in (JobState.WAITING, JobState.RUNNING):  # it may run on in an increment, and wants J0 back
            yield EnsurePlaceholder()
        return
    if job.state == JobState.WAITING and not job.members:
        queued = (yield from _queue_all(world, j0)) if guaranteed else True
        if j0.state == SubjobState.RUNNING and queued and not (yield GivesBackLate(j0)):
            yield from _begin(world, j0)
        return
    course = world.course
    if j0.state != SubjobState.RUNNING or course is None or job.state != JobState.RUNNING:
        return
    course = yield from _in_time(world, course)
    wanted = [j0.id]
    for block in course.increments:
        near = course.begins(block) - _ahead_s(world) <= now
        if (near or guaranteed) and now < course.ends(block):
            wanted += yield from _held(world, course, block)
    yield from _keep_begins(world, course)
    yield from _give_up(world, course, wanted)
    if (yield from _holds_too_long(world, course)):
        return
    if not world.moving and set(wanted) != set(job.members):
        yield from _want(world, course, wanted)


# -- before it begins -------------------------------------------------------------------------------------------------


def _queue_all(world: JobWorld, j0: Subjob) -> Effects[bool]:
    """Have every width queued, each with its begin; whether all of them are."""
    now, plan, begun = world.ctx.now, world.plan, world.course
    if begun is not None:  # it has lost J0: what is left of its course goes on once there is another one
        plan = begun.resumed(_stood_s(world), now)
    elif plan is None or (j0.state in _WAITS and now > plan.starts_s[0] + _patience_s(world, plan)):
        plan = yield from _plan(world, j0, plan)
    yield from _keep_begins(world, plan)
    queued = True
    for block in plan.increments:
        subjob = _subjob_of(world, block)
        if subjob is None and now < plan.ends(block) and now >= world.job.not_before_s:
            subjob = yield from _ask(world, plan, block)
        queued = queued and (now >= plan.ends(block) or (subjob is not None and subjob.state != SubjobState.PLANNED))
    return queued


def _plan(world: JobWorld, j0: Subjob, before: Course | None) -> Effects[Course]:
    """Where the profile goes by what is known now. `before`: J0 is late for it."""
    now, profile, space = world.ctx.now, world.evolving, space_of(world)
    assert profile is not None
    found = fitted_whole(profile, space) if space is not None else None
    plan = found or Course.beginning(profile, now)
    why = f"all its widths fit, {asked_how(world)}" if found else "where its widths fit is not known"
    why = why if before is None else f"J0 is late: {why}"
    told: dict[str, Any] = {"planned": plan.to_json()}
    if j0.state == SubjobState.PLANNED and plan.starts_s[0] > now + _polls_s(world):
        told["begins"] = {**begins_of(world.job.spec), j0.id: plan.starts_s[0]}
    yield _noted(world, **told)
    yield tell(EventKind.DECISION_EVOLVE, job_id=world.job.id, **plan.to_json(), reason=f"{why}; {grace_words(world)}")
    return plan


def _patience_s(world: JobWorld, plan: Course) -> float:
    return max(_polls_s(world), LATE_PART * plan.profile.steps[0].duration_s)


def _stood_s(world: JobWorld) -> float:
    """Since when the ranks of a course that has begun have stood still."""
    epoch = world.epoch
    return epoch.ended_s if epoch is not None and epoch.ended_s is not None else world.ctx.now


def _begin(world: JobWorld, j0: Subjob) -> Effects[None]:
    """J0 has started: the course begins, or goes on after a setback from where it stood."""
    job, now = world.job, world.ctx.now
    profile, before = world.evolving, world.course
    if profile is None:
        return
    why = "its widths from now on"
    if before is None:
        course = Course.beginning(profile, now)
        if is_guaranteed(job.spec) and (space := space_of(world)) is not None:
            course = fitted_from(course, 1, space) or course
    else:
        course, why = before.resumed(_stood_s(world), now), "it goes on where it stood"
    yield from take(world, course, why)
    yield Want(job, [j0.id])


def take(world: JobWorld, course: Course, why: str, keys: Sequence[str] = ()) -> Effects[None]:
    """This is its course from now on. `keys`: of the requests that led to it."""
    yield _noted(world, **course.to_json(), slow={}, **({"keys": list(keys)} if keys else {}))
    yield tell(EventKind.DECISION_EVOLVE, job_id=world.job.id, **course.to_json(), reason=why)


# -- as it runs -------------------------------------------------------------------------------------------------------


def _in_time(world: JobWorld, course: Course) -> Effects[Course]:
    """The course with every step put off that waits for its width: the step before is held meanwhile.

    Under best effort it begins over-subscribed on what the job has, where its Delta is known: it lasts longer by the
    work that it does not get done.
    """
    now = world.ctx.now
    late, slow = course, dict(world.job.spec["evolving"].get("slow", {}))
    for block in course.increments:
        if late.begins(block) >= now or late.ends(block) <= now or _begun(world, block):
            continue
        pace = _pace(world, late, block)
        if not pace:
            late = late.put_off(block.first, now)
        else:
            key = str(block.first)
            since_s = max(late.begins(block), slow.get(key, late.begins(block)))
            late, slow[key] = late.slowed(block.first, (now - since_s) * (1 - pace)), now
    if late is not course:
        yield _noted(world, **late.to_json(), slow=slow)
    return late


def _pace(world: JobWorld, course: Course, block: Block) -> float:
    """How fast a step goes without its width, of full speed there; 0 where it waits for it."""
    if is_guaranteed(world.job.spec) or world.penalty.source not in _KNOWN:
        return 0.0
    ranks, full = world.job.processes, course.profile.steps[block.first].processors
    held = sum(world.needs.places(s.processors) for s in world.open_subjobs if s.id in world.job.members)
    if not held or degree(ranks, held) > world.parameters().omax:
        return 0.0
    paces = [rate(ranks, places, delta_at(world.delta, degree(ranks, places))) for places in (held, full)]
    return min(1.0, paces[0] / paces[1])


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
    if subjob.state in _WAITS:
        left_s = course.ends(block) - max(now, course.begins(block))
        if subjob.usable_s < left_s - _polls_s(world):
            yield Release(subjob, "its step lasts longer now")
        return []
    if now + world.ctx.settings.poll_s >= world.leave_by(subjob):
        return []  # it ends before its step does: another one is asked for once it is left
    ready = world.ready(subjob) and now >= course.begins(block)
    return [subjob.id] if ready or subjob.id in job.members else []


def _ask(world: JobWorld, course: Course, block: Block) -> Effects[Subjob]:
    begin_s = course.begins(block) - _ahead_s(world)
    subjob: Subjob = yield Ask(
        SubjobRole.SUBJOB,
        block.processors,
        course.ends(block) - max(world.ctx.now, begin_s) + _polls_s(world) + grace_s(world),
        slack_s=slack(world.cost.kept_s, margins(world.ctx, world.cost.tail_s)),
    )
    evolving = world.job.spec["evolving"]
    told: dict[str, Any] = {"asked": {**evolving.get("asked", {}), subjob.id: [block.first, block.processors]}}
    if is_guaranteed(world.job.spec):
        told["begins"] = {**evolving.get("begins", {}), subjob.id: begin_s}
    yield _noted(world, **told)
    return subjob


def _keep_begins(world: JobWorld, course: Course) -> Effects[None]:
    """Let each width that is queued begin when its step needs it: sooner at once, later where it differs by some part.

    What is due and still kept back is let begin: batch systems look at begins now and then.
    """
    now, begins = world.ctx.now, begins_of(world.job.spec)
    for block in course.increments:
        subjob = _subjob_of(world, block)
        noted = begins.get(subjob.id) if subjob is not None else None
        if subjob is None or noted is None or subjob.state not in _WAITS:
            continue
        wanted = course.begins(block) - _ahead_s(world)
        sooner = wanted < noted - 1 and noted > now
        later = wanted > noted + max(_polls_s(world), LATER_PART * (noted - now))
        if sooner or later or (noted <= now and _kept_back(world, subjob)):
            begins = {**begins, subjob.id: max(now, wanted) if wanted > now else now}
            yield _noted(world, begins=begins)
            yield Act(IntentKind.BEGIN, world.job.id, subjob=subjob)


def _kept_back(world: JobWorld, subjob: Subjob) -> bool:
    """Whether the batch system still keeps from beginning what is due."""
    jobs = world.ctx.view.jobs if world.ctx.view is not None else ()
    seen = next((job for job in jobs if job.mark == subjob.tag), None)
    if seen is None:
        return False
    early = seen.blocked and seen.reason == "BeginTime"
    return early or seen.state is BatchState.HELD


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


def _holds_too_long(world: JobWorld, course: Course) -> Effects[bool]:
    """Whether the job was ended, since it has not left a width in time: so it was told beforehand."""
    now, after_s = world.ctx.now, grace_s(world)
    for block in course.increments:
        subjob = _subjob_of(world, block)
        if subjob is None or not subjob.joined or now <= course.ends(block) + after_s:
            continue
        over = f"{after_s:.0f} s after the end of step {block.last + 1}"
        yield Conclude(NotGivenBack(f"it still holds {block.processors} places {over}, as it was told not to"))
        return True
    return False


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
    return world.parameters().start_up_s + _polls_s(world)


def _polls_s(world: JobWorld) -> float:
    return SLACK_POLLS * world.ctx.settings.poll_s
