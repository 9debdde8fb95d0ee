"""A placement goes on in place, on the processors that a pool has left its job, or has given back to it. Or on those
of further subjobs on its own nodes, and without them again (`in_place` of a queue).

The workers are asked, and the placement is what they have answered: a daemon that is killed between the two asks or
hears again, and a worker does nothing twice. Where one of them refuses, the ranks stay where they are for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ejbd.core.placing import Seat
from ejbd.manager.effects import Effects, Order, Rate, Stalled, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.placing.folded import cpus_now, foldable, last_of, not_left_yet, seats_now, told_cpus
from ejbd.manager.facts.placing.lending import in_place
from ejbd.manager.rules.placements.launching import release_left_behind
from ejbd.manager.rules.placements.pace import speed_of
from ejbd.store.models import Epoch, Operation, Subjob
from ejbd.wire.kinds import EventKind, OperationKind

AGAIN_S = 10.0  # after which a worker that has refused is asked again: a rank may just have ended, or begun others
ROOM_S = 10.0  # for so long a job waits for other jobs' ranks to leave its processors


def waits_for_room(world: JobWorld, members: Sequence[Subjob]) -> bool:
    """Whether a job is not launched yet, since the ranks that make room for it are where they were.

    Not for long: what another job's worker leaves undone must not keep this one from what it was given.
    """
    since = max(subjob.start_s or world.ctx.now for subjob in members)
    workers = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    return world.ctx.waited_s(since) < ROOM_S and not_left_yet(world, workers)


def follow_share(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    """Ask for what the job has now, or note what was answered; whether the placement is another by it."""
    if not foldable(world, epoch):
        return False
    asked = world.operations(OperationKind.RESIZE, epoch=epoch.number)
    if not finished(asked):
        return False
    last = last_of(asked)
    if last and succeeded(last):
        seats = _as_told(epoch, last)
        if seats != tuple(epoch.placement):
            yield from _resized(world, epoch, seats, last)
            return True
    elif last and world.ctx.now < max(o.done_s or o.created_s for o in last) + AGAIN_S:
        return False
    yield from _ask(world, epoch, seats_now(world, epoch), {})
    return False


def go_on_with(world: JobWorld, epoch: Epoch, members: Sequence[Subjob]) -> Effects[bool]:
    """Whether the placement goes on on these subjobs without a checkpoint: its workers are asked, or have answered.

    What one of them refuses is not asked again of this placement: it is moved by a checkpoint, as ever.
    """
    if world.ctx.queue_settings(world.job.queue).in_place == "off":
        return False
    asked = world.operations(OperationKind.RESIZE, epoch=epoch.number)
    if not succeeded([operation for operation in asked if finished([operation])]):
        return False
    found = in_place(world, epoch, members)
    if found is None:
        return False
    if not finished(asked):
        return True
    if found.seats != tuple(epoch.placement):
        yield from _ask(world, epoch, found.seats, found.lent)
        return True
    yield note(epoch, members=[subjob.id for subjob in members])
    yield from release_left_behind(world, epoch)
    return True


def _ask(world: JobWorld, epoch: Epoch, wanted: tuple[Seat, ...], lent: dict[str, int]) -> Effects[None]:
    moved = [new for new, old in zip(wanted, epoch.placement, strict=True) if new != old]
    for id in sorted({seat.worker for seat in moved}):
        worker = world.worker(id)
        if worker is not None:
            ranks = [{"rank": seat.rank, "processor": seat.processor} for seat in wanted if seat.worker == id]
            payload = {"epoch": epoch.number, "ranks": ranks, **told_cpus(cpus_now(world, worker))}
            payload |= {"lent": lent[id]} if lent.get(id) else {}
            yield Order(worker, OperationKind.RESIZE, payload, epoch=epoch.number)


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
