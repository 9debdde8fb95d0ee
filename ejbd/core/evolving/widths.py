"""One width from now on, as a running job asks for it: E-HPC's `expand` and `contract` (Fox et al. 2017, section 4.2).

What is held beyond the base is a stack of blocks, and a batch system takes no part of one back.
"""

from __future__ import annotations

from ejbd.core.evolving.course import Course


def tail_to(course: Course, width: int, now_s: float, ahead_s: float) -> tuple[tuple[float, int], ...]:
    """The steps (absolute seconds, places) by which a course has `width` from now on.

    More is asked for at once. Less is given back at once, whole blocks from the last one that came: where that is more
    than was meant, the difference is asked for anew, `ahead_s` seconds later. A course that has this width for good
    answers nothing: the same call twice is one. Raises ValueError for a width below the base.
    """
    if width < course.base:
        raise ValueError(f"{course.base} places are held throughout, and no step can have less")
    step = course.step_at(now_s)
    present = course.profile.steps[step].processors
    if all(one.processors == width for one in course.profile.steps[step:]):
        return ()
    lower = present
    for block in sorted(course.increments, key=lambda one: one.first, reverse=True):
        if lower <= width:
            break
        if block.first <= step <= block.last:
            lower -= block.processors
    if present <= width or lower == width:
        return ((now_s, width),)
    return ((now_s, lower), (now_s + ahead_s, width))
