"""A job's timeline in characters: its phases, the processors in use, one bar a subjob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ejbd.cli.words import duration
from ejbd.wire.kinds import SubjobRole

_LABEL = 12
_STEPS = "▁▂▃▄▅▆▇█"
_LETTERS = {"wait": "W", "run": "R", "move": "M"}
_STYLES = {"W": "90", "R": "32", "M": "33"}
_BARS = {SubjobRole.PLACEHOLDER: "35", SubjobRole.SUBJOB: "36", SubjobRole.RIGID: "37"}
_OVER = ("completed", "failed", "timeout", "cancelled")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Columns to seconds."""

    start_s: float
    end_s: float
    columns: int

    def middle(self, column: int) -> float:
        return self.start_s + (column + 0.5) * (self.end_s - self.start_s) / self.columns

    def column(self, at_s: float) -> int:
        share = (at_s - self.start_s) / (self.end_s - self.start_s)
        return min(self.columns - 1, max(0, int(share * self.columns)))


def chart(timeline: dict[str, Any], width: int, *, colour: bool = False, plain: bool = False) -> list[str]:
    """The lines of the picture of a timeline (as GET .../timeline gives it), `width` columns wide.

    `plain`: ASCII only. `colour`: with the terminal's escapes, which take no room.
    """
    end_s = timeline["end_s"] if timeline["end_s"] is not None else timeline["now_s"]
    columns = max(20, min(width, 200) - _LABEL - 1)
    scale = _Scale(timeline["submit_s"], max(end_s, timeline["submit_s"] + 1.0), columns)
    lines = [_heading(timeline, end_s), "", _row("phase", _phases(timeline, scale), colour, _STYLES)]
    lines.append(_row("processors", _stairs(timeline, scale, plain), False, {}))
    shown = [s for s in timeline["subjobs"] if s["start_s"] is not None or s["state"] in ("planned", "pending")]
    for subjob in shown:
        bar = _bar(subjob, scale, end_s, plain)
        label = f"J{subjob['ordinal']} {subjob['processors']:>4}p"
        style = {"█": _BARS[subjob["role"]], "#": _BARS[subjob["role"]]}
        lines.append(_row(label, bar, colour, style))
    lines.append(" " * _LABEL + " " + _axis(scale))
    lines += _remarks(timeline)
    return lines


def _heading(timeline: dict[str, Any], end_s: float) -> str:
    held = sum(s["processors"] for s in timeline["subjobs"] if s["state"] == "running")
    text = f"job {timeline['job']}  {timeline['name'][:40]}  {timeline['state']}  {timeline['progress']:.0%} done"
    if timeline["state"] not in _OVER:
        text += f"  {held} processors for {timeline['processes']} processes"
    return f"{text}  {duration(end_s - timeline['submit_s'])} since submission"


def _row(label: str, cells: str, colour: bool, styles: dict[str, str]) -> str:
    cells = cells.rstrip()
    return f"{label:<{_LABEL}} {_painted(cells, styles) if colour else cells}"


def _painted(cells: str, styles: dict[str, str]) -> str:
    parts: list[str] = []
    last = ""
    for cell in cells:
        style = styles.get(cell, "")
        if style != last:
            parts.append(f"\033[{style}m" if style else "\033[0m")
            last = style
        parts.append(cell)
    return "".join(parts) + ("\033[0m" if last else "")


def _interval_at(timeline: dict[str, Any], at_s: float) -> dict[str, Any] | None:
    for interval in timeline["intervals"]:
        if interval["start_s"] <= at_s and (interval["end_s"] is None or at_s < interval["end_s"]):
            found: dict[str, Any] = interval
            return found
    return None


def _phases(timeline: dict[str, Any], scale: _Scale) -> str:
    cells = []
    for column in range(scale.columns):
        interval = _interval_at(timeline, scale.middle(column))
        cells.append(_LETTERS[interval["kind"]] if interval else " ")
    for interval in timeline["intervals"]:  # a move is short, and must be seen all the same
        if interval["kind"] == "move":
            cells[scale.column(interval["start_s"])] = "M"
    return "".join(cells)


def _stairs(timeline: dict[str, Any], scale: _Scale, plain: bool) -> str:
    cells = []
    for column in range(scale.columns):
        interval = _interval_at(timeline, scale.middle(column))
        used = interval["processors"] if interval else 0
        share = used / max(1, timeline["processes"])
        if used == 0:
            cells.append(" ")
        elif plain:
            cells.append(str(min(9, int(share * 9.999))))
        else:
            cells.append(_STEPS[min(7, max(0, round(share * 8) - 1))])
    return "".join(cells)


def _bar(subjob: dict[str, Any], scale: _Scale, now_s: float, plain: bool) -> str:
    full, waiting = ("#", ".") if plain else ("█", "·")
    if subjob["start_s"] is None:
        return waiting * scale.columns
    running = subjob["state"] == "running"
    end_s = now_s if running or subjob["end_s"] is None else min(subjob["end_s"], now_s)
    first, last = scale.column(subjob["start_s"]), scale.column(end_s)
    before = waiting if subjob["role"] != SubjobRole.SUBJOB else " "
    return before * first + full * (last - first + 1) + " " * (scale.columns - last - 1)


def _axis(scale: _Scale) -> str:
    cells = [" "] * scale.columns
    step = max(12, scale.columns // 5)
    for column in range(0, scale.columns, step):
        text = duration((scale.end_s - scale.start_s) * column / scale.columns)
        if column + len(text) <= scale.columns:
            cells[column : column + len(text)] = text
    return "".join(cells).rstrip()


def _remarks(timeline: dict[str, Any]) -> list[str]:
    lines = []
    since = timeline["submit_s"]
    if timeline["rigid_start_s"] is not None:
        lines.append(f"a rigid start was promised for {duration(timeline['rigid_start_s'] - since)} after submission")
    if timeline["expected_completion_s"] is not None and timeline["state"] not in _OVER:
        lines.append(f"expected to be done {duration(timeline['expected_completion_s'] - since)} after submission")
    return lines
