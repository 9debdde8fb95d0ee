"""How fast the ranks of a placement compute, by what is known of Delta and of the pace."""

from __future__ import annotations

from ejbd.core.delta import rate_with
from ejbd.core.rungs import rate_on
from ejbd.manager.effects import (
    Effects,
    Rate,
    tell,
)
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch
from ejbd.wire.kinds import EventKind


def speed_of(world: JobWorld, epoch: Epoch) -> float:
    """Full-speed seconds that the epoch's ranks do in one, with the Delta and the pace that planning uses (Eq. 2); of
    an application that is reshaped by its rungs."""
    rungs, launch = world.rungs, world.launch
    if rungs is not None and launch is not None and launch.size == world.job.processes:
        return rate_on(launch.size, epoch.processors, world.delta, rungs) / world.overheads.pace.value
    return rate_with(epoch.size, epoch.processors, world.delta) / world.overheads.pace.value


def follow_delta(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """Where Delta is known better by now: what is done from now on counts so; what was done is left as it is."""
    job = world.job
    speed = speed_of(world, epoch)
    if speed != job.work_rate:
        yield Rate(job, speed)
        yield tell(EventKind.EPOCH_RATE, job_id=job.id, epoch=epoch.number, rate=speed)
