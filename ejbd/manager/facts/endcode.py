"""The exit code with which J0 says how its job ended."""

from __future__ import annotations

from typing import Any

from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState
from ejbd.wire.kinds import J0_ROLES


def end_code(job: Job) -> int | None:
    """The exit code with which J0 says how its job ended. None: the job goes on, was cancelled or timed out."""
    state = job.final_state or job.state
    if state == JobState.COMPLETED:
        return 0
    if state != JobState.FAILED:
        return None
    return job.exit_code if job.exit_code is not None and 0 < job.exit_code < 256 else 1


def is_cancelled(job: Job, subjob: Subjob) -> bool:
    """Whether a subjob is cancelled at its job's end: J0, where there is no code for it to end with."""
    return subjob.role in J0_ROLES and end_code(job) is None


def exit_payload(job: Job, subjob: Subjob) -> dict[str, Any]:
    """What a worker is told that is to leave."""
    code = end_code(job) if subjob.role in J0_ROLES else None
    return {"code": code} if code else {}
