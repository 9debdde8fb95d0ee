"""What a pool has left a job of its processors: where its ranks go on while it is folded (docs/malleable.md)."""

from __future__ import annotations

from ejbd.core.placing import Host, Seat, place
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker


def processors_now(world: JobWorld, worker: Worker) -> int:
    """Of a worker's processors, those that its job has by the last look at the batch system."""
    view = world.ctx.view
    subjob = next((one for one in world.open_subjobs if one.id == worker.subjob_id), None)
    if view is None or subjob is None or subjob.batch_id is None:
        return worker.processors
    seen = next((job for job in view.jobs if job.id == subjob.batch_id and job.share), None)
    share = dict(seen.share) if seen is not None else {}
    return min(worker.processors, share.get(worker.node, worker.processors))


def seats_now(world: JobWorld, epoch: Epoch) -> tuple[Seat, ...]:
    """Where the ranks are to be, on what the job has now. Each stays on its worker, neighbours together."""
    found: dict[int, Seat] = {}
    for id in {seat.worker for seat in epoch.placement}:
        worker = world.worker(id)
        ranks = sorted(seat.rank for seat in epoch.placement if seat.worker == id)
        if worker is None:
            return tuple(epoch.placement)  # it is lost, and the placement with it
        for seat in place(len(ranks), [Host(id, max(1, processors_now(world, worker)))]):
            found[ranks[seat.rank]] = Seat(ranks[seat.rank], id, seat.processor)
    return tuple(found[rank] for rank in sorted(found))
