"""Queues' windows of the week, as they are stored, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import QueueSettings
from ejbd.core.calendar import in_force, parse
from ejbd.manager.facts.context import Context
from ejbd.store.models import QueueOverride, QueueWindow


class ToldQueueWindow(TypedDict):
    """Settings that hold in a window of the week. `in_force`: as of the last poll."""

    when: str
    settings: dict[str, Any]
    in_force: bool
    changed_s: float
    changed_by: str


class ToldCalendar(TypedDict):
    """Windows of a queue, the last made last. `until_s`: the next edge at which settings change (None: never)."""

    time_zone: str
    windows: list[ToldQueueWindow]
    until_s: float | None


def windows_of(session: Session, queue: str | None = None) -> list[QueueWindow]:
    """Those of a queue, or all, in the order in which they were made."""
    query = select(QueueWindow).order_by(QueueWindow.id)
    return list(session.scalars(query if queue is None else query.where(QueueWindow.queue == queue)))


def outside(ctx: Context, queue: str) -> QueueSettings:
    """The settings of a queue outside all windows."""
    configured, changed = ctx.settings.queue_settings(queue), ctx.session.get(QueueOverride, queue)
    return configured.having(changed.settings) if changed else configured


def until_s(ctx: Context, queue: str, rows: Iterable[QueueWindow]) -> float | None:
    """The next edge at which the settings of a queue change, which has these windows. None: never."""
    windows = [(parse(row.when), row.settings) for row in rows]
    return in_force(outside(ctx, queue).model_dump(mode="json"), windows, moment(ctx)).until_s


def moment(ctx: Context) -> datetime:
    """Now, by the clock on the wall of the site."""
    return datetime.fromtimestamp(ctx.now, ctx.settings.zone)


def told(ctx: Context, queue: str) -> ToldCalendar:
    """The calendar of a queue."""
    rows = windows_of(ctx.session, queue)
    return {
        "time_zone": str(ctx.settings.zone),
        "windows": [
            {
                "when": row.when,
                "settings": row.settings,
                "in_force": row.in_force,
                "changed_s": row.changed_s,
                "changed_by": row.changed_by,
            }
            for row in rows
        ],
        "until_s": until_s(ctx, queue, rows),
    }
