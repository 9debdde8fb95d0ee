"""What workers are told to do, and when they are told again."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from ejbd.manager.effects import Advance, Effects, In, MoveOperation, note
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.protocol import worker_models
from ejbd.manager.rules.requests.reports import own_worker, take_result
from ejbd.store import queries
from ejbd.store.models import Operation
from ejbd.store.states import OperationState

_OPERATION: TypeAdapter[worker_models.Operation] = TypeAdapter(worker_models.Operation)
_IS_UNANSWERED = Operation.worker_id == bindparam("worker"), Operation.state.in_(UNFINISHED_OPERATION)
_UNANSWERED = select(Operation).where(*_IS_UNANSWERED).order_by(Operation.seq)
_HOW_UNANSWERED = select(Operation.state, Operation.lease_until_s).where(*_IS_UNANSWERED)


def hand_out(ctx: Context, subjob_id: str, worker_id: str) -> Effects[list[ToldOperation]]:
    """The operations that wait for this worker, now leased to it. One that it could not be told has failed."""
    session = ctx.session
    worker = own_worker(session, subjob_id, worker_id)
    found: list[ToldOperation] = []
    unfit: list[dict[str, Any]] = []
    for operation in session.scalars(_UNANSWERED, {"worker": worker.id}):
        if not _is_due(operation.state, operation.lease_until_s, ctx.now):
            continue
        told: ToldOperation = {
            "seq": operation.seq,
            "kind": operation.kind,
            "epoch": operation.epoch,
            "payload": operation.payload,
        }
        if wrong := _not_carried(told):
            unfit.append({"seq": operation.seq, "ok": False, "error": wrong, "data": {"own": True}})
            continue
        yield MoveOperation(operation, OperationState.LEASED)
        # Not again while it may still be at it: a checkpoint takes its time.
        lease_s = max(ctx.settings.limits.lease_s, float(operation.payload.get("timeout_s", 0.0)))
        yield note(operation, lease_until_s=ctx.now + lease_s)
        found.append(told)
    if unfit:
        world = JobWorld(ctx, queries.job(session, worker.job_id))
        for result in unfit:
            yield In(world, take_result(world, worker, result))
        yield In(world, Advance())
    return found


def _not_carried(told: ToldOperation) -> str:
    """Why the protocol does not carry this; "" where it does. The worker would get no answer at all, for ever."""
    try:
        _OPERATION.validate_python(told)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"the protocol does not carry this {told['kind']} ({place}: {first['msg']}), which is a fault of EJB's"
    return ""


def has_work(session: Session, subjob_id: str, worker_id: str, now: float) -> bool:
    """Whether :func:`hand_out` would find anything; reads only."""
    worker = own_worker(session, subjob_id, worker_id)
    found = session.execute(_HOW_UNANSWERED, {"worker": worker.id})
    return any(_is_due(row.state, row.lease_until_s, now) for row in found)


def _is_due(state: str, lease_until_s: float | None, now: float) -> bool:
    """Whether one that is not answered is to be told, for the first time or again."""
    return state == OperationState.QUEUED or (lease_until_s or 0.0) <= now
