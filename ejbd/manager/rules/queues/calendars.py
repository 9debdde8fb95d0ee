"""A queue's settings by windows of the week: set, cleared, and brought into force at the first poll behind an edge.

What is in force is stored with the windows. So a daemon that was away over an edge tells of it once, when it is back.
One that was away over a whole window finds nothing changed, and tells nothing.
"""

from __future__ import annotations

from typing import Any

from ejbd.core.calendar import HINT, WeekWindow, parse
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Delete, Effects, Flush, Insert, Wake, note, tell
from ejbd.manager.facts.calendars import moment, until_s, windows_of
from ejbd.manager.facts.context import Context
from ejbd.store.models import QueueWindow
from ejbd.store.transitions import QUEUES_TOPIC
from ejbd.wire.kinds import EventKind

MOST = 50  # windows of one queue


def read(text: str) -> WeekWindow:
    """Raises EjbError with what is wrong with it."""
    try:
        return parse(text)
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="when", hint=HINT) from None


def of_window(row: QueueWindow | None, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a window with these changes; None takes one out. Raises EjbError for what no window may have."""
    if "policy" in changes:
        why = "a window cannot choose another policy: a queue has one all week"
        raise EjbError(Code.INVALID, why, where="policy", hint="leave --when out")
    both = {**(row.settings if row else {}), **changes}
    return {key: value for key, value in both.items() if value is not None}


def put(
    ctx: Context, queue: str, window: WeekWindow, settings: dict[str, Any], changes: dict[str, Any], by: str
) -> Effects[None]:
    """Have these settings hold in a window of a queue; none: it has that window no more."""
    rows = windows_of(ctx.session, queue)
    row = next((one for one in rows if one.when == str(window)), None)
    if row is None and not settings:
        raise _none(queue, str(window))
    if row is None and len(rows) >= MOST:
        why = f"queue {queue} has {MOST} windows, and cannot have more"
        raise EjbError(Code.CONFLICT, why, hint=f"`ejb queue clear {queue}` takes them out")
    if row is None:
        given = {"queue": queue, "when": str(window), "settings": settings, "in_force": window.holds(moment(ctx))}
        row = QueueWindow(**given, changed_s=ctx.now, changed_by=by)
        yield Insert(row)
    elif settings:
        yield note(row, settings=settings, in_force=window.holds(moment(ctx)), changed_s=ctx.now, changed_by=by)
    else:
        yield Delete(row)
    yield Flush()
    yield Wake((QUEUES_TOPIC,))
    yield tell(EventKind.QUEUE_CHANGED, queue=queue, by=by, changes=changes, when=str(window))


def clear(ctx: Context, queue: str, window: WeekWindow | None, by: str) -> Effects[None]:
    """Take out a window of a queue, or all. Raises EjbError (NOT_FOUND) where there is none."""
    rows = [row for row in windows_of(ctx.session, queue) if window is None or row.when == str(window)]
    if not rows:
        raise _none(queue, "" if window is None else str(window))
    for row in rows:
        yield Delete(row)
        changes = dict.fromkeys(row.settings)
        yield tell(EventKind.QUEUE_CHANGED, queue=queue, by=by, changes=changes, when=row.when)
    yield Flush()
    yield Wake((QUEUES_TOPIC,))


def turn(ctx: Context) -> Effects[None]:
    """Bring into force what the clock says."""
    rows = windows_of(ctx.session)
    now = moment(ctx) if rows else None
    turned: dict[str, list[QueueWindow]] = {}
    for row in rows:
        if now is not None and row.in_force is not (held := parse(row.when).holds(now)):
            yield note(row, in_force=held)
            turned.setdefault(row.queue, []).append(row)
    if not turned:
        return
    yield Flush()
    yield Wake((QUEUES_TOPIC,))
    ctx.read_queues_again()
    for queue, changed in turned.items():
        yield tell(
            EventKind.QUEUE_WINDOW,
            queue=queue,
            begun=[row.when for row in changed if row.in_force],
            ended=[row.when for row in changed if not row.in_force],
            settings=ctx.queue_settings(queue).model_dump(mode="json", include=_keys(rows, queue)),
            until_s=until_s(ctx, queue, [row for row in rows if row.queue == queue]),
        )


def _keys(rows: list[QueueWindow], queue: str) -> set[str]:
    """The settings that any window of the queue has."""
    return {key for row in rows if row.queue == queue for key in row.settings}


def _none(queue: str, when: str) -> EjbError:
    what = f"queue {queue} has no window {when}" if when else f"queue {queue} has no windows"
    return EjbError(Code.NOT_FOUND, what, hint=f"`ejb queue show {queue}` lists them")
