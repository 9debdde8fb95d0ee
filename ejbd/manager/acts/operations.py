"""Operations: rows that tell one worker one thing to do."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from ejbd.manager.effects import Abandon, MoveOperation, Order
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION
from ejbd.store.models import Operation, Worker
from ejbd.store.states import OperationState
from ejbd.store.transitions import move_operation, wake
from ejbd.wire.kinds import OperationKind


def add_operation(
    ctx: Context, worker: Worker, kind: OperationKind, payload: dict[str, Any], *, epoch: int | None = None
) -> Operation:
    """Queue an operation for `worker`; it is handed out after this transaction."""
    operation = Operation(
        worker_id=worker.id,
        job_id=worker.job_id,
        epoch=epoch,
        kind=kind.value,
        payload=payload,
        state=OperationState.QUEUED,
        created_s=ctx.now,
        error="",
    )
    ctx.session.add(operation)
    ctx.session.flush()
    wake(ctx.session, f"worker:{worker.id}")
    return operation


def abandon(ctx: Context, effect: Abandon) -> None:
    """None of the worker's operations will be answered any more."""
    query = select(Operation).where(Operation.worker_id == effect.worker.id, Operation.state.in_(UNFINISHED_OPERATION))
    for operation in ctx.session.scalars(query):
        operation.error = effect.why
        move_operation(ctx.session, operation, OperationState.ABANDONED, ctx.now)


def order(ctx: Context, effect: Order) -> Operation:
    return add_operation(ctx, effect.worker, effect.kind, dict(effect.payload), epoch=effect.epoch)


def move(ctx: Context, effect: MoveOperation) -> None:
    more = effect.data or {}
    move_operation(ctx.session, effect.operation, effect.state, ctx.now, reason=effect.reason, **more)
