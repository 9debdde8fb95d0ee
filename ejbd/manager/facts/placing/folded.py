"""What a pool has left a job of its processors: where its ranks go on while it is folded (docs/malleable.md)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from ejbd.core.malleable.halves import Numbers, halves
from ejbd.core.placing import Host, Seat, place
from ejbd.core.view import BatchJobView
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.store.models import Epoch, Subjob, Worker
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole


def share_of(world: JobWorld, worker: Worker) -> int | None:
    """What is left to the job of a worker's processors, by the last look; None: that is not said, as of most jobs."""
    seen = _seen(world, worker)
    if seen is None:
        return None
    share = dict(seen.share).get(worker.node) if seen.share else _count(_half(world, seen).get(worker.node))
    return None if share is None else min(worker.processors, share)


def cpus_now(world: JobWorld, worker: Worker) -> dict[str, Any] | None:
    """Which of its node's processors a worker's job has, for the worker to bind its ranks to; None: it is not told."""
    view, seen = world.ctx.view, _seen(world, worker)
    if view is None or seen is None:
        return None
    mine = (dict(seen.places) if seen.places else _half(world, seen)).get(worker.node)
    of = next((node.processors for node in view.nodes if node.name == worker.node), None)
    return {"of": of, "numbers": list(mine)} if mine and of is not None else None


def _count(numbers: tuple[int, ...] | None) -> int | None:
    return None if numbers is None else len(numbers)


def _half(world: JobWorld, seen: BatchJobView) -> Numbers:
    """By node, of a job in a partition that lets two jobs start on the same processors."""
    view = world.ctx.view
    shared = view is not None and any(q.name == seen.queue and q.jobs_a_processor > 1 for q in view.queues)
    if view is None or not shared or world.needs.processors > 1 or node_limit.one_mpirun(world):
        return {}
    wanted = select(Subjob.batch_id).where(Subjob.state == SubjobState.RUNNING, Subjob.role != SubjobRole.RIGID)
    ours = {id for id in world.ctx.session.scalars(wanted) if id is not None}
    return halves(view, ours).get(seen.id, {})


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
