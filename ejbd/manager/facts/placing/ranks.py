"""Which workers have ranks of a placement."""

from __future__ import annotations

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker
from ejbd.wire.kinds import OperationKind


def workers_with_ranks(world: JobWorld, epoch: Epoch) -> list[Worker]:
    ids = {seat.worker for seat in epoch.placement}
    return [w for w in world.workers if w.id in ids and w.alive]


def speaks_for(world: JobWorld, epoch: Epoch, worker: Worker) -> set[int]:
    """The ranks of which a worker tells the end: its own, and all of them where it has the mpirun that starts them."""
    for operation in world.operations(OperationKind.LAUNCH, epoch=epoch.number):
        hosts = (operation.payload.get("launcher") or {}).get("hosts")
        if hosts and operation.worker_id == worker.id:
            return set(range(epoch.size)) if operation.payload["launcher"]["host"] == hosts[0] else set()
    return {seat.rank for seat in epoch.placement if seat.worker == worker.id}
