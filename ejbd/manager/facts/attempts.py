"""Attempts of a passed-through job in gaps of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState
from ejbd.wire.kinds import SubjobRole

if TYPE_CHECKING:
    pass


def is_attempt(job: Job, subjob: Subjob) -> bool:
    """Whether a batch job is an attempt in a gap: it was asked for with less than the job is."""
    learned_ones = (job.walltimes or {}).get("sequence_s")
    return subjob.role == SubjobRole.RIGID and bool(learned_ones) and subjob.walltime_s < job.walltime_s


def under_way(job: Job) -> dict[str, Any] | None:
    """The attempt that has not ended."""
    gaps: list[dict[str, Any]] = (job.walltimes or {}).get("gaps", [])
    return gaps[-1] if gaps and not gaps[-1]["end"] else None


def told(job: Job, verdicts: Mapping[str, str]) -> str:
    """Whether a job was sent into a gap, and why; "" where nothing is to be told."""
    gap = under_way(job)
    if gap is not None:
        return (
            f"sent into a gap of {_wide(gap['processors'])} with {gap['walltime_s']:g} s: expected to use a share "
            f"of {gap['utilisation']:.3f} of it, and to be done with probability {gap['finishes']:.3f}"
        )
    why = verdicts.get(job.id, "") if job.state == JobState.WAITING else ""
    return f"not sent into a gap: {why}" if why else ""


def _wide(processors: int) -> str:
    return f"{processors} processor{'' if processors == 1 else 's'}"
