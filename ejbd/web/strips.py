"""Strips above the nodes of the cluster's picture: what is open now, what is free ahead, what is planned nowhere yet.

A window counts processors of a queue, and most batch systems plan the start of a waiting job without naming its nodes.
Neither has a place among the nodes, so each stands above them on the same axis of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ejbd.api.cluster import BarKind, BarView, ClusterPicture, RoomView
from ejbd.api.models import Window
from ejbd.web.gantt import LEFT, WIDTH, Span, about, css_class, free_place, linked, within
from ejbd.wire.visible import visible

HIGH, GAP = 30.0, 6.0
MOST_QUEUES = 6
MOST_PLANNED = 60
_PLANNED_HIGH = 60.0
_LEAST = 2.0  # a few processors of many are still seen


@dataclass(frozen=True, slots=True)
class Strips:
    """What is drawn above the nodes, how high it is altogether, and how many planned jobs have no place in it."""

    svg: str
    high: float
    left_out: int


def strips(picture: ClusterPicture, windows: Sequence[Window], span: Span, top: float) -> Strips:
    """Of each queue its room and its windows, then the jobs that are planned on nodes which are not told."""
    parts: list[str] = []
    y = top
    open_now = {one.queue: one for one in windows}
    for room in [one for one in picture.rooms if one.levels][:MOST_QUEUES]:
        parts += _queue(room, open_now.get(room.queue), span, y)
        y += HIGH + GAP
    planned = [bar for bar in picture.bars if not bar.nodes and within(bar, span) is not None]
    planned.sort(key=lambda bar: (bar.kind is not BarKind.J0, not bar.mine, bar.start_s))
    if planned:
        parts += _planned(planned[:MOST_PLANNED], picture.processors, span, y)
        y += _PLANNED_HIGH + GAP
    return Strips("\n".join(parts), y - top, max(0, len(planned) - MOST_PLANNED))


def _label(words: str, y: float) -> str:
    words = visible(words)
    shown = escape(words if len(words) <= 15 else words[:14] + "…")
    return f'<text x="0" y="{y + 11:g}">{shown}<title>{escape(words)}</title></text>'


def _ground(y: float, high: float) -> str:
    return f'<rect class="strip" x="{LEFT:g}" y="{y:g}" width="{WIDTH - LEFT:g}" height="{high:g}"/>'


def _queue(room: RoomView, window: Window | None, span: Span, y: float) -> Iterator[str]:
    """Free processors over time as steps, and over them those that jobs may use now, each as long as it is open."""
    foot, whole = y + HIGH, max(1, room.total)

    def box(from_s: float, until_s: float, processors: int) -> str:
        left, right = span.x(from_s), span.x(until_s)
        high = max(_LEAST, min(1.0, processors / whole) * HIGH)
        return f"M{left:g} {foot - high:.1f}h{right - left:.1f}v{high:.1f}h-{right - left:.1f}z" if right > left else ""

    yield _label(f"free: {room.queue}", y)
    yield _ground(y, HIGH)
    ends = [*(level.from_s for level in room.levels[1:]), span.end_s]
    steps = [(level, end_s) for level, end_s in zip(room.levels, ends, strict=True) if level.free]
    drawn = "".join(box(level.from_s, end_s, level.free) for level, end_s in steps)
    if drawn:
        now = room.levels[0].free
        yield f'<path class="ahead" d="{drawn}"><title>{escape(room.queue)}: {now} processors free now</title></path>'
    if window is None:
        return
    # The widest first: a longer one of fewer processors is part of it, and stands before it.
    for slot in reversed(window.slots):
        until_s = span.end_s if slot.duration_s is None else window.at_s + slot.duration_s
        shape = box(window.at_s, until_s, slot.processors)
        if shape:
            long = "without an end" if slot.duration_s is None else f"for {slot.duration_s / 60:.0f} min"
            why = f", until {slot.why}" if slot.why else ""
            told = escape(f"window of {room.queue}: {slot.processors} processors {long}{why}")
            yield f'<path class="bar window" d="{shape}"><title>{told}</title></path>'


def _planned(bars: Sequence[BarView], processors: int, span: Span, y: float) -> Iterator[str]:
    yield _label("planned", y)
    yield _ground(y, _PLANNED_HIGH)
    taken: list[tuple[float, float, float, float]] = []
    for bar in bars:
        when = within(bar, span)
        if when is None:
            continue
        share = min(1.0, bar.processors / max(1, processors))
        top, high = free_place(taken, when, share) * _PLANNED_HIGH, max(3.0, share * _PLANNED_HIGH)
        x = span.x(when[0])
        wide = max(1.0, span.x(when[1]) - x)
        shape = f"M{x:g} {y + min(top, _PLANNED_HIGH - high):.1f}h{wide:.1f}v{high:.1f}h-{wide:.1f}z"
        drawn = f'<path class="bar {css_class(bar)}" d="{shape}"><title>{escape(about(bar))}</title></path>'
        yield linked(bar, drawn)
