"""Ranks that end: by themselves, in a checkpoint, or too early; and what that is for their launch."""

from __future__ import annotations

import signal

from ejbd.manager.effects import (
    Effects,
    Flush,
    MoveEpoch,
    NoteDeaths,
    Rate,
    StopRanks,
    note,
    tell,
)
from ejbd.manager.facts.deaths import launch_code
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing.checkpointing import DMTCP_GAVE_UP
from ejbd.manager.facts.placing.launchtime import came_apart, came_up_after_s
from ejbd.manager.facts.times import work_now
from ejbd.manager.rules.placements import movability
from ejbd.manager.rules.placements.generations import (
    FAILED_RESTART_S,
    coordinator_lost,
    is_proved,
    restored_for_s,
)
from ejbd.manager.rules.placements.setbacks import end_if_time_is_up, fail_epoch
from ejbd.store.models import Epoch, Launch
from ejbd.store.states import EpochState
from ejbd.wire.kinds import EpochCode, EventKind, OperationKind

CHECKPOINTED = 85  # the exit code by which a rank says that its state is written
BROKEN = frozenset(  # what ends a process where its memory or descriptors are not what they were
    128 + number
    for number in (
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGSYS,
    )
)
KILLED = 128 + signal.SIGKILL  # so a worker of an older version tells of ranks that it has ended itself


