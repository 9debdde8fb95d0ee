"""What is told of the queues, and the change of their settings at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select

from ejbd.config import QueueSettings, settings_model
from ejbd.core.room.windows import why_they_end, windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchState, ClusterView
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Effects
from ejbd.manager.facts import calendars
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.promises import Promises
from ejbd.manager.facts.queues import pauses_of
from ejbd.manager.rules.queues import calendars as queue_calendars
from ejbd.manager.submission.admission import queue_allows
from ejbd.manager.submission.told import ToldClosed, ToldQueue, ToldSlot, ToldWindow
from ejbd.plugins.policies import queue_policies
from ejbd.store.models import QueueOverride
from ejbd.store.transitions import QUEUES_TOPIC, add_event, wake
from ejbd.wire.hostlists import fold
from ejbd.wire.kinds import EventKind


def queues(ctx: Context, view: ClusterView) -> list[ToldQueue]:
    """Every queue with its settings, how many wait and run, and whether a job as wide as it is made elastic now."""
    overridden = {row.name: sorted(row.settings) for row in ctx.session.scalars(select(QueueOverride))}
    return [
        {
            "name": q.name,
            "up": q.up,
            "settings": ctx.queue_settings(q.name).model_dump(mode="json"),
            "overridden": overridden.get(q.name, []),
            "waiting": sum(1 for j in view.jobs if j.queue in view.names_of(q.name) and j.state is BatchState.PENDING),
            "running": sum(1 for j in view.jobs if j.queue in view.names_of(q.name) and j.state is BatchState.RUNNING),
            "elastic_now": queue_allows(ctx, q.name, q.total_processors)[0],
            "paused": pauses_of(ctx.session, q.name, default=q.default),
            "calendar": calendars.told(ctx, q.name),
        }
        for q in view.queues
    ]


def windows_of(view: ClusterView, queue: str | None, promises: Promises) -> list[ToldWindow]:
    """The slots that could be used as of the view, of one queue or all, and the job that their room is promised to.

    Raises EjbError (NOT_FOUND).
    """
    if queue is not None:
        _refuse_unknown(view, queue)
    found: list[ToldWindow] = []
    for q in view.queues:
        if queue is not None and q.name != queue:
            continue
        slots = windows(view, q.name, view.time_s).slots()
        nodes = [n for n in view.nodes if q.name in n.queues and n.usable]
        kept = promises.kept_for(view, q.name)
        found.append(
            {
                "queue": q.name,
                "at_s": view.time_s,
                "slots": told_slots(view, q.name, slots),
                "closed": _closed(view, {n.name for n in nodes}),
                "free": sum(n.free for n in nodes),
                "total": q.total_processors,
                "by": view.windows_by,
                "blind": view.blind,
                "kept_for": {"job": kept.to, "user": kept.who} if kept is not None else None,
            }
        )
    return found


def _closed(view: ClusterView, nodes: set[str]) -> list[ToldClosed]:
    """What keeps nodes of a queue from being used now, though processors of them may be idle."""
    return [
        {
            "what": one.what,
            "name": one.name,
            "nodes": fold(nodes.intersection(one.nodes)),
            "until_s": None if one.end_s == UNLIMITED else one.end_s,
        }
        for one in view.site_reservations
        if one.ends_windows_s(view.time_s) == view.time_s and nodes.intersection(one.nodes)
    ]


def told_slots(view: ClusterView, queue: str, slots: Sequence[BackfillSlot]) -> list[ToldSlot]:
    """Slots as plain values, each with what its end is."""
    return [
        {"processors": s.processors, "duration_s": None if s.duration_s == UNLIMITED else s.duration_s, "why": why}
        for s, why in zip(slots, why_they_end(view, queue, slots), strict=True)
    ]


def set_queue(ctx: Context, name: str, changes: dict[str, Any], by: str) -> dict[str, Any]:
    """Change settings of a queue at run time. A value of None goes back to what the TOML file says."""
    if ctx.view is not None:
        _refuse_unknown(ctx.view, name)
    wake(ctx.session, QUEUES_TOPIC)
    row = ctx.session.get(QueueOverride, name)
    configured = ctx.settings.queue_settings(name)
    settings = configured.renewed(row.settings) if row else {}
    for key, value in changes.items():
        if value is None:
            settings.pop(key, None)
        else:
            settings[key] = value
    checked = _checked(configured, settings, set(changes), f"queue {name}")
    if row is None:
        row = QueueOverride(name=name, settings=checked, changed_s=ctx.now, changed_by=by)
        ctx.session.add(row)
    else:
        row.settings, row.changed_s, row.changed_by = checked, ctx.now, by
    ctx.session.flush()
    add_event(ctx.session, EventKind.QUEUE_CHANGED, ctx.now, queue=name, by=by, changes=changes)
    return configured.having(checked).model_dump(mode="json")


def set_window(ctx: Context, name: str, when: str, changes: dict[str, Any], by: str) -> Effects[None]:
    """Have settings of a queue hold in a window of the week. None takes one out of it.

    Raises EjbError (INVALID, NOT_FOUND, CONFLICT).
    """
    if ctx.view is not None:
        _refuse_unknown(ctx.view, name)
    window = queue_calendars.read(when)
    row = next((row for row in calendars.windows_of(ctx.session, name) if row.when == str(window)), None)
    wanted = queue_calendars.of_window(row, changes)
    checked = _checked(calendars.outside(ctx, name), wanted, set(changes), f"queue {name}")
    yield from queue_calendars.put(ctx, name, window, checked, changes, by)


def clear_windows(ctx: Context, name: str, when: str | None, by: str) -> Effects[None]:
    """Take out a window of a queue, or all of them. Raises EjbError (INVALID, NOT_FOUND)."""
    if ctx.view is not None:
        _refuse_unknown(ctx.view, name)
    yield from queue_calendars.clear(ctx, name, queue_calendars.read(when) if when is not None else None, by)


def _refuse_unknown(view: ClusterView, queue: str) -> None:
    if view.queue(queue) is None:
        names = ", ".join(q.name for q in view.queues)
        raise EjbError(Code.NOT_FOUND, f"there is no queue {queue!r}", hint=f"the queues are: {names}")


def _checked(configured: QueueSettings, settings: dict[str, Any], said: set[str], where: str) -> dict[str, Any]:
    """Settings that were changed at run time, checked against the policy that the queue has with them.

    What is not `said` now and belongs to another policy is left out.
    """
    policy = settings.get("policy", configured.policy)
    known = settings_model(policy).model_fields if policy in queue_policies() else settings
    settings = {key: value for key, value in settings.items() if key in known or key in said}
    try:
        found = QueueSettings(**{**settings, "policy": policy})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        what = f"{key}: {first['msg']}" if key else first["msg"]
        hint = "settings: " + ", ".join(known)
        raise EjbError(Code.INVALID, what, where=where, hint=hint) from None
    return found.model_dump(mode="json", include=set(settings))
