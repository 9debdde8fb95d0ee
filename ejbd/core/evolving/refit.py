"""Fitting from now on: a course into the free space, with what has begun left as it is."""

from __future__ import annotations

import math
from dataclasses import replace

from ejbd.core.evolving.course import Course
from ejbd.core.evolving.profiles import Profile, Step
from ejbd.core.evolving.space import FreeSpace


def fitted_whole(profile: Profile, space: FreeSpace) -> Course | None:
    """A course that has not begun, at the earliest time at which no step has to be held (noX); None: it never fits."""
    found = space.fit(profile)
    if found is None:
        return None
    return replace(Course.beginning(profile, found.start_s), starts_s=found.starts_s, end_s=found.completion_s)


def fitted_from(course: Course, step: int, space: FreeSpace) -> Course | None:
    """The course with the steps from `step` on fitted anew, not before their planned time; None: they never fit.

    The step before is held until the first of them can begin. `space` is free beside the job's base, and beside what
    the job holds. What begins later, ends later: the steps last as long as they did.
    """
    steps = course.profile.steps[step:]
    if not steps:
        return course
    begin_s = float(math.ceil(course.starts_s[step]))
    ends = [*course.starts_s[step + 1 :], course.end_s]
    lasting = [math.ceil(end - at) for at, end in zip(course.starts_s[step:], ends, strict=True)]
    beyond = Profile(tuple(Step(float(s), one.processors - course.base) for s, one in zip(lasting, steps, strict=True)))
    found = space.fit(beyond, begin_s=begin_s)
    if found is None:
        return None
    # What needs no later time keeps its own: whole seconds are the fit's, and not the clock's.
    late_s = found.start_s - begin_s
    if found.held == beyond and late_s <= 0:
        return course
    return replace(course, starts_s=(*course.starts_s[:step], *found.starts_s), end_s=found.completion_s)