def ranks_over(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    """End the launch when all ranks have ended, or as soon as one has failed without which the others do not go on."""
    ctx = world.ctx
    codes = {int(rank): int(code) for rank, code in epoch.exits.items()}
    launch = world.launch
    asked = bool(world.operations(OperationKind.CHECKPOINT, epoch=epoch.number))
    if moving.runs_under(world, epoch) == "profile" and any(s.warned for s in world.open_subjobs):
        asked = True  # the batch system's TERM tells it to stop as well
    if asked and CHECKPOINTED in codes.values() and all(code in (0, CHECKPOINTED) for code in codes.values()):
        return (yield from late_checkpoint(world, epoch, list(codes.values())))
    bad = [(rank, code) for rank, code in codes.items() if code]  # in the order in which they were told
    if bad and (yield from end_if_time_is_up(world, epoch.members, world.told_s)):
        return True
    if bad and _warned_of(world, epoch, bad):
        rank, code = bad[0]
        why = f"rank {rank} ended with code {code} after the batch system's warning"
        yield from fail_epoch(world, epoch, EpochCode.WARNED, why, members=_not_warned(world, epoch), theirs=True)
        return True
    if bad:
        rank, code = bad[0]
        since = ctx.now - (epoch.running_s or ctx.now)
        dmtcp = moving.runs_under(world, epoch) == "dmtcp"
        lost = dmtcp and coordinator_lost(world, epoch)
        within_s = FAILED_RESTART_S if code == DMTCP_GAVE_UP else restored_for_s(world)
        theirs = dmtcp and all(_is_own(code) for _, code in bad)
        if epoch.restart_from is not None and since < within_s and not lost and not theirs:
            why = f"rank {rank} ended with code {code} right after the restart"
            yield from fail_epoch(world, epoch, EpochCode.RIGHT_AFTER_RESTART, why, engines=True)
            return True
        if code == DMTCP_GAVE_UP and dmtcp:
            # Not the program's doing: its coordinator died, or one of DMTCP's own assertions failed.
            if not lost:
                yield from movability.gave_up(world, epoch, f"DMTCP gave it up (code {code})")
            why = f"DMTCP gave rank {rank} up (code {code})"
            yield from fail_epoch(
                world, epoch, EpochCode.ENGINE_GAVE_UP, why, members=list(epoch.members), engines=True
            )
            return True
        alone = go_on_alone(world, epoch)
        if alone and len(codes) < epoch.size:
            return False
        if came_apart(world, epoch):
            late_s = came_up_after_s(world, epoch)
            why = f"rank {rank} ended with code {code}, in a launch that came up everywhere after {late_s:.0f} s only"
            yield from fail_epoch(world, epoch, EpochCode.CAME_APART, why, members=list(epoch.members))
            return True
        yield NoteDeaths(epoch, bad)
        if len(codes) < epoch.size:
            yield StopRanks(epoch)
        moved = f", {since:.0f} s after it was moved" if epoch.restart_from is not None and since < within_s else ""
        why = f"rank {rank} ended with code {code}{moved}"
        if moving.is_beginning(world, epoch):
            why += ", in its first seconds under DMTCP (where it runs alone, `--engine none` is without it)"
        yield MoveEpoch(epoch, EpochState.FAILED, reason=why, code=EpochCode.RANK_FAILED)
        code = max(launch_code(world, epoch, *each) for each in (bad if alone else bad[:1]))
    elif len(codes) == epoch.size:
        code = 0
        yield MoveEpoch(epoch, EpochState.ENDED)
    else:
        return False
    yield Rate(world.job, 0.0)
    if launch is not None:
        yield note(launch, exit_code=code)
    return True


def stands_still(world: JobWorld, number: int, rank: int, seconds: float) -> Effects[None]:
    """A rank of the live placement `number` hangs since its restart: back to the checkpoint before, once a job.

    One that stands still only later was restored well, and its wait may be the program's own: that is only told.
    """
    epoch, told = world.live_epoch, world.count_events(EventKind.RANK_STUCK)
    live = (EpochState.RUNNING, EpochState.STOPPING)  # what hangs may have been asked for a checkpoint already
    if epoch is None or epoch.number != number or epoch.state not in live or epoch.restart_from is None:
        return
    yield tell(EventKind.RANK_STUCK, job_id=world.job.id, epoch=number, rank=rank, seconds=seconds)
    if not told and not is_proved(world, epoch):
        why = f"rank {rank} stood still for {seconds:.0f} s right after the restart"
        yield from fail_epoch(world, epoch, EpochCode.RIGHT_AFTER_RESTART, why, engines=True)


def go_on_alone(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the ranks are waited for when one of them has failed. Those of an MPI would wait for it themselves: where
    that cannot be seen in the program, its wire-up ends them."""
    if world.launch is None or world.launch.together:
        return False
    told = [operation.payload for operation in world.operations(OperationKind.LAUNCH, epoch=epoch.number)]
    return not any(payload.get("launcher") or (payload.get("mpi") or {}).get("sure") for payload in told)


def _is_own(code: int) -> bool:
    """Whether a rank under DMTCP that ended so has ended by itself: neither DMTCP nor what it brought back says so."""
    return code not in (0, CHECKPOINTED, DMTCP_GAVE_UP) and code not in BROKEN


def failed_meanwhile(world: JobWorld, epoch: Epoch) -> bool:
    """Whether a rank without which the others do not go on failed by itself, while a checkpoint of them was made."""
    if moving.runs_under(world, epoch) != "dmtcp" or go_on_alone(world, epoch):
        return False
    codes = [int(code) for code in epoch.exits.values() if code]
    return bool(codes) and all(_is_own(code) and code != KILLED for code in codes)


def _warned_of(world: JobWorld, epoch: Epoch, bad: list[tuple[int, int]]) -> bool:
    """Whether one of these ranks was where the batch system had warned: it may have heard that itself."""
    warned = {s.id for s in world.open_subjobs if s.warned and not s.releasing}
    homes = {worker.id: worker.subjob_id for worker in world.workers}
    on_them = {seat.rank for seat in epoch.placement if homes.get(seat.worker) in warned}
    return bool(warned) and any(rank in on_them for rank, _ in bad)


def _not_warned(world: JobWorld, epoch: Epoch) -> list[str]:
    return [s.id for s in world.open_subjobs if s.id in epoch.members and not s.warned]


def late_checkpoint(world: JobWorld, epoch: Epoch, codes: list[int]) -> Effects[bool]:
    """A checkpoint that had been given up came after all: the ranks have stopped, and are started again."""
    if len(codes) < epoch.size:
        return False
    if not all(code == CHECKPOINTED for code in codes):
        yield from fail_epoch(
            world,
            epoch,
            EpochCode.LATE_CHECKPOINT,
            "a late checkpoint met ranks that had ended",
            members=list(epoch.members),
        )
        return True
    ctx = world.ctx
    yield note(epoch, work_at_stop_s=work_now(world.job, ctx.now))
    yield Rate(world.job, 0.0)
    yield MoveEpoch(epoch, EpochState.STOPPING, reason="a late checkpoint", code=EpochCode.LATE_CHECKPOINT)
    yield MoveEpoch(epoch, EpochState.STOPPED)
    return True


def stop_launch(world: JobWorld, launch: Launch, code: int, why: str) -> Effects[None]:
    """End the launch that is under way with `code`, whatever its ranks are doing."""
    epoch = world.live_epoch
    if epoch is not None:
        yield StopRanks(epoch)
        yield MoveEpoch(epoch, EpochState.FAILED, reason=why, code=EpochCode.GIVEN_UP)
    yield Rate(world.job, 0.0)
    yield note(launch, exit_code=code)
    yield Flush()
