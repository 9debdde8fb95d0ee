"""Attempts of a passed-through job in gaps of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ejbd.manager.facts.past.pastruns import application_of_job
from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState
from ejbd.wire.kinds import SubjobRole

if TYPE_CHECKING:
    from ejbd.manager.facts.jobworld import JobWorld

TIMED_OUT = "timed out"  # how an attempt ended for which the window was not enough


def is_attempt(job: Job, subjob: Subjob) -> bool:
    """Whether a batch job is an attempt in a gap: it was asked for with less than the job is."""
    gaps = (job.walltimes or {}).get("gaps")
    return subjob.role == SubjobRole.RIGID and bool(gaps) and subjob.walltime_s < job.walltime_s


def under_way(job: Job) -> dict[str, Any] | None:
    """The attempt that has not ended."""
    gaps: list[dict[str, Any]] = (job.walltimes or {}).get("gaps", [])
    return gaps[-1] if gaps and not gaps[-1]["end"] else None


def kept_with(world: JobWorld) -> dict[str, Any]:
    """What is kept with a job of its walltimes: where nothing was learned, that its own stands."""
    job, known = world.job, world.job.walltimes
    if known is not None:
        return known
    of = application_of_job(job.user, world.spec)
    return {
        "why": "its user's own is asked for", "by": "queue", "application": of.name, "input_class": of.input_class,
        "processors": of.processors, "own_s": job.walltime_s, "limit_s": job.walltime_s,
    }  # fmt: skip


def noted(world: JobWorld, gap: dict[str, Any]) -> dict[str, Any]:
    """The same with one more attempt."""
    known = kept_with(world)
    return {**known, "gaps": [*known.get("gaps", []), gap]}


def told(job: Job, verdicts: Mapping[str, str]) -> str:
    """Whether a job was sent into a gap, and why; "" where nothing is to be told."""
    gap = under_way(job)
    if gap is not None:
        why = gap.get("by") or f"done with probability {gap['finishes']:.3f}"  # attempts of before had a law
        return f"sent into a gap of {wide(gap['processors'])} with {gap['walltime_s']:g} s: {why}"
    why = verdicts.get(job.id, "") if job.state == JobState.WAITING else ""
    return f"not sent into a gap: {why}" if why else ""


def wide(processors: int) -> str:
    return f"{processors} processor{'' if processors == 1 else 's'}"
