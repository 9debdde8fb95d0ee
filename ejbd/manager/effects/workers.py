"""Effects on workers: what they are told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Operation, Worker
from ejbd.store.states import OperationState
from ejbd.wire.kinds import OperationKind


@dataclass(frozen=True, slots=True)
class Order(Effect):
    """Queue an operation for a worker. Answers its row."""

    worker: Worker
    kind: OperationKind
    payload: Mapping[str, Any]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class MoveOperation(Effect):
    operation: Operation
    state: OperationState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Abandon(Effect):
    """No operation of this worker is answered any more."""

    worker: Worker
    why: str
