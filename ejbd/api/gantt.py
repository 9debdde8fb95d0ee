"""A timeline as an SVG picture: the phases, the processors in use, one bar a subjob; what is planned beside what was.

What is planned is hatched, on a paler ground and behind the line that says "now".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from ejbd.api.models import SubjobView, Timeline
from ejbd.manager.facts.room.outlook import PlannedKind
from ejbd.store.states import SubjobState
from ejbd.store.timeline import Phase
from ejbd.wire.kinds import SubjobRole
from ejbd.wire.visible import visible

_WIDTH, _LEFT, _RIGHT = 960, 150, 24
_TOP, _BAND, _STAIRS, _ROW, _GAP = 74, 22, 110, 20, 16
_MOST_BARS = 40
_OPEN_SHARE = 0.08  # of the picture, for what is planned without an end
_PHASE = {
    Phase.WAIT: ("W", "#c9ced6", "waiting"),
    Phase.RUN: ("R", "#4c9f70", "running"),
    Phase.MOVE: ("M", "#e0a030", "starting or moving"),
}
_PLANNED = {
    PlannedKind.WAIT: ("w", "#c9ced6", "waits"),
    PlannedKind.RUN: ("r", "#4c9f70", "runs"),
    PlannedKind.MOVE: ("m", "#e0a030", "starts or moves"),
    PlannedKind.SUSPENDED: ("s", "#8fa3bf", "is suspended, its work kept"),
    PlannedKind.CUT_OFF: ("c", "#b85450", "is cut off: its processors end before it is done"),
}
_ROLE = {
    SubjobRole.PLACEHOLDER: "#7a6fae",
    SubjobRole.SUBJOB: "#3f7fb5",
    SubjobRole.RIGID: "#7a8594",
    SubjobRole.STANDBY: "#b9c0ca",
    SubjobRole.ASIDE: "#b9c0ca",
}
_QUEUED = (SubjobState.PLANNED, SubjobState.PENDING)
_HALO = 'stroke="#ffffff" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'  # words over lines and stripes
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Seconds to horizontal places."""

    start_s: float
    end_s: float

    def x(self, at_s: float) -> float:
        share = (min(max(at_s, self.start_s), self.end_s) - self.start_s) / (self.end_s - self.start_s)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What bands and the staircase draw, of what was or is planned."""

    start_s: float
    end_s: float
    processors: int
    letter: str
    colour: str
    about: str
    note: str = ""


def svg(timeline: Timeline) -> str:
    """The picture of a timeline, as a document of its own. Names in it are escaped."""
    axis = _axis(timeline)
    past, planned = _past(timeline, axis), _planned(timeline, axis)
    until_s = axis.end_s if timeline.end_s is not None else timeline.now_s
    shown = [s for s in timeline.subjobs if s.start_s is not None or s.state in _QUEUED]
    left_out = max(0, len(shown) - _MOST_BARS)
    if left_out:  # the first is J0; the others are in the order in which they were asked for
        shown = [shown[0], *shown[1 + left_out :]]
    height = _TOP + _BAND + _GAP + _STAIRS + _GAP + (len(shown) + bool(left_out)) * _ROW + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11" role="img">',
        f"<title>Timeline of job {escape(timeline.job)}</title>",
        *_hatches(),
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_heading(timeline, bool(planned)),
        *_grid(axis, height),
        *_bands(past, planned, axis),
        *_staircase(timeline, axis, past, planned),
    ]
    top = _TOP + _BAND + _GAP + _STAIRS + _GAP
    if planned:
        parts += _now(axis.x(timeline.now_s), height)
    if left_out:
        words = f"{left_out} earlier batch jobs are not drawn"
        parts.append(_text(_LEFT + 2, top + len(shown) * _ROW + 13, words, 'fill="#777777"'))
    for index, subjob in enumerate(shown):
        parts += _bar(subjob, axis, top + index * _ROW, until_s, bool(planned))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _axis(timeline: Timeline) -> _Axis:
    """From the submission to the end; of a job that goes on, to the end of what is planned."""
    end_s = timeline.end_s if timeline.end_s is not None else timeline.now_s
    if timeline.planned:
        last = timeline.planned[-1]
        end_s = max(end_s, last.start_s if last.end_s is None else last.end_s)
        if last.end_s is None:
            end_s += max(1.0, (end_s - timeline.submit_s) * _OPEN_SHARE)
    return _Axis(timeline.submit_s, max(end_s, timeline.submit_s + 1.0))


def _past(timeline: Timeline, axis: _Axis) -> list[_Stretch]:
    found = []
    until_s = axis.end_s if timeline.end_s is not None else timeline.now_s
    for interval in timeline.intervals:
        letter, colour, name = _PHASE[interval.kind]
        end_s = until_s if interval.end_s is None else interval.end_s
        about = f"{name}, {_duration(end_s - interval.start_s)}, {interval.processors} processors"
        found.append(_Stretch(interval.start_s, end_s, interval.processors, letter, colour, about))
    return found


def _planned(timeline: Timeline, axis: _Axis) -> list[_Stretch]:
    found = []
    for interval in timeline.planned:
        letter, colour, name = _PLANNED[interval.kind]
        words = [f"planned: {name}"]
        words.append("without an end" if interval.end_s is None else _duration(interval.end_s - interval.start_s))
        if interval.processors:
            words.append(f"{interval.processors} processors" + (" of J0" if interval.on_placeholder else ""))
        if interval.degree > 1:
            words.append(f"degree {interval.degree}")
        end_s = axis.end_s if interval.end_s is None else interval.end_s
        note = f"{interval.processors} proc., degree {interval.degree}" if interval.degree else ""
        about = ", ".join(words)
        found.append(_Stretch(interval.start_s, end_s, interval.processors, letter, colour, about, note))
    return found


def _hatches() -> Iterator[str]:
    """Stripes on a paler ground, one pattern for each colour."""
    yield "<defs>"
    for colour in dict.fromkeys([*(colour for _, colour, _ in _PLANNED.values()), *_ROLE.values()]):
        yield (
            f'<pattern id="{_hatch(colour)}" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="#ffffff"/>'
            f'<rect width="6" height="6" fill="{colour}" fill-opacity="0.2"/>'
            f'<rect width="2" height="6" fill="{colour}"/></pattern>'
        )
    yield "</defs>"


def _hatch(colour: str) -> str:
    return f"planned-{colour.removeprefix('#')}"


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x}" y="{y}" {extra}>{escape(visible(text))}</text>'


def _heading(timeline: Timeline, planned: bool) -> Iterator[str]:
    begun = datetime.fromtimestamp(timeline.submit_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    title = f"{timeline.job}  {timeline.name[:60]}"
    yield _text(12, 22, title, 'font-size="15" font-weight="bold"')
    facts = f"{timeline.processes} processes, {timeline.state.value}, {timeline.progress:.0%} done, submitted {begun}"
    yield _text(12, 40, facts, 'fill="#555555"')
    legend = [(colour, name) for _, colour, name in _PHASE.values()]
    for kind, name in ((PlannedKind.SUSPENDED, "suspended"), (PlannedKind.CUT_OFF, "cut off")):
        if any(interval.kind is kind for interval in timeline.planned):
            legend.append((_PLANNED[kind][1], name))
    if planned:
        legend.append((f"url(#{_hatch(_PLANNED[PlannedKind.RUN][1])})", "hatched: planned"))
    x = _WIDTH - _RIGHT - sum(30 + 6 * len(name) for _, name in legend)
    for fill, name in legend:
        yield f'<rect x="{x}" y="13" width="11" height="11" fill="{fill}"/>'
        yield _text(x + 15, 22, name)
        x += 30 + 6 * len(name)


def _grid(axis: _Axis, height: int) -> Iterator[str]:
    length = axis.end_s - axis.start_s
    step = next((s for s in _STEPS_S if length / s <= 10), math.ceil(length / 10))
    for index in range(int(length // step) + 1):
        x = axis.x(axis.start_s + index * step)
        yield f'<line x1="{x}" y1="{_TOP - 4}" x2="{x}" y2="{height - 26}" stroke="#e6e6e6"/>'
        yield _text(x, height - 12, _duration(index * step), 'text-anchor="middle" fill="#555555"')


def _now(x: float, height: int) -> Iterator[str]:
    yield f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{height - 26}" stroke="#222222" stroke-width="1.5"/>'
    anchor = "end" if x > _WIDTH - 60 else "middle"
    yield _text(x, _TOP - 9, "now", f'text-anchor="{anchor}" fill="#222222"')


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


def _bands(past: Sequence[_Stretch], planned: Sequence[_Stretch], axis: _Axis) -> Iterator[str]:
    yield _text(_LEFT - 8, _TOP + 15, "phase", 'text-anchor="end"')
    for stretches, is_planned in ((past, False), (planned, True)):
        for stretch in stretches:
            x, end = axis.x(stretch.start_s), axis.x(stretch.end_s)
            width = round(max(end - x, 0.5), 1)
            fill = f"url(#{_hatch(stretch.colour)})" if is_planned else stretch.colour
            yield (
                f'<rect x="{x}" y="{_TOP}" width="{width}" height="{_BAND}" fill="{fill}">'
                f"<title>{stretch.about}</title></rect>"
            )
            if width > 12:
                look = f'fill="#222222" {_HALO}' if is_planned else 'fill="#ffffff"'
                yield _text(round(x + width / 2, 1), _TOP + 15, stretch.letter, f'text-anchor="middle" {look}')


def _staircase(timeline: Timeline, axis: _Axis, past: Sequence[_Stretch], planned: Sequence[_Stretch]) -> Iterator[str]:
    top, bottom = _TOP + _BAND + _GAP, _TOP + _BAND + _GAP + _STAIRS
    most = max([timeline.processes, *(stretch.processors for stretch in (*past, *planned))])
    yield _text(_LEFT - 8, top + 10, f"{most} processors", 'text-anchor="end"')
    yield _text(_LEFT - 8, bottom, "0", 'text-anchor="end"')
    hatch = f"url(#{_hatch(_PHASE[Phase.RUN][1])})"
    for stretches, fill, line in (
        (past, 'fill="#4c9f70" fill-opacity="0.2"', 'stroke="#2f6e4c" stroke-width="1.5"'),
        (planned, f'fill="{hatch}" fill-opacity="0.45"', 'stroke="#2f6e4c" stroke-width="1.5" stroke-dasharray="5 3"'),
    ):
        points: list[str] = []
        for stretch in stretches:
            y = round(bottom - stretch.processors / most * _STAIRS, 1)
            points += [f"{axis.x(stretch.start_s)},{y}", f"{axis.x(stretch.end_s)},{y}"]
        if points:
            first, last = points[0].split(",")[0], points[-1].split(",")[0]
            area = " ".join([f"{first},{bottom}", *points, f"{last},{bottom}"])
            yield f'<polygon points="{area}" {fill}/>'
            yield f'<polyline points="{" ".join(points)}" fill="none" {line}/>'
    for stretch in planned:
        x, end = axis.x(stretch.start_s), axis.x(stretch.end_s)
        if end - x > 7 * len(stretch.note) > 0:
            yield _text(round((x + end) / 2, 1), bottom - 5, stretch.note, f'text-anchor="middle" {_HALO}')
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#999999"/>'
    if timeline.rigid_start_s is not None and axis.start_s <= timeline.rigid_start_s <= axis.end_s:
        yield from _mark(axis.x(timeline.rigid_start_s), top, bottom, "rigid start", "#b03a2e")


def _mark(x: float, top: float, bottom: float, words: str, colour: str) -> Iterator[str]:
    """A dashed line with words beside it, on the side that has room."""
    yield f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{colour}" stroke-dasharray="4 3"/>'
    left = x > _WIDTH - 90
    yield _text(
        x - 4 if left else x + 4, top + 10, words, f'text-anchor="{"end" if left else "start"}" fill="{colour}"'
    )


def _bar(subjob: SubjobView, axis: _Axis, y: float, until_s: float, planned: bool) -> Iterator[str]:
    name = "J0" if subjob.ordinal == 0 else f"J{subjob.ordinal}"
    label = f"{name}  {subjob.processors} proc."
    yield _text(_LEFT - 8, y + 13, label, 'text-anchor="end"')
    where = f"{subjob.batch_id or ''} on {','.join(subjob.nodes[:8])}" if subjob.nodes else subjob.batch_id or ""
    about = escape(visible(f"{subjob.id} {subjob.state.value} {where}"))
    colour = _ROLE[subjob.role]
    running = subjob.state is SubjobState.RUNNING
    if subjob.start_s is None:
        yield _text(_LEFT + 4, y + 13, f"{subjob.state.value} {subjob.batch_id or ''}", f'fill="#777777" {_HALO}')
    else:
        end_s = until_s if running or subjob.end_s is None else subjob.end_s
        x = axis.x(subjob.start_s)
        width = round(max(axis.x(end_s) - x, 1.0), 1)
        yield _box(x, y, width, f'fill="{colour}"', about)
    if not planned:
        return
    if running:
        start_s, end = until_s, subjob.end_s
    elif subjob.start_s is None and subjob.planned_start_s is not None:
        start_s = max(until_s, subjob.planned_start_s)
        end = start_s + subjob.walltime_s
    else:
        return
    if start_s >= axis.end_s:
        words = f"expected {_duration(start_s - until_s)} from now"
        yield _text(_WIDTH - _RIGHT - 4, y + 13, words, 'text-anchor="end" fill="#888888"')
    elif end is None or end > start_s:
        x = axis.x(start_s)
        width = round(max(axis.x(axis.end_s if end is None else end) - x, 1.0), 1)
        look = f'fill="url(#{_hatch(colour)})" fill-opacity="0.6" stroke="{colour}" stroke-dasharray="3 2"'
        yield _box(x, y, width, look, f"{about}: may be held until its limit" if running else f"{about}: expected")


def _box(x: float, y: float, width: float, look: str, about: str) -> str:
    return f'<rect x="{x}" y="{y + 2}" width="{width}" height="{_ROW - 5}" rx="2" {look}><title>{about}</title></rect>'
