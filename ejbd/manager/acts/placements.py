"""Writes epochs, and what they have in the spool."""

from __future__ import annotations

from pathlib import Path

from ejbd.manager.effects import DropCheckpoint, MakeEpochFolder, MoveEpoch, Withdraw
from ejbd.manager.facts.context import Context
from ejbd.manager.hands import orders
from ejbd.store.transitions import move_epoch


def move(ctx: Context, effect: MoveEpoch) -> None:
    move_epoch(
        ctx.session,
        effect.epoch,
        effect.state,
        ctx.now,
        reason=effect.reason,
        code=effect.code,
        setback=effect.setback,
        **(effect.data or {}),
    )


def make_folder(ctx: Context, effect: MakeEpochFolder) -> Path:
    return ctx.spool_of(effect.job_id).make_epoch(effect.job_id, effect.epoch)


def drop_checkpoint(ctx: Context, effect: DropCheckpoint) -> None:
    ctx.spool_of(effect.job_id).drop_checkpoint(effect.job_id, effect.epoch)


def withdraw(ctx: Context, effect: Withdraw) -> bool:
    return orders.withdraw(ctx.spool_of(effect.job_id), effect.job_id, effect.subjob_id)
