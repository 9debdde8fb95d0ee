"""A timeline as an SVG picture: the phases, the processors in use, and one bar a subjob."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from ejbd.api.models import SubjobView, Timeline
from ejbd.store.states import SubjobState
from ejbd.store.timeline import Phase
from ejbd.wire.kinds import SubjobRole

_WIDTH, _LEFT, _RIGHT = 960, 150, 24
_TOP, _BAND, _STAIRS, _ROW, _GAP = 58, 22, 110, 20, 16
_PHASE = {
    Phase.WAIT: ("W", "#c9ced6", "waiting"),
    Phase.RUN: ("R", "#4c9f70", "running"),
    Phase.MIGRATE: ("M", "#e0a030", "moving"),
}
_ROLE = {SubjobRole.PLACEHOLDER: "#7a6fae", SubjobRole.SUBJOB: "#3f7fb5", SubjobRole.RIGID: "#7a8594"}
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Seconds to horizontal places."""

    start_s: float
    end_s: float

    def x(self, at_s: float) -> float:
        share = (min(max(at_s, self.start_s), self.end_s) - self.start_s) / (self.end_s - self.start_s)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def svg(timeline: Timeline) -> str:
    """The picture of a timeline, as a document of its own. Names in it are escaped."""
    end_s = timeline.end_s if timeline.end_s is not None else timeline.now_s
    axis = _Axis(timeline.submit_s, max(end_s, timeline.submit_s + 1.0))
    shown = [s for s in timeline.subjobs if s.start_s is not None or s.state in _QUEUED]
    height = _TOP + _BAND + _GAP + _STAIRS + _GAP + len(shown) * _ROW + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11" role="img">',
        f"<title>Timeline of job {escape(timeline.job)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_heading(timeline),
        *_grid(axis, height),
        *_bands(timeline, axis),
        *_staircase(timeline, axis),
    ]
    top = _TOP + _BAND + _GAP + _STAIRS + _GAP
    for index, subjob in enumerate(shown):
        parts += _bar(subjob, axis, top + index * _ROW, end_s)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


_QUEUED = (SubjobState.PLANNED, SubjobState.PENDING)


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x}" y="{y}" {extra}>{escape(_printable(text))}</text>'


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)  # XML has no place for control characters


def _heading(timeline: Timeline) -> Iterator[str]:
    begun = datetime.fromtimestamp(timeline.submit_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    title = f"{timeline.job}  {timeline.name[:60]}"
    yield _text(12, 22, title, 'font-size="15" font-weight="bold"')
    facts = f"{timeline.processes} processes, {timeline.state.value}, {timeline.progress:.0%} done, submitted {begun}"
    yield _text(12, 40, facts, 'fill="#555555"')
    x = _WIDTH - 250
    for _, colour, name in _PHASE.values():
        yield f'<rect x="{x}" y="13" width="11" height="11" fill="{colour}"/>'
        yield _text(x + 15, 22, name)
        x += 80


def _grid(axis: _Axis, height: int) -> Iterator[str]:
    length = axis.end_s - axis.start_s
    step = next((s for s in _STEPS_S if length / s <= 10), math.ceil(length / 10))
    for index in range(int(length // step) + 1):
        x = axis.x(axis.start_s + index * step)
        yield f'<line x1="{x}" y1="{_TOP - 4}" x2="{x}" y2="{height - 26}" stroke="#e6e6e6"/>'
        yield _text(x, height - 12, _duration(index * step), 'text-anchor="middle" fill="#555555"')


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


def _bands(timeline: Timeline, axis: _Axis) -> Iterator[str]:
    yield _text(_LEFT - 8, _TOP + 15, "phase", 'text-anchor="end"')
    for interval in timeline.intervals:
        x, end = axis.x(interval.start_s), axis.x(_end(interval.end_s, axis))
        letter, colour, name = _PHASE[interval.kind]
        width = round(max(end - x, 0.5), 1)
        yield (
            f'<rect x="{x}" y="{_TOP}" width="{width}" height="{_BAND}" fill="{colour}">'
            f"<title>{name}, {_duration(_end(interval.end_s, axis) - interval.start_s)}, "
            f"{interval.processors} processors</title></rect>"
        )
        if width > 12:
            yield _text(round(x + width / 2, 1), _TOP + 15, letter, 'text-anchor="middle" fill="#ffffff"')


def _staircase(timeline: Timeline, axis: _Axis) -> Iterator[str]:
    top, bottom = _TOP + _BAND + _GAP, _TOP + _BAND + _GAP + _STAIRS
    most = max([timeline.processes, *(i.processors for i in timeline.intervals)])
    yield _text(_LEFT - 8, top + 10, f"{most} processors", 'text-anchor="end"')
    yield _text(_LEFT - 8, bottom, "0", 'text-anchor="end"')
    points: list[str] = []
    for interval in timeline.intervals:
        y = round(bottom - interval.processors / most * _STAIRS, 1)
        points += [f"{axis.x(interval.start_s)},{y}", f"{axis.x(_end(interval.end_s, axis))},{y}"]
    if points:
        first, last = points[0].split(",")[0], points[-1].split(",")[0]
        area = " ".join([f"{first},{bottom}", *points, f"{last},{bottom}"])
        yield f'<polygon points="{area}" fill="#4c9f70" fill-opacity="0.2"/>'
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#2f6e4c" stroke-width="1.5"/>'
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#999999"/>'
    if timeline.rigid_start_s is not None and axis.start_s <= timeline.rigid_start_s <= axis.end_s:
        x = axis.x(timeline.rigid_start_s)
        yield f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="#b03a2e" stroke-dasharray="4 3"/>'
        yield _text(x + 4, top + 10, "rigid start", 'fill="#b03a2e"')


def _bar(subjob: SubjobView, axis: _Axis, y: float, until_s: float) -> Iterator[str]:
    name = "J0" if subjob.ordinal == 0 else f"J{subjob.ordinal}"
    label = f"{name}  {subjob.processors} proc."
    yield _text(_LEFT - 8, y + 13, label, 'text-anchor="end"')
    if subjob.start_s is None:
        yield _text(_LEFT + 4, y + 13, f"{subjob.state.value} {subjob.batch_id or ''}", 'fill="#888888"')
        return
    end_s = until_s if subjob.state is SubjobState.RUNNING else _end(subjob.end_s, axis)
    x = axis.x(subjob.start_s)
    width = round(max(axis.x(end_s) - x, 1.0), 1)
    about = f"{subjob.id} {subjob.state.value} {subjob.batch_id or ''} on {','.join(subjob.nodes[:8])}"
    yield (
        f'<rect x="{x}" y="{y + 2}" width="{width}" height="{_ROW - 5}" rx="2" fill="{_ROLE[subjob.role]}">'
        f"<title>{escape(_printable(about))}</title></rect>"
    )


def _end(end_s: float | None, axis: _Axis) -> float:
    return axis.end_s if end_s is None else end_s
