"""Walltimes in every spelling that Slurm reads and writes."""

from __future__ import annotations

import math
import re
from functools import lru_cache

MINUTE_S = 60
# Slurm keeps limits in 32 bits and reserves the two highest values.
_LONGEST_S = 2**32 - 3

_UNLIMITED = frozenset({"unlimited", "infinite"})
_NOT_SET = frozenset({"n/a", "not_set", "invalid", "none", "(null)"})
_FIELDS = r"[0-9]{1,9}(?::[0-9]{1,9}){0,2}"
_SPELLING = re.compile(rf"(?P<days>[0-9]{{1,9}})-(?P<hours>{_FIELDS})?|(?P<fields>{_FIELDS})")
_BELOW_NOTHING = re.compile(r"-[0-9]{1,9}")
_HELP = "write minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm, d-hh:mm:ss or UNLIMITED"


def parse_walltime(text: str) -> float | None:
    """Seconds of a walltime as a user or Slurm writes it; None is unlimited (as Slurm has it, 0 is unlimited too).

    A number alone is minutes, two fields are mm:ss, three are hh:mm:ss; after `d-` the fields begin with hours. Slurm
    takes minutes below 0 for the thousands of years that they are without their sign: unlimited here.
    Raises ValueError with one sentence for anything else, also for N/A and NOT_SET, which are no walltime.
    """
    word = text.strip()
    if word.lower() in _UNLIMITED or _BELOW_NOTHING.fullmatch(word):
        return None
    if not word or word.lower() in _NOT_SET:
        raise ValueError(f"no walltime is given ({word!r}); {_HELP}")
    match = _SPELLING.fullmatch(word)
    if match is None:
        raise ValueError(f"{_shortened(word)!r} is not a walltime; {_HELP}")
    fields = [int(field) for field in (match["fields"] or match["hours"] or "0").split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = fields + [0] * (3 - len(fields))
        total = int(match["days"]) * 86400 + hours * 3600 + minutes * MINUTE_S + seconds
    elif len(fields) == 1:
        total = fields[0] * MINUTE_S
    else:
        hours, minutes, seconds = [0] * (3 - len(fields)) + fields
        total = hours * 3600 + minutes * MINUTE_S + seconds
    if total > _LONGEST_S:
        raise ValueError(f"the walltime {_shortened(word)!r} is longer than a batch system can hold; {_HELP}")
    return float(total) if total else None


@lru_cache(maxsize=4096)  # thousands of jobs have few limits
def parse_listed_walltime(text: str) -> float | None:
    """As :func:`parse_walltime`, for a column of a listing: N/A and NOT_SET are None like UNLIMITED."""
    word = text.strip()
    return None if not word or word.lower() in _NOT_SET else parse_walltime(word)


def format_walltime(seconds: float | None) -> str:
    """Slurm's spelling of a walltime, rounded up to whole minutes; None and infinity are UNLIMITED.

    Raises ValueError where `seconds` is not above 0, since Slurm reads 0 as unlimited.
    """
    if seconds is None or seconds == math.inf:
        return "UNLIMITED"
    if not seconds > 0:
        raise ValueError(f"a walltime must be longer than 0 seconds, not {seconds:g}")
    # A float that is a whisker above a whole minute is meant to be that minute.
    total = max(1, math.ceil(seconds / MINUTE_S - 1e-9))
    if total * MINUTE_S > _LONGEST_S:
        raise ValueError(f"a walltime of {seconds:g} seconds is longer than a batch system can hold")
    return exact_walltime(total * MINUTE_S)


def exact_walltime(seconds: float) -> str:
    """Slurm's spelling of a length of time, cut to whole seconds; less than nothing is nothing."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // MINUTE_S:02d}:{rest % MINUTE_S:02d}"
    return f"{days}-{clock}" if days else clock


def _shortened(word: str) -> str:
    return word if len(word) <= 40 else word[:37] + "..."
