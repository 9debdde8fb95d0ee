"""A job's timeline in characters: its phases, the processors in use, one bar a subjob; what is planned behind "now".

What has been is in capitals and full blocks. What is planned comes behind a line, in small letters and light blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.cli.show.words import duration
from ejbd.wire.kinds import SubjobRole

_LABEL = 12
_STEPS = "▁▂▃▄▅▆▇█"
_LETTERS = {"wait": "W", "run": "R", "move": "M"}
_PLANNED = {"wait": "w", "run": "r", "move": "m", "suspended": "s", "cut_off": "c"}
_STYLES = {"W": "90", "R": "32", "M": "33", "w": "2;90", "r": "2;32", "m": "2;33", "s": "2;34", "c": "2;31"}
_OF_PLANS = {"suspended": "s is suspended", "cut_off": "c is cut off"}
_BARS = dict.fromkeys(SubjobRole, "37") | {SubjobRole.PLACEHOLDER: "35", SubjobRole.SUBJOB: "36"}
_OVER = ("completed", "failed", "timeout", "cancelled")


_OPEN_SHARE = 0.08  # of the picture, for what is planned without an end
_PAST_SHARE = 0.2  # of the picture, at least, for what has been


@dataclass(frozen=True, slots=True)
class _Scale:
    """Columns to seconds. `now`: the column of the line between what has been and what is planned, if anything is. It
    is `now_s`, and the scales on its sides may differ (`uneven`).
    """

    start_s: float
    end_s: float
    columns: int
    now: int | None = None
    now_s: float = 0.0
    uneven: bool = False

    def at(self, column: float) -> float:
        """The time at the left of a column."""
        first, start_s, last, end_s = self._side(column >= (self.now or 0))
        return start_s + (column - first) * (end_s - start_s) / (last - first)

    def middle(self, column: int) -> float:
        return self.at(column + 0.5)

    def column(self, at_s: float) -> int:
        first, start_s, last, end_s = self._side(at_s >= self.now_s)
        share = (at_s - start_s) / (end_s - start_s)
        return min(self.columns - 1, max(0, first + int(share * (last - first))))

    def _side(self, to_come: bool) -> tuple[int, float, int, float]:
        """The first column and its time, and those behind the last one, of the part before or after the line."""
        if self.now is None or not self.uneven:
            return 0, self.start_s, self.columns, self.end_s
        if to_come:
            return self.now, self.now_s, self.columns, self.end_s
        return 0, self.start_s, self.now, self.now_s


def chart(timeline: dict[str, Any], width: int, *, colour: bool = False, plain: bool = False) -> list[str]:
    """The lines of the picture of a timeline (as GET .../timeline gives it), `width` columns wide.

    `plain`: ASCII only. `colour`: with the terminal's escapes, which take no room.
    """
    now_s = timeline["end_s"] if timeline["end_s"] is not None else timeline["now_s"]
    scale = _scale(timeline["submit_s"], now_s, timeline.get("planned", []), width)
    lines = [_heading(timeline, now_s), "", _row("phase", _phases(timeline, scale, plain), colour, _STYLES)]
    lines.append(_row("processors", _stairs(timeline, scale, plain), False, {}))
    shown = [s for s in timeline["subjobs"] if s["start_s"] is not None or s["state"] in ("planned", "pending")]
    for subjob in shown:
        bar = _bar(subjob, scale, now_s, plain)
        label = f"J{subjob['ordinal']} {subjob['processors']:>4}p"
        style = _BARS[subjob["role"]]
        lines.append(_row(label, bar, colour, {"█": style, "#": style, "░": f"2;{style}", "-": f"2;{style}"}))
    lines.append(" " * _LABEL + " " + _axis(scale))
    lines += _remarks(timeline, scale)
    return lines


def plan_chart(
    planned: list[dict[str, Any]],
    processes: int,
    width: int,
    free: Sequence[tuple[float, int]] = (),
    *,
    plain: bool = False,
) -> list[str]:
    """The phases and processors of what is planned (as POST /v1/jobs/plan gives it), from its beginning on.

    `free`: pairs of a time and processors that are free from then on. Both are then drawn to one scale, that of the
    most that there is of either.
    """
    if all(interval["processors"] == 0 for interval in planned):
        return []
    begin_s = planned[0]["start_s"]
    scale = _scale(begin_s, begin_s, planned, width)
    most = max([processes, *(processors for _, processors in free)])
    timeline = {"intervals": [], "planned": planned, "processes": most}
    rows = [_row("phase", _phases(timeline, scale, plain), False, {})]
    rows.append(_row("processors", _stairs(timeline, scale, plain), False, {}))
    if free:
        ends = [at_s for at_s, _ in free[1:]]
        window = [
            {"kind": "run", "start_s": at_s, "end_s": end_s, "processors": processors}
            for (at_s, processors), end_s in zip([(begin_s, free[0][1]), *free[1:]], [*ends, None], strict=True)
        ]
        rows.append(_row("free", _stairs({**timeline, "planned": window}, scale, plain), False, {}))
        rows.append(_row("", f"one scale for both, to {most} processors", False, {}))
    return [*rows, " " * _LABEL + " " + _axis(scale)]


def plan_lines(planned: list[dict[str, Any]], *, begun: bool = True) -> list[str]:
    """What is planned, a line for each stretch, in times from its beginning on. `begun`: ranks run as that begins."""
    lines = []
    before = "run" if begun else "wait"
    for interval, follows in zip(planned, [*planned[1:], None], strict=False):
        words = [_WORDS[interval["kind"]]]
        if interval["kind"] == "move" and before in ("wait", "suspended"):
            words = ["starts"]
        elif interval["kind"] == "move" and follows is not None and follows["kind"] == "suspended":
            words = ["saves its work"]
        before = interval["kind"]
        if interval["processors"]:
            words.append(f"on {interval['processors']} processors" + (" of J0" if interval["on_placeholder"] else ""))
        if interval["degree"] > 1:
            words.append(f"(degree {interval['degree']})")
        until_s = interval["end_s"]
        words.append(_OPEN.get(interval["kind"], "") if until_s is None else _for(until_s - interval["start_s"]))
        begin_s = interval["start_s"] - planned[0]["start_s"]
        lines.append(f"{duration(begin_s):>8}  {' '.join(filter(None, words))}")
    if planned and planned[-1]["end_s"] is not None:
        lines.append(
            f"{duration(planned[-1]['end_s'] - planned[0]['start_s']):>8}  done, if it takes no longer than planned"
        )
    return lines


def _for(seconds: float) -> str:
    return f"for {duration(seconds)}"


_WORDS = {
    "wait": "waits",
    "run": "runs",
    "move": "moves",
    "suspended": "is suspended, its work kept,",
    "cut_off": "is cut off: its processors end before it is done",
}
_OPEN = {"wait": "until the batch system starts it", "suspended": "until it is started again"}


def _scale(start_s: float, now_s: float, planned: list[dict[str, Any]], width: int) -> _Scale:
    """From the start to now; where something is planned, to the end of that."""
    columns = max(20, min(width, 200) - _LABEL - 1)
    end_s = max(now_s, start_s + 1.0)
    if not planned:
        return _Scale(start_s, end_s, columns)
    last = planned[-1]
    if last["end_s"] is None:
        end_s = max(end_s, last["start_s"])
        end_s += max(1.0, _OPEN_SHARE * (end_s - start_s))
    else:
        end_s = max(end_s, last["end_s"])
    if now_s <= start_s:
        return _Scale(start_s, end_s, columns)
    now = _Scale(start_s, end_s, columns).column(now_s)
    least = int(_PAST_SHARE * columns)
    return _Scale(start_s, end_s, columns, max(now, least), now_s, uneven=now < least and now_s < end_s)


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


def _interval_at(intervals: list[dict[str, Any]], at_s: float) -> dict[str, Any] | None:
    for interval in intervals:
        if interval["start_s"] <= at_s and (interval["end_s"] is None or at_s < interval["end_s"]):
            return interval
    return None


def _at(timeline: dict[str, Any], scale: _Scale, column: int) -> tuple[dict[str, Any] | None, bool]:
    """What there is in the middle of a column, and whether it is planned only."""
    at_s = scale.middle(column)
    past = _interval_at(timeline["intervals"], at_s) if scale.now is None or column < scale.now else None
    return (past, False) if past is not None else (_interval_at(timeline.get("planned", []), at_s), True)


def _with_now(cells: list[str], scale: _Scale, plain: bool) -> str:
    if scale.now is not None:
        cells[scale.now] = "|" if plain else "│"
    return "".join(cells)


def _phases(timeline: dict[str, Any], scale: _Scale, plain: bool) -> str:
    cells = []
    for column in range(scale.columns):
        interval, planned = _at(timeline, scale, column)
        cells.append((_PLANNED if planned else _LETTERS)[interval["kind"]] if interval else " ")
    for intervals, letter in ((timeline["intervals"], "M"), (timeline.get("planned", []), "m")):
        for interval in intervals:  # a move is short, and must be seen all the same
            if interval["kind"] == "move":
                cells[scale.column(interval["start_s"])] = letter
    return _with_now(cells, scale, plain)


def _stairs(timeline: dict[str, Any], scale: _Scale, plain: bool) -> str:
    cells = []
    for column in range(scale.columns):
        interval, _ = _at(timeline, scale, column)
        used = interval["processors"] if interval else 0
        share = used / max(1, timeline["processes"])
        if used == 0:
            cells.append(" ")
        elif plain:
            cells.append(str(min(9, int(share * 9.999))))
        else:
            cells.append(_STEPS[min(7, max(0, round(share * 8) - 1))])
    return _with_now(cells, scale, plain)


def _bar(subjob: dict[str, Any], scale: _Scale, now_s: float, plain: bool) -> str:
    full, waiting, planned = ("#", ".", "-") if plain else ("█", "·", "░")
    cells = [" "] * scale.columns
    present = scale.columns if scale.now is None else scale.now
    start_s, running = subjob["start_s"], subjob["state"] == "running"
    if start_s is None:
        cells[:present] = waiting * present
        expected_s = subjob.get("planned_start_s")
        if scale.now is not None and expected_s is not None:
            begin_s = max(now_s, expected_s)
            _fill(cells, scale, begin_s, begin_s + subjob["walltime_s"], planned)
        return _with_now(cells, scale, plain)
    end_s = now_s if running or subjob["end_s"] is None else min(subjob["end_s"], now_s)
    first, last = scale.column(start_s), scale.column(end_s)
    if subjob["role"] != SubjobRole.SUBJOB:
        cells[:first] = waiting * first
    cells[first : last + 1] = full * (last - first + 1)
    if running and scale.now is not None and subjob["end_s"] is not None:
        _fill(cells, scale, now_s, subjob["end_s"], planned)
    return _with_now(cells, scale, plain)


def _fill(cells: list[str], scale: _Scale, start_s: float, end_s: float, sign: str) -> None:
    """What of it is in the picture."""
    if start_s < scale.end_s and end_s > start_s:
        first, last = scale.column(start_s), scale.column(end_s)
        cells[first : last + 1] = sign * (last - first + 1)


def _axis(scale: _Scale) -> str:
    cells = [" "] * scale.columns
    step = max(12, scale.columns // 5)
    for column in range(0, scale.columns, step):
        text = duration(scale.at(column) - scale.start_s)
        if column + len(text) <= scale.columns:
            cells[column : column + len(text)] = text
    return "".join(cells).rstrip()


def _remarks(timeline: dict[str, Any], scale: _Scale) -> list[str]:
    lines = []
    since = timeline["submit_s"]
    if scale.now is not None:
        wider = " (drawn wider)" if scale.uneven else ""
        kinds = {interval["kind"] for interval in timeline.get("planned", [])}
        more = "".join(f", {words}" for kind, words in _OF_PLANS.items() if kind in kinds)
        lines.append(f"W waits, R runs, M starts or moves{more}")
        lines.append(f"capitals: what has been{wider}; small letters and light bars: what is planned")
    if timeline["rigid_start_s"] is not None:
        lines.append(f"a rigid start was promised for {duration(timeline['rigid_start_s'] - since)} after submission")
    if timeline["state"] in _OVER:
        return lines
    waiting = [s for s in timeline["subjobs"] if s["ordinal"] == 0 and s["start_s"] is None]
    for j0 in waiting:
        if j0.get("planned_start_s") is not None:
            lines.append(f"J0 is expected to start {duration(j0['planned_start_s'] - since)} after submission")
    done_s = timeline["expected_end_s"]
    if done_s is not None:
        lines.append(f"expected to be done {duration(done_s - since)} after submission")
    return lines
