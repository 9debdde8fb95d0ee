"""Moments as sbatch's --begin takes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ejbd.errors import Code, EjbError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_AFTER = re.compile(r"now(?:\+([0-9]{1,9})([a-z]*))?", re.ASCII)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
HINT = "e.g. now+30minutes, 18:00 or 2026-11-30T06:00"


def parse_moment(text: str, now_s: float) -> float:
    """`now+30minutes` (seconds without a unit), `18:00[:30]` (the next time that it is), or a date with or without a
    time of day, in local time. Epoch seconds. Raises EjbError (INVALID)."""
    word, now = text.strip(), datetime.fromtimestamp(now_s)  # noqa: DTZ006 (local time is what people write)
    try:
        if (after := _AFTER.fullmatch(word.lower())) is not None:
            return now_s + int(after[1] or 0) * _unit(after[2] or "second")
        if (clock := _CLOCK.fullmatch(word)) is not None:
            at = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
            return (at if at > now else at + timedelta(days=1)).timestamp()
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?", word, re.ASCII):
            return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise EjbError(Code.INVALID, f"{text!r} is no time", hint=HINT)


def _unit(word: str) -> int:
    """`minutes`, `minute`, `min`: any beginning that tells one unit from the others, as in Slurm."""
    bare = word.removesuffix("s") or word
    found = [seconds for name, seconds in _UNITS.items() if name.startswith(bare)]
    if len(found) != 1:
        raise ValueError(word)
    return found[0]
