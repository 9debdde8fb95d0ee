"""When a batch job may begin.

Of an evolving job, or of a chain of place holders, that is kept with the job. No job begins before its number was
printed and read, either: tools make the folder of its output by that. The batch system is told to let it begin later
(:data:`UNREAD_S`), and to let it begin now once it was read, or after :data:`READ_S` at the latest. A job with a begin
or a deadline of its own keeps that instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ejbd.store.models import Job, Subjob
from ejbd.wire.kinds import SubjobRole

UNREAD_S = 60.0  # then it begins, even if no daemon is there any more
READ_S = 10.0  # that a number may take to be read, from when the batch system gives it
LATEST_S = 60.0  # after its submission a job waits for no reader


def begins_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """Subjob -> when it may begin (absolute seconds), of the specification that a job stores."""
    evolving, chain = spec.get("evolving") or {}, spec.get("chain") or {}
    return {**evolving.get("begins", {}), **chain.get("begins", {})}


def begin_in_s(spec: Mapping[str, Any], subjob: Subjob, now: float) -> float:
    """Seconds from now; 0: at once."""
    return max(0.0, begins_of(spec).get(subjob.id, 0.0) - now)


def is_unread(job: Job, subjob: Subjob, now: float) -> bool:
    """Whether the submitter waits for the number of a batch job that is about to be submitted."""
    first = subjob.ordinal == 0 and subjob.role in (SubjobRole.PLACEHOLDER, SubjobRole.RIGID)
    return first and job.unread and not job.held and now < job.submit_s + LATEST_S


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Whether an evolving job is not to begin before every width of it is queued."""
    return not (spec.get("evolving") or {}).get("best_effort", False)
