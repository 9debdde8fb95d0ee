"""The states of what events and answers name: jobs, subjobs, placements, actions on the batch system."""

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


class SubjobState(StrEnum):
    """One batch job of an elastic job, as EJB believes it to be."""

    PLANNED = "planned"  # a submit intent exists
    PENDING = "pending"  # the batch system has it
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped by the batch system for a while: an operator's doing, or a preemption
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"  # node failure, or unknown to the batch system beyond the grace

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_SUBJOB


class EpochState(StrEnum):
    """One placement of the application's ranks."""

    LAUNCHING = "launching"  # launch or restart operations are out
    RUNNING = "running"
    STOPPING = "stopping"  # checkpoint operations are out
    STOPPED = "stopped"  # every rank's checkpoint is whole and no rank runs
    ENDED = "ended"  # every rank ended by itself
    FAILED = "failed"

    @property
    def live(self) -> bool:
        return self in (EpochState.LAUNCHING, EpochState.RUNNING, EpochState.STOPPING)


class IntentState(StrEnum):
    """One action on the batch system."""

    PENDING = "pending"
    EXECUTING = "executing"  # the batch call may have happened
    UNKNOWN = "unknown"  # it may have happened, and nobody is waiting for it: look the tag up
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"  # no longer wanted before it was tried


STARTED_SUBJOB = frozenset({SubjobState.RUNNING, SubjobState.SUSPENDED})
"""Of batch jobs that have been given their nodes."""
TERMINAL_SUBJOB = frozenset(
    {SubjobState.COMPLETED, SubjobState.FAILED, SubjobState.TIMEOUT, SubjobState.CANCELLED, SubjobState.LOST}
)
