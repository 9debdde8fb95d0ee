"""The law of an application's run times as a picture: how many runs are longer, and the walltimes that follow."""

from __future__ import annotations

from html import escape
from typing import Any

from ejbd.cli.output import printable
from ejbd.cli.show.words import duration

_ROWS = 10
_LABEL = 6
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def law_chart(found: dict[str, Any], columns: int, *, plain: bool = False) -> list[str]:
    """Lines: what is known, the survival as an area, the walltimes as marks below, the runs that were seen as dots."""
    kind = f":{found['input_class']}" if found["input_class"] else ""
    lines = [
        f"{printable(found['application'] + kind)} of {printable(found['user'])} on {found['processors']} processors: "
        f"{found['why']}"
    ]
    if found["law"] is None:
        return lines
    lines += [f"law: {found['law']}", ""]
    end = float(found["curve"][-1][0])
    wide = max(20, columns - _LABEL - 2)
    shares = [_at(found["curve"], (at + 0.5) / wide * end) for at in range(wide)]
    for row in range(_ROWS, 0, -1):
        label = f"{row / _ROWS:4.0%} |" if row % 5 == 0 else "     |"
        lines.append(label + "".join(_cell(share * _ROWS - (row - 1), plain) for share in shares).rstrip())
    lines.append("     +" + "-" * wide)
    lines.append(
        "runs  " + _marks(wide, end, [(one["run_s"], "x" if one["censored"] else "o") for one in found["seen"]])
    )
    walltimes = [(time, str((at + 1) % 10)) for at, time in enumerate(found["sequence_s"])]
    lines.append("ask   " + _marks(wide, end, walltimes))
    left, right = "0", duration(end)
    lines.append("      " + left + right.rjust(wide - len(left)))
    lines += ["the area: the share of runs that are longer; o a run that ended, x one that was cut short", ""]
    return lines


def _at(curve: list[list[float]], time_s: float) -> float:
    before = curve[0]
    for point in curve:
        if point[0] >= time_s:
            width = point[0] - before[0]
            share = (time_s - before[0]) / width if width > 0 else 1.0
            return before[1] + share * (point[1] - before[1])
        before = point
    return 0.0


def _cell(filled: float, plain: bool) -> str:
    if plain:
        return "#" if filled >= 0.5 else " "
    return _EIGHTHS[min(8, max(0, round(8 * filled)))]


def _marks(wide: int, end: float, marks: list[tuple[float, str]]) -> str:
    row = [" "] * wide
    for time, sign in marks:
        if time <= end * (1 + 1e-9):
            row[min(wide - 1, int(time / end * wide))] = sign
    return "".join(row).rstrip()


_WIDE, _HIGH, _LEFT, _TOP = 640, 260, 60, 50


def law_svg(found: dict[str, Any]) -> str:
    """The same as SVG."""
    kind = f":{found['input_class']}" if found["input_class"] else ""
    title = f"{found['application']}{kind} of {found['user']} on {found['processors']} processors: {found['why']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE + _LEFT + 30} {_HIGH + _TOP + 70}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="13">{escape(title)}</text>',
    ]
    if found["law"] is not None:
        parts += _svg_of_law(found)
    return "\n".join([*parts, "</svg>\n"])


def _svg_of_law(found: dict[str, Any]) -> list[str]:
    end = float(found["curve"][-1][0])

    def x(time_s: float) -> float:
        return _LEFT + min(1.0, time_s / end) * _WIDE

    def y(share: float) -> float:
        return _TOP + (1 - share) * _HIGH

    points = " ".join(f"{x(time):.1f},{y(share):.1f}" for time, share in found["curve"])
    parts = [
        f'<text x="{_LEFT}" y="38" fill="#555">{escape(found["law"])}</text>',
        f'<polygon points="{x(0):.1f},{y(0):.1f} {points} {x(end):.1f},{y(0):.1f}" fill="#cfe2f3"/>',
        f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="2"/>',
        f'<path d="M{_LEFT} {_TOP}V{_TOP + _HIGH}H{_LEFT + _WIDE}" fill="none" stroke="black"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<text x="{_LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for at, time in enumerate(found["sequence_s"], 1):
        parts.append(
            f'<path d="M{x(time):.1f} {_TOP}V{_TOP + _HIGH}" stroke="#c0392b" stroke-dasharray="4 3"/>'
            f'<text x="{x(time):.1f}" y="{_TOP + _HIGH + 34}" text-anchor="middle" fill="#c0392b">{at}: '
            f"{duration(time)}</text>"
        )
    for one in found["seen"]:
        if one["run_s"] <= end:
            fill = "none" if one["censored"] else "#333"
            parts.append(
                f'<circle cx="{x(one["run_s"]):.1f}" cy="{_TOP + _HIGH + 10}" r="2.5" fill="{fill}" stroke="#333"/>'
            )
    parts.append(
        f'<text x="{_LEFT}" y="{_TOP + _HIGH + 56}" fill="#555">share of runs that are longer; dashed: walltimes to '
        "ask for; dots: runs (open: cut short)</text>"
    )
    return parts
