"""Windows of the week in which other settings hold: when one begins and ends, and what is in force at an instant.

A window's times are those of the clock on the wall. An edge is the first instant at which that clock shows its time, or
has gone past it. So a window that begins in the hour which summer time leaves out begins when that hour is left out. In
the hour that comes twice, an edge is at its first coming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HINT = 'e.g. "mon-fri 20:00-08:00", "sat,sun" or "daily 01:00-05:30"'
_DAY_MIN = 24 * 60
_TIMES = re.compile(r"(\d\d?):(\d\d)-(\d\d?):(\d\d)")


@dataclass(frozen=True, slots=True)
class WeekWindow:
    """It begins on these days (0: Monday), `begin_min` minutes of the clock after midnight.

    Where `end_min` is not behind `begin_min`, it ends on the next day.
    """

    days: frozenset[int]
    begin_min: int
    end_min: int

    def __str__(self) -> str:
        return f"{_days_text(self.days)} {_clock(self.begin_min)}-{_clock(self.end_min)}"

    def at(self, day: date, zone: tzinfo) -> tuple[float, float] | None:
        """From when until when (seconds since the epoch) it holds, where it begins on that day."""
        if day.weekday() not in self.days:
            return None
        end_min = self.end_min if self.end_min > self.begin_min else self.end_min + _DAY_MIN
        return _instant(day, self.begin_min, zone), _instant(day, end_min, zone)

    def holds(self, at: datetime) -> bool:
        """Whether it holds at an aware instant, in the zone of that instant."""
        now = at.timestamp()
        spans = (self.at(at.date() - timedelta(days=back), _zone(at)) for back in (-1, 0, 1, 2))
        return any(span is not None and span[0] <= now < span[1] for span in spans)


@dataclass(frozen=True, slots=True)
class InForce:
    """`settings` hold, by `windows` (places in the order in which they were given), until `until_s`.

    `until_s` (seconds since the epoch) is the next edge at which settings change; None: never.
    """

    settings: dict[str, Any]
    windows: tuple[int, ...]
    until_s: float | None


def parse(text: str) -> WeekWindow:
    """`mon-fri 20:00-08:00`: days and times, either of which may be left out. Raises ValueError with one sentence."""
    words = text.lower().replace(", ", ",").split()
    times = words.pop() if words and ":" in words[-1] else "00:00-24:00"
    if len(words) > 1 or not text.strip():
        raise ValueError(f"{text!r} is no window of the week: it has days, then a beginning and an end")
    found = _TIMES.fullmatch(times)
    if found is None:
        raise ValueError(f"{times!r} is no beginning and end: they are written HH:MM-HH:MM")
    hours = [int(part) for part in found.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if hours[1] > 59 or hours[3] > 59 or begin >= _DAY_MIN or end > _DAY_MIN:
        raise ValueError(f"{times!r} has a time that no clock shows: they go from 00:00 to 24:00")
    if begin == end:
        raise ValueError(f"{times!r} begins and ends at the same time: a whole day is 00:00-24:00")
    return WeekWindow(_days(words[0] if words else "daily"), begin, end)


def in_force(
    settings: Mapping[str, Any], windows: Sequence[tuple[WeekWindow, Mapping[str, Any]]], at: datetime
) -> InForce:
    """What holds at an aware instant: the settings, and on top those of each window that holds, the last one last."""
    now, zone = at.timestamp(), _zone(at)
    held = tuple(place for place, (window, _) in enumerate(windows) if window.holds(at))
    merged = _merged(settings, windows, held)
    spans = (window.at(at.date() + timedelta(days=ahead), zone) for window, _ in windows for ahead in range(-2, 10))
    edges = sorted({edge for span in spans if span is not None for edge in span if edge > now})
    for edge in edges:
        then = datetime.fromtimestamp(edge, zone)
        if _merged(settings, windows, [n for n, (window, _) in enumerate(windows) if window.holds(then)]) != merged:
            return InForce(merged, held, edge)
    return InForce(merged, held, None)


def _merged(
    settings: Mapping[str, Any], windows: Sequence[tuple[WeekWindow, Mapping[str, Any]]], held: Sequence[int]
) -> dict[str, Any]:
    merged = dict(settings)
    for place in held:
        merged.update(windows[place][1])
    return merged


def _zone(at: datetime) -> tzinfo:
    if at.tzinfo is None:
        raise ValueError("an instant without its time zone")
    return at.tzinfo


def _instant(day: date, minutes: int, zone: tzinfo) -> float:
    """The first instant at which the clock shows, or has gone past, so many minutes of that day."""
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)  # noqa: DTZ001
    first, second = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if second >= first:
        return first
    # Left out: `second` is before the clock is put forward, `first` after it.
    early, late = int(second), int(first)
    before = _offset(early, zone)
    while late - early > 1:
        middle = (early + late) // 2
        early, late = (middle, late) if _offset(middle, zone) == before else (early, middle)
    return float(late)


def _offset(at_s: int, zone: tzinfo) -> timedelta | None:
    return datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()


def _days(text: str) -> frozenset[int]:
    """`mon-fri,sun` or `daily`. A range may go over the end of the week."""
    if text == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in DAYS:
                raise ValueError(f"{name!r} is no day: they are {', '.join(DAYS)}, or daily")
        begin = DAYS.index(first)
        count = (DAYS.index(last) - begin) % 7 if dash else 0
        found |= {(begin + one) % 7 for one in range(count + 1)}
    return frozenset(found)


def _days_text(days: frozenset[int]) -> str:
    if len(days) == 7:
        return "daily"
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(DAYS[run[0]] if len(run) == 1 else f"{DAYS[run[0]]}-{DAYS[run[-1]]}" for run in runs)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
