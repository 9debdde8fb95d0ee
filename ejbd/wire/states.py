"""The states of what events and answers name: jobs, subjobs, placements, actions on the batch system.

Each state says what it is, and why it is not the one beside it.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """An elastic job, as its user sees it."""

    RECEIVED = "received"
    """Stored, and nothing is asked of the batch system yet. Not `waiting`: it has no place in the queue."""
    WAITING = "waiting"
    """The place holder J0 is queued, and no rank runs. Not `received`: the batch system has it, or is asked for it."""
    RUNNING = "running"
    """Ranks, or the script, run on one subjob or several. Not `ending`: the application may still compute."""
    ENDING = "ending"
    """The application is over: output is collected and subjobs are given back. Or it is passed through, and its user
    has cancelled it. Not `completed`: that may still fail."""
    UNKNOWN = "unknown"
    """Passed through, and gone from the batch system. Not `failed`: how it ended may still be learnt."""
    COMPLETED = "completed"
    """It ended with code 0. Not `ending`: nothing of it is left to do."""
    FAILED = "failed"
    """It ended with another code, or was given up. Not `timeout` or `cancelled`: those have a cause outside."""
    TIMEOUT = "timeout"
    """Its time was up. Not `failed`: its program did nothing wrong. Not `cancelled`: no user asked for the end."""
    CANCELLED = "cancelled"
    """A user, or the batch system on a user's word, ended it. Not `failed`, whatever code its ranks left with."""

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_JOB

    @property
    def over(self) -> bool:
        """Whether it has ended, as far as is known; how may still be unknown."""
        return self.terminal or self is JobState.UNKNOWN


TERMINAL_JOB = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED})
LIVING_JOB = frozenset(JobState) - TERMINAL_JOB


class SubjobState(StrEnum):
    """One batch job of an elastic job, as EJB believes it to be."""

    PLANNED = "planned"
    """A submit intent exists. Not `pending`: the batch system has not taken it yet."""
    PENDING = "pending"
    """The batch system has it in its queue. Not `running`: it has no nodes."""
    RUNNING = "running"
    """It has its nodes. Not `suspended`: its processes may run there."""
    SUSPENDED = "suspended"
    """The batch system has stopped it for a while (an operator, or a preemption). Not `pending`: it keeps its nodes."""
    COMPLETED = "completed"
    """Its script ended with 0. Not `failed`, whatever the ranks of the application did."""
    FAILED = "failed"
    """It was refused, or its script ended with another code. Not `lost`: how it ended is known."""
    TIMEOUT = "timeout"
    """Its walltime was over. Not `cancelled`: it had all the time that it asked for."""
    CANCELLED = "cancelled"
    """EJB, its user or an operator ended it. Not `timeout`: it had time left."""
    LOST = "lost"
    """Its node failed, another job preempted it, or no listing has it. Not `failed`: its script came to no end."""

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_SUBJOB


class EpochState(StrEnum):
    """One placement of the application's ranks."""

    LAUNCHING = "launching"
    """Launch or restart operations are out. Not `running`: not every rank is up."""
    RUNNING = "running"
    """All ranks run. Not `stopping`: no checkpoint is asked of them that would end them."""
    STOPPING = "stopping"
    """Checkpoint operations are out. Not `stopped`: ranks may run on if the checkpoint fails."""
    STOPPED = "stopped"
    """Every rank's checkpoint is whole, and no rank runs. Not `ended`: the application goes on elsewhere."""
    ENDED = "ended"
    """Every rank ended by itself. Not `failed`: the launch is over, with its own exit codes."""
    FAILED = "failed"
    """The placement is given up. Not `ended`: the launch is not over by that, and may be placed again."""

    @property
    def live(self) -> bool:
        return self in (EpochState.LAUNCHING, EpochState.RUNNING, EpochState.STOPPING)


class IntentState(StrEnum):
    """One action on the batch system."""

    PENDING = "pending"
    """To be tried, or to be tried again. Not `unknown`: it has certainly not happened."""
    EXECUTING = "executing"
    """The batch call is under way. Not `pending`: it may have happened."""
    UNKNOWN = "unknown"
    """It may have happened, and no call waits for the answer. Not `executing`: its tag has to be looked up."""
    DONE = "done"
    """Carried out. Not `failed`: the batch system took it."""
    FAILED = "failed"
    """It did not happen: refused, or proved absent and no longer wanted. Not `pending`: it is not tried again."""
    DROPPED = "dropped"
    """No longer wanted before it was tried. Not `failed`: the batch system was not asked."""


STARTED_SUBJOB = frozenset({SubjobState.RUNNING, SubjobState.SUSPENDED})
"""Of batch jobs that have been given their nodes."""
TERMINAL_SUBJOB = frozenset(
    {SubjobState.COMPLETED, SubjobState.FAILED, SubjobState.TIMEOUT, SubjobState.CANCELLED, SubjobState.LOST}
)
OPEN_SUBJOB = frozenset(SubjobState) - TERMINAL_SUBJOB


class WorkflowState(StrEnum):
    """A plan of stages, as its user sees it."""

    RUNNING = "running"
    """Stages are at work, or are to come. Not `completed`: not every stage has ended."""
    COMPLETED = "completed"
    """Every stage ended well, or had nothing to do. Not `failed`: none is left out."""
    FAILED = "failed"
    """A stage failed for good, and what may go on has ended. Not `cancelled`: no user asked for the end."""
    CANCELLED = "cancelled"
    """A user ended it, and nothing of it runs. Not `failed`, whatever its stages left with."""

    @property
    def terminal(self) -> bool:
        return self is not WorkflowState.RUNNING


class StageState(StrEnum):
    """An allocation of a workflow: a stage, or several that share one."""

    WAITING = "waiting"
    """It waits for stages, or for its next try. Not `submitting`: no job is made for it."""
    SUBMITTING = "submitting"
    """A job is about to be made for it. Not `submitted`: whether it is there may not be known yet."""
    SUBMITTED = "submitted"
    """It is a job, which tells the rest. Not `submitting`: the job's id is known."""
    COMPLETED = "completed"
    """Its job ended well. Not `skipped`: it ran."""
    SKIPPED = "skipped"
    """Its outputs were newer than its inputs. Not `completed`: no job was made."""
    FAILED = "failed"
    """Its job did not end well, as often as it may try. Not `dropped`: it was tried."""
    CANCELLED = "cancelled"
    """It was ended, or not begun, on a user's word. Not `failed`: its program did nothing wrong."""
    DROPPED = "dropped"
    """It was not begun, since another stage failed. Not `cancelled`: no user asked for that."""

    @property
    def done(self) -> bool:
        """Whether what needs it may begin."""
        return self in (StageState.COMPLETED, StageState.SKIPPED)

    @property
    def terminal(self) -> bool:
        return self not in (StageState.WAITING, StageState.SUBMITTING, StageState.SUBMITTED)
