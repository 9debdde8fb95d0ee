"""What became of operations of workers."""

from __future__ import annotations

from typing import Any, TypedDict

from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION
from ejbd.store.models import Operation
from ejbd.store.states import OperationState


class ToldOperation(TypedDict):
    """One thing a worker is to do. What its `payload` holds is as its kind says."""

    seq: int
    kind: str
    epoch: int | None
    payload: dict[str, Any]


def finished(operations: list[Operation]) -> bool:
    """Whether every one of these was answered, or will never be."""
    return all(o.state not in UNFINISHED_OPERATION for o in operations)


def succeeded(operations: list[Operation]) -> bool:
    return all(o.state == OperationState.DONE for o in operations)
