"""What a pool has left a job of its processors: where its ranks go on while it is folded (docs/malleable.md)."""

from __future__ import annotations

from typing import Any

from ejbd.core.placing import Host, Seat, place
from ejbd.core.view import BatchJobView
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker


def share_of(world: JobWorld, worker: Worker) -> int | None:
    """What its pool has left the job of a worker's processors, by the last look; None: it is in no pool."""
    seen = _seen(world, worker)
    share = dict(seen.share).get(worker.node) if seen is not None else None
    return None if share is None else min(worker.processors, share)


def cpus_now(world: JobWorld, worker: Worker) -> dict[str, Any] | None:
    """Which of its node's processors a worker's job has, for the worker to bind its ranks to; None: it is not told."""
    view, seen = world.ctx.view, _seen(world, worker)
    mine = dict(seen.places).get(worker.node) if seen is not None else None
    of = next((node.processors for node in view.nodes if node.name == worker.node), None) if view is not None else None
    return {"of": of, "numbers": list(mine)} if mine and of is not None else None


def told_cpus(found: dict[str, Any] | None) -> dict[str, Any]:
    """As an operation has it."""
    return {} if found is None else {"cpus": found}


def _seen(world: JobWorld, worker: Worker) -> BatchJobView | None:
    view = world.ctx.view
    subjob = next((one for one in world.open_subjobs if one.id == worker.subjob_id), None)
    if view is None or subjob is None or subjob.batch_id is None:
        return None
    return next((job for job in view.jobs if job.id == subjob.batch_id), None)


def processors_now(world: JobWorld, worker: Worker) -> int:
    """Of a worker's processors, those that its job has."""
    share = share_of(world, worker)
    return worker.processors if share is None else share


def seats_now(world: JobWorld, epoch: Epoch) -> tuple[Seat, ...]:
    """Where the ranks are to be, on what the job has now. Each stays on its worker, neighbours together.

    What is in no pool stays as it is.
    """
    found: dict[int, Seat] = {}
    for id in {seat.worker for seat in epoch.placement}:
        worker = world.worker(id)
        share = share_of(world, worker) if worker is not None else None
        here = sorted(seat for seat in epoch.placement if seat.worker == id)
        if share is None:
            found |= {seat.rank: seat for seat in here}
            continue
        for seat in place(len(here), [Host(id, max(1, share))]):
            rank = here[seat.rank].rank
            found[rank] = Seat(rank, id, seat.processor)
    return tuple(found[rank] for rank in sorted(found))
