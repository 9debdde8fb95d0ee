"""A placement goes on in place, on the processors that a pool has left its job, or has given back to it.

The workers are asked, and the placement is what they have answered: a daemon that is killed between the two asks or
hears again, and a worker does nothing twice. Where one of them refuses, the ranks stay where they are for a while.
"""

from __future__ import annotations

from typing import Any

from ejbd.core.placing import Seat
from ejbd.manager.effects import Effects, Order, Rate, Stalled, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.placing.folded import cpus_now, seats_now, told_cpus
from ejbd.manager.rules.placements.pace import speed_of
from ejbd.store.models import Epoch, Operation
from ejbd.wire.kinds import EventKind, OperationKind

AGAIN_S = 10.0  # after which a worker that has refused is asked again: a rank may just have ended, or begun others


def follow_share(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    """Ask for what the job has now, or note what was answered; whether the placement is another by it."""
    if epoch.size != world.job.processes or any(epoch.exits.values()):
        return False  # of a launch that leaves processors idle there is nothing to fold
    asked = world.operations(OperationKind.RESIZE, epoch=epoch.number)
    if not finished(asked):
        return False
    last = [o for o in asked if o.created_s == max(each.created_s for each in asked)]
    if last and succeeded(last):
        seats = _as_told(epoch, last)
        if seats != tuple(epoch.placement):
            yield from _resized(world, epoch, seats, last)
            return True
    elif last and world.ctx.now < max(o.done_s or o.created_s for o in last) + AGAIN_S:
        return False
    wanted = seats_now(world, epoch)
    moved = [new for new, old in zip(wanted, epoch.placement, strict=True) if new != old]
    for id in sorted({seat.worker for seat in moved}):
        worker = world.worker(id)
        if worker is not None:
            ranks = [{"rank": seat.rank, "processor": seat.processor} for seat in wanted if seat.worker == id]
            payload = {"epoch": epoch.number, "ranks": ranks, **told_cpus(cpus_now(world, worker))}
            yield Order(worker, OperationKind.RESIZE, payload, epoch=epoch.number)
    return False


def _as_told(epoch: Epoch, operations: list[Operation]) -> tuple[Seat, ...]:
    places = {int(one["rank"]): int(one["processor"]) for o in operations for one in o.payload["ranks"]}
    return tuple(Seat(seat.rank, seat.worker, places.get(seat.rank, seat.processor)) for seat in epoch.placement)


def _resized(world: JobWorld, epoch: Epoch, seats: tuple[Seat, ...], told: list[Operation]) -> Effects[None]:
    """What is done from now on is reckoned, and measured, by the processors that the ranks have now."""
    was, now = epoch.processors, len({(seat.worker, seat.processor) for seat in seats})
    yield note(epoch, placement=list(seats), processors=now)
    yield Stalled(epoch)  # what is measured of their progress is of one number of processors
    speed = speed_of(world, epoch)
    yield Rate(world.job, speed)
    seconds = max(float((o.result or {}).get("seconds", 0.0)) for o in told)
    numbers: dict[str, Any] = {"processors": now, "was": was, "rate": speed, "seconds": seconds}
    yield tell(EventKind.EPOCH_RESIZED, job_id=world.job.id, epoch=epoch.number, **numbers)
