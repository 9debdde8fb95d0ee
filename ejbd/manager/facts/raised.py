"""Jobs that are planned with less than their request, which is raised to it before that is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ejbd.manager.facts.attempts import kept_with
from ejbd.store.models import Job

if TYPE_CHECKING:
    from ejbd.manager.facts.jobworld import JobWorld

RAISED, REFUSED = "raised", "refused"  # what became of a plan


def under_way(job: Job) -> dict[str, Any] | None:
    """The plan that a job's limit was lowered to, or is to be, and that it was not raised from."""
    plan: dict[str, Any] | None = (job.walltimes or {}).get("raised")
    return plan if plan is not None and not plan["end"] else None


def noted(world: JobWorld, first_s: float) -> dict[str, Any]:
    """What is kept with a job of its walltimes once it is planned with so many seconds."""
    return {**kept_with(world), "raised": {"first_s": first_s, "asked": False, "end": ""}}


def told(job: Job) -> str:
    """The same in words; "" where nothing is to be told."""
    plan = under_way(job)
    if plan is None:
        return ""
    return f"planned with {plan['first_s']:g} s, and raised to {job.walltime_s:g} s before that is over"
