"""Subjobs that lend their processors to ranks of the same job on the same node, which so need no checkpoint.

Only where a worker may use what its batch system gave to another job: nothing holds it to its own CPUs. The worker says
so, since it refuses what it cannot do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ejbd.core.bundling.guard import folding_pays
from ejbd.core.placing import Host, Seat, place
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.store.models import Epoch, Subjob
from ejbd.store.states import EpochState


class InPlace(NamedTuple):
    """Where the ranks go on, each on its worker; by worker, what others lend it."""

    seats: tuple[Seat, ...]
    lent: dict[str, int]


def lends(world: JobWorld, epoch: Epoch, subjob: str) -> bool:
    """Whether the ranks that run have a subjob's processors without one of them being its worker's own."""
    if world.ctx.queue_settings(world.job.queue).in_place == "off" or epoch.state != EpochState.RUNNING:
        return False
    theirs = {worker.id for worker in world.workers if worker.subjob_id == subjob}
    return not any(seat.worker in theirs for seat in epoch.placement)


def left_for_others(world: JobWorld, epoch: Epoch) -> list[str]:
    """Subjobs that the guard may ask the ranks to leave in place: where the Delta(2) of its application makes that pay.

    Their memory is no matter: each rank stays in that of the subjob where its worker is.
    """
    if epoch.size != world.job.processes:
        return []
    measured = next((one.penalty.delta for one in world.deltas if one.degree == 2), None)
    if not folding_pays(measured):
        return []
    return [id for id in world.job.members if lends(world, epoch, id)]


def in_place(world: JobWorld, epoch: Epoch, members: Sequence[Subjob]) -> InPlace | None:
    """How an epoch goes on on these subjobs where its ranks are; None: it has to move.

    Every worker with ranks has to be among theirs, and every other one on the node of such a worker.
    """
    if world.rungs is not None or world.needs.processors > 1 or node_limit.one_mpirun(world):
        return None
    workers = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    with_ranks = {seat.worker for seat in epoch.placement}
    hosts = {worker.id: worker for worker in workers if worker.id in with_ranks}
    if len(hosts) != len(with_ranks) or epoch.size != world.job.processes or any(epoch.exits.values()):
        return None
    of_node = {worker.node: worker.id for worker in hosts.values()}
    lent: Counter[str] = Counter()
    for worker in workers:
        if worker.id in hosts:
            continue
        if worker.node not in of_node:
            return None
        lent[of_node[worker.node]] += worker.processors
    found: dict[int, Seat] = {}
    for id, worker in hosts.items():
        here = sorted(seat.rank for seat in epoch.placement if seat.worker == id)
        for seat in place(len(here), [Host(id, worker.processors + lent[id])]):
            found[here[seat.rank]] = Seat(here[seat.rank], id, seat.processor)
    return InPlace(tuple(found[rank] for rank in sorted(found)), dict(lent))
