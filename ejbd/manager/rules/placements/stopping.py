"""A placement is checkpointed and stopped."""

from __future__ import annotations

from ejbd.manager.effects import (
    Effects,
    MoveEpoch,
    NoteCheckpoint,
    Order,
    Rate,
    Stalled,
    note,
)
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.pauses import move_pause_s
from ejbd.manager.facts.placing.launchtime import PATIENCE
from ejbd.manager.facts.placing.movability import runs_under
from ejbd.manager.facts.placing.ranks import workers_with_ranks
from ejbd.manager.facts.times import work_now
from ejbd.manager.rules.placements import movability
from ejbd.manager.rules.placements.exits import CHECKPOINTED, failed_meanwhile, go_on_alone, ranks_over
from ejbd.manager.rules.placements.pace import speed_of
from ejbd.manager.rules.placements.setbacks import fail_epoch
from ejbd.store.models import Epoch
from ejbd.store.states import EpochState
from ejbd.wire.kinds import EpochCode, OperationKind

AFTER_GRACE_S = 30.0  # until a program that was killed after its grace has been judged


def begin_checkpoint(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """Ask every worker that has ranks to checkpoint and stop them."""
    ctx = world.ctx
    yield MoveEpoch(epoch, EpochState.STOPPING, data={"wanted": list(world.job.members)})
    yield note(epoch, stopping_s=ctx.now)
    yield Rate(world.job, 0.0)
    # A large state takes its time, as far as that is known.
    timeout_s = max(ctx.settings.limits.checkpoint_timeout_s, PATIENCE * (world.cost.checkpoint_s or 0.0))
    profile = (world.job.spec.get("profile") or {}) if runs_under(world, epoch) == "profile" else {}
    if profile:  # it is killed after its grace, and judged then
        timeout_s = max(timeout_s, float(profile["grace_s"]) + AFTER_GRACE_S)
    payload = {"epoch": epoch.number, "timeout_s": timeout_s}
    for worker in workers_with_ranks(world, epoch):
        yield Order(worker, OperationKind.CHECKPOINT, payload, epoch=epoch.number)


def stopping(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    ctx, job = world.ctx, world.job
    # Only this attempt's operations: an earlier attempt of the same epoch may have failed.
    operations = [
        o
        for o in world.operations(OperationKind.CHECKPOINT, epoch=epoch.number)
        if o.created_s >= (epoch.stopping_s or 0)
    ]
    if not finished(operations):
        return False
    codes = [int(code) for code in epoch.exits.values()]
    if succeeded(operations) and len(codes) == epoch.size and all(code == CHECKPOINTED for code in codes):
        yield note(
            epoch,
            work_at_stop_s=work_now(job, ctx.now),
            checkpoint_bytes=sum(sum((o.result or {}).get("bytes", {}).values()) for o in operations),
        )
        seconds = ctx.now - (epoch.stopping_s or ctx.now)
        yield NoteCheckpoint(epoch, operations)
        yield MoveEpoch(epoch, EpochState.STOPPED, data={"bytes": epoch.checkpoint_bytes, "seconds": round(seconds, 3)})
        return True
    if (len(codes) == epoch.size and not any(codes)) or failed_meanwhile(world, epoch):
        return (yield from ranks_over(world, epoch))
    killed = any((o.result or {}).get("killed") for o in operations)
    errors = "; ".join(sorted({o.error for o in operations if o.error})) or "not every rank stopped"
    if not killed and (not any(codes) or (go_on_alone(world, epoch) and CHECKPOINTED not in codes)):
        # No rank was stopped (some may have come to their end): the application is as it was, and so is its placement.
        yield Stalled(epoch)
        speed = speed_of(world, epoch)
        reason = f"checkpoint failed: {errors}"
        yield MoveEpoch(
            epoch,
            EpochState.RUNNING,
            setback=True,
            reason=reason,
            code=EpochCode.CHECKPOINT_FAILED,
            data={"rate": speed},
        )
        yield Rate(job, speed)
        yield note(job, move_not_before_s=ctx.now + move_pause_s(world.cost.lambda_s))
        return True
    if killed or runs_under(world, epoch) == "dmtcp":
        yield from movability.failed(world, epoch, f"a checkpoint of it did not complete: {errors}")
    why, code = f"checkpoint incomplete: {errors}", EpochCode.CHECKPOINT_INCOMPLETE
    yield from fail_epoch(world, epoch, code, why, members=list(epoch.members), engines=True)
    return True
