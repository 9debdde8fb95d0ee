"""Which workers have ranks of a placement."""

from __future__ import annotations

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker


def workers_with_ranks(world: JobWorld, epoch: Epoch) -> list[Worker]:
    ids = {seat.worker for seat in epoch.placement}
    return [w for w in world.workers if w.id in ids and w.alive]
