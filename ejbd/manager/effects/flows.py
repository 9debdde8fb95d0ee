"""Effects on workflows and their allocations."""

from __future__ import annotations

from dataclasses import dataclass

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Workflow, WorkflowStage
from ejbd.store.states import StageState, WorkflowState


@dataclass(frozen=True, slots=True)
class MoveWorkflow(Effect):
    """The workflow is in another state; running again where its user wants it tried again."""

    workflow: Workflow
    state: WorkflowState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MoveStage(Effect):
    """The allocation is in another state; waiting again where it is tried again."""

    stage: WorkflowStage
    state: StageState
    reason: str = ""
