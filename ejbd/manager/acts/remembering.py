"""Changes what the daemon keeps in memory. It belongs to the writer, and this runs on the writer's thread."""

from __future__ import annotations

from ejbd.manager.effects import Keep, KeepIn, KeepOnly, Offered, Promise
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.memory import RECENT_WORKERS


def promise(ctx: Context, effect: Promise) -> None:
    given = effect.giver, effect.subjobs, effect.held
    ctx.promises.make(effect.to, effect.user, *given, ctx.now, effect.coming_s)


def keep(ctx: Context, effect: Keep) -> None:
    for name, value in effect.values.items():
        setattr(ctx.memory, name, value)


def keep_in(ctx: Context, effect: KeepIn) -> None:
    getattr(ctx.memory, effect.table)[effect.key] = effect.value


def keep_only(ctx: Context, effect: KeepOnly) -> None:
    table = getattr(ctx.memory, effect.table)
    for key in [key for key in list(table) if key not in effect.keys]:
        table.pop(key, None)


def offered(ctx: Context, effect: Offered) -> None:
    latest = (*ctx.memory.offers.get(effect.user, ()), (effect.node, dict(effect.offer)))
    ctx.memory.offers[effect.user] = latest[-RECENT_WORKERS:]
