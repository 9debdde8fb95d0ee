"""What events of workflows hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import NotRequired, TypedDict

from ejbd.wire.eventdata.common import By, Step


class WorkflowReceived(TypedDict):
    """A plan that was stored: its name, its user, and how many allocations it asks for."""

    workflow: str
    name: str
    user: str
    allocations: int


class WorkflowBy(By):
    """The workflow, and the user that asked."""

    workflow: str


class WorkflowStep(Step):
    """A change of a workflow's state."""

    workflow: str


class StageStep(WorkflowStep):
    """A change of state of an allocation, by the name of its first stage. `job`: of this attempt, once it is known."""

    stage: str
    attempt: int
    job: NotRequired[str]
