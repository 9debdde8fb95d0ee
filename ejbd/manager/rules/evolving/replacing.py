"""`ejb evolve`: what comes of an evolving job is replaced, and fitted from now on with what has begun left as it is."""

from __future__ import annotations

import re
from dataclasses import replace

from ejbd.core.evolving.course import Course, parse_tail
from ejbd.core.evolving.refit import fitted_from
from ejbd.core.evolving.widths import tail_to
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Effects
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.room.evolving import space_of
from ejbd.manager.rules.evolving.steps import take
from ejbd.store.states import JobState

_WIDTH = re.compile(r"(to|by):(-?[0-9]{1,9})")  # one width from now on: `ejb resize`
KEYS = 50  # requests that are remembered by their key, of each job


def replace_tail(world: JobWorld, tail: str, by: str, dry_run: bool, key: str = "") -> Effects[Course]:
    """What comes of an evolving job is replaced: from the first time on that `tail` names. What has begun stays.

    A tail `to:N` is one width from now on (`ejb resize`), and `by:N` so many places more than now, or less. With a
    `key` a request counts once: a program that was restored from a checkpoint asks again.

    Each width comes where it fits into what is free from now on, not before its time, and the step before is held.
    Answers the course that comes of it; `dry_run`: it is not taken. The profile ends when it did, or with the job's
    walltime where the tail reaches further; steps that come later end later, up to the walltime. Raises EjbError:
    INVALID for what is no tail of it, UNSUPPORTED for another job, CONFLICT where it has not begun, or where the widths
    come too late.
    """
    job, now, course, j0 = world.job, world.ctx.now, world.course, world.placeholder
    if world.evolving is None:
        what = f"job {job.id} has no profile of widths that could be replaced"
        raise EjbError(Code.UNSUPPORTED, what, hint="submit it with --profile")
    if world.staged:
        what = f"each launch of job {job.id} has a width of its own: there is no profile that could be replaced"
        raise EjbError(Code.UNSUPPORTED, what, hint="its script says them: srun -n WIDTH -t TIME")
    if course is None or job.state != JobState.RUNNING or j0 is None or j0.end_s is None:
        raise EjbError(Code.CONFLICT, f"job {job.id} does not run now, and its profile is replaced as it runs")
    known = list(job.spec["evolving"].get("keys", []))
    if key and key in known:
        return course
    try:
        width = _WIDTH.fullmatch(tail)
        if width:
            places = int(width[2]) + (course.width_at(now) if width[1] == "by" else 0)
            steps = tail_to(course, places, now, _ahead_s(world))
        else:
            steps = parse_tail(tail, now)
        if not steps:
            return course  # it has this width already, or it is asked for: the same call twice is one
        last_s = max(at for at, _ in steps)
        changed = course.replaced(steps, course.end_s if course.end_s > last_s else j0.end_s)
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="tail") from None
    if changed.profile.peak > job.processes:
        what = f"a step of {changed.profile.peak} places is wider than the job, which has {job.processes} ranks"
        raise EjbError(Code.INVALID, what, where="tail", hint="a job cannot have more than its profile's peak")
    changed = _fitted(world, changed, len(changed.starts_s) - len(steps), j0.end_s)
    if not dry_run:
        yield from take(world, changed, f"{by} replaced what comes", [*known, key][-KEYS:] if key else known)
    return changed


def _ahead_s(world: JobWorld) -> float:
    """How much later what is asked for anew can be there: no look is missed between."""
    return world.parameters().start_up_s + 2 * world.ctx.settings.poll_s


def _fitted(world: JobWorld, course: Course, first: int, latest_s: float) -> Course:
    """With the steps from `first` on where they fit, and no later than the walltime ends."""
    space = space_of(world)
    if space is None:
        return course  # nothing is known of the cluster: by the clock, and what is late is waited for
    found = fitted_from(course, first, space)
    if found is None:
        what = f"its queue never has the {course.profile.peak} places free, by what is planned there"
        raise EjbError(Code.CONFLICT, what, where="tail", hint="ask for fewer, or later")
    if found.starts_s[-1] >= latest_s:
        what = (
            f"the last of these widths would come {found.starts_s[-1] - latest_s:.0f} s after the job's walltime ends"
        )
        raise EjbError(Code.CONFLICT, what, where="tail", hint="ask for fewer places")
    return found if found.end_s <= latest_s else replace(found, end_s=latest_s)
