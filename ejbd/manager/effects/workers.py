"""Effects on workers: what they are told to do, and what they may begin or find in the spool."""

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
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Abandon(Effect):
    """No operation of this worker is answered any more."""

    worker: Worker
    why: str


@dataclass(frozen=True, slots=True)
class Withdraw(Effect):
    """See that the workers of a J0 begin nothing by themselves. Answers False: they have begun.

    Raises EjbError (SPOOL) where that cannot be known.
    """

    job_id: str
    subjob_id: str


@dataclass(frozen=True, slots=True)
class MakeEpochFolder(Effect):
    """Make the folder of a placement in the spool. Answers its path."""

    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Effect):
    """Remove the checkpoint that an epoch has left in the spool."""

    job_id: str
    epoch: int
