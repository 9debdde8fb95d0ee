"""Which checkpoint a placement begins with: the newest that comes up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from ejbd.manager.effects import DropCheckpoint, Effects, LoseWork, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.rules.placements import movability
from ejbd.store.models import Epoch, Event, Launch
from ejbd.store.states import EpochState, OperationState
from ejbd.wire.kinds import EpochCode, EventKind, OperationKind

FAILED_RESTART_S = 10.0  # a rank that fails so soon after a restart was not restored
UNPROVED_RESTART_S = 60.0  # the same of an application that was never restarted before: it may break a little later
KEPT_S = 120.0  # a checkpoint is kept until the next has run so long: a rank that hangs is not seen sooner
TRIES = 2  # of a checkpoint that looks whole and does not come up: at the new place, and at the old one


def resume_from(world: JobWorld, launch: Launch) -> Effects[int | None]:
    """The epoch with the checkpoint that the next placement resumes; None: the launch begins anew.

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
    broken = [f for f in failures if f.broken]
    if found is None and not all(f.spoiled for f in failures):
        if world.job.engine != "dmtcp" or len(broken) < TRIES:
            return newest  # there is nothing else, and it may yet come up
        yield from movability.given_up(world, last, f"it did not come back from its checkpoint: {broken[-1].error}")
    elif found is not None and len(broken) >= TRIES:
        yield from movability.failed(world, last, f"it did not come back from its checkpoint: {broken[-1].error}")
    job = world.job
    work_s = epochs[found].work_at_stop_s if found is not None else None
    yield LoseWork(job, launch.work_at_start_s if work_s is None else work_s)
    if found is None:
        yield note(job, incarnation=job.incarnation + 1)
    why = failures[-1].error
    yield tell(EventKind.CHECKPOINT_GIVEN_UP, job_id=job.id, epoch=newest, resumed_from=found, reason=why)
    return found


def restored_for_s(world: JobWorld) -> float:
    """For how long after a restart an end of a rank means that it was not restored well (seconds)."""
    if world.job.engine == "profile":
        return UNPROVED_RESTART_S  # what reads a large input finds out late that it cannot go on
    proved = world.job.engine != "dmtcp" or moving.proved_elsewhere(world)
    return FAILED_RESTART_S if proved else UNPROVED_RESTART_S


def is_proved(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the checkpoint that an epoch was resumed from has brought its ranks back, beyond doubt."""
    if epoch.restart_from is None or epoch.running_s is None or (epoch.state == EpochState.FAILED and _soon(epoch)):
        return False
    stops = [at_s for at_s in (epoch.stopping_s, epoch.ended_s) if at_s is not None]
    needed_s = max(KEPT_S, restored_for_s(world)) if world.job.engine == "dmtcp" else FAILED_RESTART_S
    return min(stops, default=world.ctx.now) - epoch.running_s >= needed_s


def drop_older(world: JobWorld, running: Epoch) -> Effects[None]:
    """A placement runs: drop all that was written before it and that nothing would go back to, whole or not.

    What it was resumed from is kept. Until that has proved itself so is the one before, and the last that has.
    """
    kept = _kept(world, running)
    query = select(Epoch.number).where(Epoch.job_id == world.job.id, Epoch.number < running.number)
    for number in world.ctx.session.scalars(query):
        if number not in kept:
            yield DropCheckpoint(world.job.id, number)


def _kept(world: JobWorld, running: Epoch) -> set[int]:
    source = running.restart_from
    if source is None:
        return set()
    if is_proved(world, running):
        return {source}
    query = select(Epoch).where(Epoch.job_id == world.job.id, Epoch.launch_ordinal == running.launch_ordinal)
    epochs = list(world.ctx.session.scalars(query))
    proved = {epoch.restart_from for epoch in epochs if is_proved(world, epoch)}
    if source in proved:
        return {source}
    older = sorted((e.number for e in epochs if e.number < source and _held(world, e)), reverse=True)
    return {source, *older[:1], *[number for number in older if number in proved][:1]}


def untried(world: JobWorld, failed: Epoch) -> bool:
    """Whether any checkpoint that the launch of `failed` could go back to has not failed as often as one may."""
    query = select(Epoch).where(Epoch.job_id == world.job.id, Epoch.launch_ordinal == failed.launch_ordinal)
    epochs = {epoch.number: epoch for epoch in world.ctx.session.scalars(query)}
    newest = failed.restart_from
    if newest is None:
        return False
    held = [n for n in epochs if n <= newest and _held(world, epochs[n])]
    return any(len(_failures(world, epochs, n)) < TRIES for n in held)


def drop_all(world: JobWorld) -> Effects[None]:
    """The job has come to its end, and well."""
    for number in world.ctx.session.scalars(select(Epoch.number).where(Epoch.job_id == world.job.id)):
        yield DropCheckpoint(world.job.id, number)


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
    return epoch.state == EpochState.STOPPED and world.spool.has_checkpoint(world.job.id, epoch.number)


def coordinator_lost(world: JobWorld, epoch: Epoch) -> bool:
    """Whether DMTCP's coordinator ended by itself under an epoch's ranks, which end with it."""
    return _told_of(world, EventKind.COORDINATOR_LOST, epoch)


def _told_of(world: JobWorld, kind: EventKind, epoch: Epoch) -> bool:
    query = select(Event.data).where(Event.job_id == world.job.id, Event.kind == kind)
    return any(data.get("epoch") == epoch.number for data in world.ctx.session.scalars(query))


def _soon(epoch: Epoch) -> bool:
    """Whether a placement failed before its ranks had run for long."""
    if epoch.running_s is None:
        return True
    return epoch.code == EpochCode.RIGHT_AFTER_RESTART and epoch.ended_s is not None


def _failures(world: JobWorld, epochs: Mapping[int, Epoch], number: int) -> list[Failure]:
    """The restarts from one checkpoint that did not come up; one that failed with its node says nothing about it."""
    found = []
    for epoch in epochs.values():
        if epoch.restart_from != number or epoch.state != EpochState.FAILED or not _soon(epoch):
            continue
        if coordinator_lost(world, epoch):
            continue  # whatever was restored then ends with it
        operations = world.operations(OperationKind.LAUNCH, epoch=epoch.number)
        failed = [o for o in operations if o.state == OperationState.FAILED]
        spoiled = [o for o in failed if (o.result or {}).get("spoiled")]
        stuck = _told_of(world, EventKind.RANK_STUCK, epoch)
        if failed or stuck or any(epoch.exits.values()):
            broken = [o for o in failed if (o.result or {}).get("broken")]
            broke = bool(broken) or stuck or any(epoch.exits.values())
            failure = Failure(spoiled[0].error if spoiled else epoch.reason, bool(spoiled), broke)
            found += [failure] * (TRIES if stuck else 1)  # what hangs once will hang again
    return found
