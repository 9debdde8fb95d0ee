"""The states of a job, as its user sees them."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """An elastic job, as its user sees it."""

    RECEIVED = "received"  # stored; nothing asked of the batch system yet
    WAITING = "waiting"  # the placeholder J0 is queued; no rank runs
    RUNNING = "running"  # ranks (or the script) run on one subjob or several
    ENDING = "ending"  # the application is over; output is collected and subjobs are given back
    UNKNOWN = "unknown"  # passed through, and gone from the batch system: how it ended may still be learnt
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_JOB

    @property
    def over(self) -> bool:
        """Whether it has ended, as far as anybody knows; how may still be unknown."""
        return self.terminal or self is JobState.UNKNOWN


TERMINAL_JOB = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED})
LIVING_JOB = frozenset(JobState) - TERMINAL_JOB
