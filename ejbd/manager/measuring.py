"""Moves as they are measured: a row for each checkpoint that counts, completed when its ranks run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from ejbd.manager.context import JobWorld
from ejbd.manager.history import remember
from ejbd.store.models import Epoch, Event, Move, Operation, Worker


def note_checkpoint(world: JobWorld, epoch: Epoch, operations: Sequence[Operation]) -> None:
    """An epoch was checkpointed and stopped by `operations`, one a worker, all of which succeeded."""
    ctx = world.ctx
    by_node = [_of_node(world, operation) for operation in operations]
    checkpoint_s = max((node["seconds"] for node in by_node), default=0.0)
    stopped_s = max(0.0, ctx.now - (epoch.stopping_s if epoch.stopping_s is not None else ctx.now))
    remember(
        ctx.session,
        Move(
            application=world.job.application,
            job_id=world.job.id,
            epoch=epoch.number,
            at_s=ctx.now,
            processors=epoch.processors,
            nodes=len({node["node"] for node in by_node}),
            bytes=sum(node["bytes"] for node in by_node),
            checkpoint_s=checkpoint_s,
            write_s=min(checkpoint_s, max((node["write_s"] for node in by_node), default=0.0)),
            wait_s=max(0.0, stopped_s - checkpoint_s),
            by_node=by_node,
        ),
    )
    ctx.forget_costs()


def take_sample(world: JobWorld, worker: Worker, report: dict[str, Any]) -> None:
    """What a worker sees of the ranks of an epoch. Only a live placement still cares."""
    epoch = world.live_epoch
    if epoch is not None and epoch.number == report["epoch"]:
        worker.resident_bytes = int(report["resident"])


def _of_node(world: JobWorld, operation: Operation) -> dict[str, Any]:
    """What one worker told about its checkpoint. An old one does not tell what writing took: all of it, then."""
    found = operation.result or {}
    worker = world.ctx.session.get(Worker, operation.worker_id)
    seconds = float(found.get("seconds", 0.0))
    return {
        "node": worker.node if worker is not None else "",
        "bytes": int(sum(found.get("bytes", {}).values())),
        "seconds": seconds,
        "write_s": float(found.get("write_s", seconds)),
    }


def note_restart(world: JobWorld, epoch: Epoch) -> None:
    """All ranks of an epoch run that was restarted from a checkpoint."""
    ctx = world.ctx
    query = select(Move).where(Move.job_id == world.job.id, Move.epoch == epoch.restart_from)
    move = ctx.session.scalars(query.order_by(Move.id.desc())).first()
    if move is None or move.restart_s is not None:
        return  # one that was given up late, or the second restart from the same checkpoint
    move.restart_s = max(0.0, ctx.now - epoch.created_s)
    move.to_processors = epoch.processors
    move.to_nodes = len({worker for _, worker, _ in epoch.placement})
    if epoch.number == move.epoch + 1 and not _waited(world, move.at_s):
        move.wait_s += max(0.0, epoch.created_s - move.at_s)
    ctx.session.flush()
    ctx.forget_costs()


def _waited(world: JobWorld, since_s: float) -> bool:
    """Whether the job went back to waiting for processors: that is no part of a move."""
    query = select(Event.id).where(Event.job_id == world.job.id, Event.kind == "job.waiting", Event.at_s >= since_s)
    return world.ctx.session.scalars(query.limit(1)).first() is not None
