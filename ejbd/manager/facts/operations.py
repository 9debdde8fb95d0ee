"""What became of operations of workers."""

from __future__ import annotations

from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION
from ejbd.store.models import Operation
from ejbd.store.states import OperationState


def finished(operations: list[Operation]) -> bool:
    """Whether every one of these was answered, or will never be."""
    return all(o.state not in UNFINISHED_OPERATION for o in operations)


def succeeded(operations: list[Operation]) -> bool:
    return all(o.state == OperationState.DONE for o in operations)
