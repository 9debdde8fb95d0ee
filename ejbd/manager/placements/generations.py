"""Which checkpoint a placement begins with: the newest that comes up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from ejbd.manager.placements import movability
from ejbd.manager.planning.jobworld import JobWorld
from ejbd.store.models import Epoch, Launch
from ejbd.store.states import EpochState, OperationState
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind, OperationKind

FAILED_RESTART_S = 10.0  # a rank that fails so soon after a restart was not restored
UNPROVED_RESTART_S = 60.0  # the same of an application that was never restarted before: it may break a little later
RIGHT_AFTER = "right after the restart"  # how the reason of a placement ends that failed within that time
TRIES = 2  # of a checkpoint that looks whole and does not come up: at the new place, and at the old one


def resume_from(world: JobWorld, launch: Launch) -> int | None:
    """The epoch whose checkpoint the next placement resumes; None: the launch begins anew.

    Sets the job's progress back where that checkpoint is an older one than the last.
    """
    last = world.epoch
    if last is None or last.launch_ordinal != launch.ordinal:
        return None
    if last.state == EpochState.STOPPED:
        return last.number
    newest = last.restart_from
    if newest is None:
        return None
    epochs = {e.number: e for e in _epochs(world, launch)}
    failures = _failures(world, epochs, newest)
    if len(failures) < TRIES:
        return newest
    older = [n for n in sorted(epochs, reverse=True) if n < newest and _held(world, epochs[n])]
    found = next((n for n in older if len(_failures(world, epochs, n)) < TRIES), None)
    if found is None and not all(f.spoiled for f in failures):
        broken = [f for f in failures if f.broken]
        if world.job.engine != "dmtcp" or len(broken) < TRIES or movability.proved_elsewhere(world):
            return newest  # there is nothing else, and it may yet come up
        movability.failed(world, last, f"it did not come back from its checkpoint: {broken[-1].error}")
    job, now = world.job, world.ctx.now
    work_s = epochs[found].work_at_stop_s if found is not None else None
    job.work_s = launch.work_at_start_s if work_s is None else work_s
    job.work_rate, job.work_as_of_s = 0.0, now
    if found is None:
        job.incarnation += 1
    why = failures[-1].error
    add_event(
        world.ctx.session,
        EventKind.CHECKPOINT_GIVEN_UP,
        now,
        job_id=job.id,
        epoch=newest,
        resumed_from=found,
        reason=why,
    )
    return found


def drop_older(world: JobWorld, running: Epoch) -> None:
    """A placement runs: of all that was written before it, whole or not, only what it was resumed from is needed."""
    query = select(Epoch.number).where(Epoch.job_id == world.job.id, Epoch.number < running.number)
    for number in world.ctx.session.scalars(query):
        if number != running.restart_from:
            world.ctx.spool.drop_checkpoint(world.job.id, number)


def drop_all(world: JobWorld) -> None:
    """The job has come to its end, and well."""
    for number in world.ctx.session.scalars(select(Epoch.number).where(Epoch.job_id == world.job.id)):
        world.ctx.spool.drop_checkpoint(world.job.id, number)


@dataclass(frozen=True, slots=True)
class Failure:
    """A restart that did not come up. `spoiled`: the worker found the checkpoint incomplete or damaged.

    `broken`: it was tried, and ranks ended or did not come back.
    """

    error: str
    spoiled: bool
    broken: bool


def _epochs(world: JobWorld, launch: Launch) -> list[Epoch]:
    query = select(Epoch).where(Epoch.job_id == world.job.id, Epoch.launch_ordinal == launch.ordinal)
    return list(world.ctx.session.scalars(query))


def _held(world: JobWorld, epoch: Epoch) -> bool:
    return epoch.state == EpochState.STOPPED and world.ctx.spool.checkpoint_dir(world.job.id, epoch.number).is_dir()


def _soon(epoch: Epoch) -> bool:
    """Whether a placement failed before its ranks had run for long."""
    if epoch.running_s is None:
        return True
    return epoch.reason.endswith(RIGHT_AFTER) and epoch.ended_s is not None


def _failures(world: JobWorld, epochs: Mapping[int, Epoch], number: int) -> list[Failure]:
    """The restarts from one checkpoint that did not come up; one that failed with its node says nothing about it."""
    found = []
    for epoch in epochs.values():
        if epoch.restart_from != number or epoch.state != EpochState.FAILED or not _soon(epoch):
            continue
        operations = world.operations(OperationKind.LAUNCH, epoch=epoch.number)
        failed = [o for o in operations if o.state == OperationState.FAILED]
        spoiled = [o for o in failed if (o.result or {}).get("spoiled")]
        if failed or any(epoch.exits.values()):
            broken = [o for o in failed if (o.result or {}).get("broken")]
            broke = bool(broken) or any(epoch.exits.values())
            found.append(Failure(spoiled[0].error if spoiled else epoch.reason, bool(spoiled), broke))
    return found
