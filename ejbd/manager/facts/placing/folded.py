"""What a pool has left a job of its processors: where its ranks go on while it is folded (docs/malleable.md)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select

from ejbd.core.malleable.halves import Numbers, halves
from ejbd.core.placing import Host, Seat, place
from ejbd.core.view import BatchJobView
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.tags import is_ours
from ejbd.store.models import Epoch, Job, Operation, Subjob, Worker
from ejbd.store.states import EpochState, SubjobState
from ejbd.wire.kinds import OperationKind, SubjobRole


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
    wanted = select(Subjob.tag).where(Subjob.state == SubjobState.RUNNING, Subjob.role != SubjobRole.RIGID)
    tags = set(world.ctx.session.scalars(wanted))
    return halves(view, {job.id for job in view.jobs if job.mark in tags}).get(seen.id, {})


def told_cpus(found: dict[str, Any] | None) -> dict[str, Any]:
    """As an operation has it."""
    return {} if found is None else {"cpus": found}


def _seen(world: JobWorld, worker: Worker) -> BatchJobView | None:
    view = world.ctx.view
    subjob = next((one for one in world.open_subjobs if one.id == worker.subjob_id), None)
    if view is None or subjob is None or subjob.batch_id is None:
        return None
    return next((job for job in view.jobs if job.id == subjob.batch_id and is_ours(job, subjob)), None)


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


def foldable(world: JobWorld, epoch: Epoch) -> bool:
    """Of a launch that leaves processors idle there is nothing to fold."""
    return epoch.size == world.job.processes and not any(epoch.exits.values())


def last_of(asked: Sequence[Operation]) -> list[Operation]:
    """Of several resizes, what was asked of all workers at the last one."""
    return [o for o in asked if o.created_s == max(each.created_s for each in asked)]


def not_left_yet(world: JobWorld, workers: Sequence[Worker]) -> bool:
    """Whether ranks of other jobs have still to leave processors that are this one's now.

    A worker that has refused keeps its ranks where they are: it is not waited for.
    """
    nodes = {worker.node for worker in workers if share_of(world, worker) is not None}
    if not nodes:
        return False
    there = select(Worker.job_id).where(Worker.node.in_(nodes), Worker.alive, Worker.job_id != world.job.id)
    others = world.ctx.session.scalars(select(Job).where(Job.id.in_(there)))
    return any(_is_to_leave(JobWorld(world.ctx, job), nodes) for job in others)


def _is_to_leave(world: JobWorld, nodes: Collection[str]) -> bool:
    epoch = world.live_epoch
    if epoch is None or epoch.state not in (EpochState.LAUNCHING, EpochState.RUNNING) or not foldable(world, epoch):
        return False
    asked = world.operations(OperationKind.RESIZE, epoch=epoch.number)
    if not finished(asked):
        return True
    if not succeeded(last_of(asked)):
        return False
    moved = {new.worker for new, old in zip(seats_now(world, epoch), epoch.placement, strict=True) if new != old}
    return any(worker.id in moved and worker.node in nodes for worker in world.workers)
