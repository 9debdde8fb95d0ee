"""The life of each entity: one transition table each, with a partial order on its states. Terminal is final.

A step forward goes up in the order. A *setback* (a lost worker, a restart that failed) goes down. It is allowed only
together with the next incarnation, so that (incarnation, rank of the state) never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from ejbd.wire.states import LIVING_JOB as LIVING_JOB
from ejbd.wire.states import OPEN_SUBJOB as OPEN_SUBJOB
from ejbd.wire.states import STARTED_SUBJOB as STARTED_SUBJOB
from ejbd.wire.states import TERMINAL_JOB as TERMINAL_JOB
from ejbd.wire.states import TERMINAL_SUBJOB as TERMINAL_SUBJOB
from ejbd.wire.states import EpochState as EpochState
from ejbd.wire.states import IntentState as IntentState
from ejbd.wire.states import JobState as JobState
from ejbd.wire.states import StageState as StageState
from ejbd.wire.states import SubjobState as SubjobState
from ejbd.wire.states import WorkflowState as WorkflowState


class OperationState(StrEnum):
    """One operation for one worker."""

    QUEUED = "queued"
    """Stored, and not handed out. Not `leased`: no worker has seen it."""
    LEASED = "leased"
    """Handed out; handed out again when the lease runs out. Not `done`: the worker has not answered."""
    DONE = "done"
    """The worker answered that it did it. Not `failed`: the answer says ok."""
    FAILED = "failed"
    """The worker answered that it could not. Not `abandoned`: there is an answer."""
    ABANDONED = "abandoned"
    """Its worker is gone. Not `failed`: no answer will come."""


class LaunchState(StrEnum):
    """One launch of the application: the whole of a command job, or one srun/mpirun line of a script."""

    ACTIVE = "active"
    """Its ranks run, or wait to be placed. Not `ended`: an epoch that ends or fails is no end of the launch."""
    ENDED = "ended"
    """It has its exit code. Not `active`: it is placed no more."""


S = TypeVar("S", bound=StrEnum)
Table = Mapping[S, frozenset[S]]

JOB: Table[JobState] = {
    JobState.RECEIVED: frozenset({JobState.WAITING, JobState.FAILED, JobState.CANCELLED}),
    JobState.WAITING: frozenset(
        # A passed-through job may end between two polls.
        {JobState.RUNNING, JobState.ENDING, JobState.UNKNOWN, *TERMINAL_JOB}
    ),
    JobState.RUNNING: frozenset({JobState.ENDING, JobState.UNKNOWN, *TERMINAL_JOB}),
    JobState.ENDING: TERMINAL_JOB,
    JobState.UNKNOWN: TERMINAL_JOB,
    **{s: frozenset() for s in TERMINAL_JOB},
}
JOB_SETBACK: Table[JobState] = {
    JobState.RUNNING: frozenset({JobState.WAITING}),
    JobState.UNKNOWN: frozenset({JobState.WAITING, JobState.RUNNING}),
}

SUBJOB: Table[SubjobState] = {
    SubjobState.PLANNED: frozenset({SubjobState.PENDING, SubjobState.RUNNING, *TERMINAL_SUBJOB}),
    SubjobState.PENDING: frozenset({SubjobState.RUNNING, *TERMINAL_SUBJOB}),
    SubjobState.RUNNING: frozenset({SubjobState.SUSPENDED, *TERMINAL_SUBJOB}),
    SubjobState.SUSPENDED: TERMINAL_SUBJOB,
    **{s: frozenset() for s in TERMINAL_SUBJOB},
}

SUBJOB_SETBACK: Table[SubjobState] = {
    SubjobState.RUNNING: frozenset({SubjobState.PENDING}),  # requeued
    SubjobState.SUSPENDED: frozenset({SubjobState.RUNNING, SubjobState.PENDING}),
}

EPOCH: Table[EpochState] = {
    EpochState.LAUNCHING: frozenset({EpochState.RUNNING, EpochState.ENDED, EpochState.FAILED}),
    EpochState.RUNNING: frozenset({EpochState.STOPPING, EpochState.ENDED, EpochState.FAILED}),
    EpochState.STOPPING: frozenset({EpochState.STOPPED, EpochState.ENDED, EpochState.FAILED}),
    EpochState.STOPPED: frozenset(),
    EpochState.ENDED: frozenset(),
    EpochState.FAILED: frozenset(),
}
EPOCH_SETBACK: Table[EpochState] = {EpochState.STOPPING: frozenset({EpochState.RUNNING})}  # no rank stopped: go on

OPERATION: Table[OperationState] = {
    OperationState.QUEUED: frozenset(
        {OperationState.LEASED, OperationState.DONE, OperationState.FAILED, OperationState.ABANDONED}
    ),
    OperationState.LEASED: frozenset({OperationState.DONE, OperationState.FAILED, OperationState.ABANDONED}),
    OperationState.DONE: frozenset(),
    OperationState.FAILED: frozenset(),
    OperationState.ABANDONED: frozenset(),
}

INTENT: Table[IntentState] = {
    IntentState.PENDING: frozenset({IntentState.EXECUTING, IntentState.DROPPED}),
    IntentState.EXECUTING: frozenset({IntentState.DONE, IntentState.FAILED, IntentState.UNKNOWN}),
    IntentState.UNKNOWN: frozenset({IntentState.DONE, IntentState.FAILED}),
    IntentState.DONE: frozenset(),
    IntentState.FAILED: frozenset(),
    IntentState.DROPPED: frozenset(),
}
INTENT_SETBACK: Table[IntentState] = {  # proved not to have happened: another attempt
    IntentState.EXECUTING: frozenset({IntentState.PENDING}),
    IntentState.UNKNOWN: frozenset({IntentState.PENDING}),
}


WORKFLOW: Table[WorkflowState] = {
    WorkflowState.RUNNING: frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED}),
    WorkflowState.COMPLETED: frozenset(),
    WorkflowState.FAILED: frozenset(),
    WorkflowState.CANCELLED: frozenset(),
}
WORKFLOW_SETBACK: Table[WorkflowState] = {  # its user has it tried again
    WorkflowState.FAILED: frozenset({WorkflowState.RUNNING}),
    WorkflowState.CANCELLED: frozenset({WorkflowState.RUNNING}),
}
STAGE: Table[StageState] = {
    StageState.WAITING: frozenset(
        {StageState.SUBMITTING, StageState.SKIPPED, StageState.FAILED, StageState.CANCELLED, StageState.DROPPED}
    ),
    StageState.SUBMITTING: frozenset({StageState.SUBMITTED, StageState.FAILED, StageState.CANCELLED}),
    StageState.SUBMITTED: frozenset(
        {StageState.COMPLETED, StageState.FAILED, StageState.CANCELLED, StageState.DROPPED}
    ),
    **{s: frozenset() for s in StageState if s.terminal},
}
STAGE_SETBACK: Table[StageState] = {
    **{s: frozenset({StageState.WAITING}) for s in (StageState.SUBMITTING, StageState.SUBMITTED)},  # tried again
    **{s: frozenset({StageState.WAITING}) for s in (StageState.FAILED, StageState.CANCELLED, StageState.DROPPED)},
}


class IllegalTransition(RuntimeError):
    """A bug in the manager: the transition is refused and the transaction rolled back, so that nothing is lost."""


def check(table: Table[S], old: S, new: S, *, setback: Table[S] | None = None) -> None:
    """Raise :class:`IllegalTransition` unless `table` (or `setback`, which costs an incarnation) allows old -> new."""
    if new in table[old] or (setback is not None and new in setback.get(old, frozenset())):
        return
    raise IllegalTransition(f"{type(old).__name__}: {old.value} -> {new.value}")
