"""Moments as sbatch's --begin takes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ejbd.errors import Code, EjbError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_AFTER = re.compile(r"now(?:\s*\+\s*([0-9]{1,9})\s*([a-z]*))?", re.ASCII)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*([ap]m)?", re.ASCII)
_HOURS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_DATES = (
    re.compile(r"(?P<month>[0-9]{1,2})[/.](?P<day>[0-9]{1,2})(?:[/.](?P<year>[0-9]{2}|[0-9]{4}))?", re.ASCII),
    re.compile(r"(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?P<year>[0-9]{2})", re.ASCII),
)
HINT = "e.g. now+30minutes, 18:00 or 2026-11-30T06:00"


def parse_moment(text: str, now_s: float) -> float:
    """Epoch seconds of `now+30minutes` (seconds without a unit), or of a time of day, a date or both, in local time.

    A time of day alone is the next one: `18:00[:30]`, `04:30pm`, `noon`, `midnight`, `teatime`. A date is `2026-11-30`,
    `11/30`, `113026`, `today` or `tomorrow`. Raises EjbError (INVALID).
    """
    word, now = text.strip().lower(), datetime.fromtimestamp(now_s)  # noqa: DTZ006 (local time is what people write)
    try:
        if (after := _AFTER.fullmatch(word)) is not None:
            return now_s + int(after[1] or 0) * _unit(after[2] or "second")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(t.*)?", word, re.ASCII):
            return datetime.fromisoformat(word).timestamp()
        if (at := _on_a_day(word, now)) is not None:
            return at.timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise EjbError(Code.INVALID, f"{text!r} is no time", hint=HINT)


def _on_a_day(word: str, now: datetime) -> datetime | None:
    """A time of day, a date, or both with a blank between them; None: it is none. ValueError for one that never is."""
    clock, day = None, None
    for part in re.sub(r"\s+([ap]m)\b", r"\1", word).split():
        if clock is None and (found := _clock(part)) is not None:
            clock = found
        elif day is None and (date := _day(part, now)) is not None:
            day = date
        else:
            return None
    if day is not None:
        return _at_clock(day, clock or (0, 0, 0))
    if clock is None:
        return None
    at = _at_clock(now, clock)
    return at if at > now else at + timedelta(days=1)


def _clock(word: str) -> tuple[int, int, int] | None:
    if word in _HOURS:
        return _HOURS[word], 0, 0
    match = _CLOCK.fullmatch(word)
    if match is None:
        return None
    hour = int(match[1])
    if match[4] is not None:
        if not 1 <= hour <= 12:
            raise ValueError(word)
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return hour, int(match[2]), int(match[3] or 0)


def _day(word: str, now: datetime) -> datetime | None:
    """A date, at the time of `now`; one without a year is the next of its kind."""
    if word in ("today", "tomorrow"):
        return now + timedelta(days=word == "tomorrow")
    match = next((found for form in _DATES if (found := form.fullmatch(word)) is not None), None)
    if match is None:
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", word, re.ASCII)
        return None if found is None else now.replace(year=int(found[1]), month=int(found[2]), day=int(found[3]))
    year = now.year if match["year"] is None else int(match["year"]) + (2000 if len(match["year"]) == 2 else 0)
    at = now.replace(year=year, month=int(match["month"]), day=int(match["day"]))
    return at.replace(year=year + 1) if match["year"] is None and at < now else at


def _at_clock(day: datetime, clock: tuple[int, int, int]) -> datetime:
    return day.replace(hour=clock[0], minute=clock[1], second=clock[2], microsecond=0)


def _unit(word: str) -> int:
    """`minutes`, `minute`, `min`: any beginning that tells one unit from the others, as in Slurm."""
    bare = word.removesuffix("s") or word
    found = [seconds for name, seconds in _UNITS.items() if name.startswith(bare)]
    if len(found) != 1:
        raise ValueError(word)
    return found[0]
