"""What an evolving job may be, and where its profile fits into what is free of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.evolving.course import Course, base_of, profile_from_json
from ejbd.core.evolving.space import FreeSpace
from ejbd.core.progress import degree
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.errors import Code, EjbError
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.jobspec import JobSpec


def check_evolving(spec: JobSpec, engine: str, omax: int, *, moves: bool) -> None:
    """Raise EjbError (UNSUPPORTED) where the widths of a job cannot change as it says.

    `omax`: how many of its ranks may share a processor. `moves`: its ranks are placed one by one.
    """
    if spec.evolving is None:
        return
    profile = profile_from_json(spec.evolving)
    if engine == "none":
        what = "the job has a profile of widths, and its program cannot be moved: no engine can checkpoint it"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="see `ejb doctor`, or leave --profile out")
    if not moves or spec.wants.shape:
        what = "the job has a profile of widths, and its ranks are placed as one: their width cannot change"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="leave --profile out")
    share = degree(spec.processes, base_of(profile))
    if share > omax:
        what = f"in its narrowest step {share} ranks would share a processor, and at most {omax} may"
        raise EjbError(Code.UNSUPPORTED, what, where="profile", hint="widen that step, or allow more with --omax")


def foreseen(world: JobWorld, slots: Sequence[BackfillSlot]) -> Decision:
    """What a dry run shows of an evolving job: its profile, fitted into what is free now and nothing planned takes."""
    profile, now = world.evolving, world.ctx.now
    ends = [(now + slot.duration_s, slot.processors) for slot in slots]  # the longest first, with the fewest places
    falls = [(end, less - more) for (end, more), less in zip(ends, [0, *(few for _, few in ends)], strict=False)]
    changes = [(end, fall) for end, fall in falls if end < UNLIMITED]
    space = FreeSpace.of_releases(ends[-1][1] if ends else 0, now, changes)
    fitted = space.fit(profile) if profile is not None else None
    if profile is None or fitted is None:
        why = "what is free now does not hold its profile: its widths follow once J0 starts"
        return Decision(DecisionKind.NOTHING, world.job.id, now, why)
    course = replace(Course.beginning(profile, fitted.start_s), starts_s=fitted.starts_s, end_s=fitted.completion_s)
    why = "all its widths fit into what is free now, as long as nothing else takes it"
    return Decision(DecisionKind.NOTHING, world.job.id, now, why, timeline=course.timeline(now))


def in_words(world: JobWorld) -> str:
    """Where an evolving job is in its course, and what comes next; "" of any other job."""
    profile, course, now = world.evolving, world.course, world.ctx.now
    if profile is None:
        return ""
    if course is None:
        return f"its widths are {profile.words()}, and begin once {base_of(profile)} places are there"
    at = course.step_at(now)
    held = [s for s in world.open_subjobs if s.id in world.job.members]
    width = sum(world.needs.places(s.processors) for s in held)
    planned = course.profile.steps[at].processors
    told = f"step {at + 1} of {len(course.starts_s)}, {width} of {planned} places"
    if at + 1 == len(course.starts_s):
        return f"{told}; the last one, to its end in {max(0.0, course.end_s - now):.0f} s"
    behind = course.profile.steps[at + 1].processors
    return f"{told}; {behind} in {course.starts_s[at + 1] - now:.0f} s"
