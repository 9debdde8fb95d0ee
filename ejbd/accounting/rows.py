"""One finished job as accounting has it, and what is odd about lines."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

SPELLED_OUT = 5  # lines that are reported by their numbers


class Ending(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Finished(NamedTuple):
    """A job that has ended. Times are seconds since the epoch, durations seconds; None: not known.

    `job`: the batch system's number. `name`: the job's, as its user gave it.
    """

    job: str
    user: str
    name: str
    queue: str
    processors: int
    nodes: int | None
    requested_s: float | None
    submit_s: float | None
    start_s: float | None
    end_s: float
    run_s: float
    ending: Ending


@dataclass
class Oddities:
    """What is to be reported about lines, and how many of each kind. `left_out`: they made no run."""

    found: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    counts: dict[tuple[str, bool], int] = field(default_factory=dict)

    def tell(self, line: int, what: str, left_out: bool = True) -> None:
        key = (what, left_out)
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        if count < SPELLED_OUT:
            self.found.setdefault(key, []).append(line)

    def sentences(self) -> list[str]:
        """One sentence a kind, in the order of their first lines."""
        told = []
        for (what, left_out), lines in sorted(self.found.items(), key=lambda one: one[1][0]):
            count = self.counts[what, left_out]
            more = ", ..." if count > len(lines) else ""
            where = ", ".join(map(str, lines)) + more
            rows = f"1 line ({where})" if count == 1 else f"{count:,} lines ({where})"
            told.append(f"{rows}: {what}" + ("; left out" if left_out else ""))
        return told


class OddLine(Exception):
    """A line that makes no run: why."""


NOT_OVER = "has not ended yet"
NEVER_RAN = "never ran"

_ENDINGS = {
    "COMPLETED": Ending.COMPLETED,
    "TIMEOUT": Ending.TIMEOUT,
    "DEADLINE": Ending.TIMEOUT,
    "FAILED": Ending.FAILED,
    "OUT_OF_MEMORY": Ending.FAILED,
    "NODE_FAIL": Ending.FAILED,
    "BOOT_FAIL": Ending.FAILED,
    "LAUNCH_FAILED": Ending.FAILED,
    "CANCELLED": Ending.CANCELLED,
    "PREEMPTED": Ending.CANCELLED,
    "REVOKED": Ending.CANCELLED,
}
_LIVING = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STOPPED", "SIGNALING",
    "STAGE_OUT", "SPECIAL_EXIT", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
}  # fmt: skip


def ending_of(state: str) -> Ending:
    """Slurm's word for a state, such as `CANCELLED by 1000`. Raises OddLine."""
    word = state.split(" ", 1)[0].rstrip("+").upper()
    found = _ENDINGS.get(word)
    if found is not None:
        return found
    if word in _LIVING:
        raise OddLine(NOT_OVER)
    raise OddLine("a state that is not known")


_midnights: dict[str, float] = {}


def local_time(text: str) -> float | None:
    """Seconds since the epoch of 2024-05-31T23:59:59 by this machine's clock; None for `Unknown` and `None`.

    Raises OddLine for anything else.
    """
    if text in ("Unknown", "None", "N/A", ""):
        return None
    hour = text[:13]
    base = _midnights.get(hour)
    try:
        if base is None:
            base = time.mktime(time.strptime(hour, "%Y-%m-%dT%H"))
            if len(_midnights) > 100_000:
                _midnights.clear()
            _midnights[hour] = base
        if len(text) != 19 or text[13] != ":" or text[16] != ":":
            raise ValueError
        return base + int(text[14:16]) * 60 + int(text[17:19])
    except (ValueError, OverflowError):
        raise OddLine("a time that cannot be read") from None


def whole(text: str, what: str) -> int:
    """A whole number, 0 or more. Raises OddLine."""
    try:
        value = int(text)
    except ValueError:
        raise OddLine(f"{what} is no number") from None
    if value < 0:
        raise OddLine(f"{what} is negative")
    return value


def clock_seconds(text: str, what: str) -> int:
    """Seconds of [days-]hours:minutes:seconds. Raises OddLine."""
    days, dash, rest = text.rpartition("-")
    if text.startswith("-") or days.startswith("-"):
        raise OddLine(f"{what} is negative")
    parts = rest.split(".", 1)[0].split(":")
    try:
        numbers = [int(part) for part in parts]
        total = int(days) * 86400 if dash else 0
    except ValueError:
        raise OddLine(f"{what} is no time") from None
    if len(numbers) > 3 or min(numbers) < 0:
        raise OddLine(f"{what} is no time")
    seconds = 0
    for number in numbers:
        seconds = seconds * 60 + number
    if len(numbers) == 1:
        seconds = numbers[0] * 60  # as Slurm reads a number alone
    return total + seconds


def sound(run: Finished) -> Finished:
    """The run, if its figures can be. Raises OddLine."""
    if run.run_s < 0:
        raise OddLine("a negative run time")
    if run.run_s == 0 or run.start_s is None:
        raise OddLine(NEVER_RAN)
    if run.processors < 1:
        raise OddLine("no processors")
    if not run.user:
        raise OddLine("no user")
    return run
