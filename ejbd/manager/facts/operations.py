"""What became of operations of workers."""

from __future__ import annotations

from typing import Any, TypedDict

from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION
from ejbd.store.models import Operation
from ejbd.store.states import OperationState
from ejbd.wire.kinds import OperationKind


class ToldOperation(TypedDict):
    """One thing a worker is to do. What its `payload` holds is as its kind says."""

    seq: int
    kind: str
    epoch: int | None
    payload: dict[str, Any]


def finished(operations: list[Operation]) -> bool:
    """Whether every one of these was answered, or will never be."""
    return all(o.state not in UNFINISHED_OPERATION for o in operations)


def leaves(operation: Operation) -> bool:
    """Whether a worker that has answered this leaves: it was told to, or to hand its output in and then to."""
    if operation.kind == OperationKind.UNLEAD:
        return "exit" in operation.payload and operation.state == OperationState.DONE
    return operation.kind == OperationKind.EXIT and finished([operation])


def succeeded(operations: list[Operation]) -> bool:
    return all(o.state == OperationState.DONE for o in operations)
