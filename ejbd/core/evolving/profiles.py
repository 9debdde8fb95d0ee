"""Evolution profiles (Klein & Perez 2011, section 3.1): how many processors a job needs, and for how long each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_TIME = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_LONGEST_S = 10 * 365 * 86400
_HELP = "write WIDTH:DURATION,... such as 16:10m,64:5m,16:20m"
MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """So many processors for so many seconds; both are above 0."""

    duration_s: float
    processors: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The steps of a job in their order, one at least."""

    steps: tuple[Step, ...]

    @property
    def duration_s(self) -> float:
        """Of all steps, none of them held."""
        return sum(step.duration_s for step in self.steps)

    @property
    def peak(self) -> int:
        """The most processors that a step has."""
        return max(step.processors for step in self.steps)

    @property
    def area(self) -> float:
        """Processor-seconds."""
        return sum(step.duration_s * step.processors for step in self.steps)

    def rigid(self) -> Profile:
        """The request that a job makes that cannot evolve: its peak for all of its time (section 5.1)."""
        return Profile((Step(self.duration_s, self.peak),))

    def joined(self) -> Profile:
        """The same with one step for neighbours of one width."""
        steps: list[Step] = []
        for step in self.steps:
            if steps and steps[-1].processors == step.processors:
                steps[-1] = Step(steps[-1].duration_s + step.duration_s, step.processors)
            else:
                steps.append(step)
        return Profile(tuple(steps))

    def words(self) -> str:
        """As it is written: `16:10m,64:5m,16:20m`."""
        return ",".join(f"{step.processors}:{time_words(step.duration_s)}" for step in self.steps)

    def to_json(self) -> list[list[float]]:
        """Pairs of seconds and processors, as the paper writes them."""
        return [[plain(step.duration_s), step.processors] for step in self.steps]


def profile_of(pairs: Iterable[tuple[float, int]]) -> Profile:
    """The profile of pairs of seconds and processors. Raises ValueError with one sentence for what is none."""
    steps = tuple(Step(duration, processors) for duration, processors in pairs)
    if not steps:
        raise ValueError(f"a profile needs a step at least; {_HELP}")
    if len(steps) > MOST_STEPS:
        raise ValueError(f"a profile has at most {MOST_STEPS} steps, not {len(steps)}")
    for number, step in enumerate(steps, 1):
        if step.processors < 1:
            raise ValueError(f"step {number} of the profile has no processors; {_HELP}")
        if not 0 < step.duration_s <= _LONGEST_S:
            raise ValueError(f"step {number} of the profile lasts {step.duration_s:g} s: above 0, ten years at most")
        if step.duration_s != int(step.duration_s):
            raise ValueError(f"step {number} of the profile lasts {step.duration_s:g} s: whole seconds are wanted")
    return Profile(steps)


def parse_profile(text: str) -> Profile:
    """A profile by its words: `16:10m,64:5m,16:20m`, or as the paper has it `600s:16,300s:64`.

    What has a unit (s, m, h, d) is the duration, on either side of the colon. Raises ValueError with one sentence.
    """
    return profile_of(_pair(part, number) for number, part in enumerate(_parts(text), 1))


def parse_seconds_first(text: str, *, empty: bool = False) -> tuple[Step, ...]:
    """Steps as the paper writes them, `2:4,3:2,3:6`: plain seconds before the colon, processors behind it.

    `empty`: there may be none, and steps of no processors may be among them, as the occupation of a cluster has them.
    Units are read, too, as :func:`parse_profile` does. Raises ValueError with one sentence.
    """
    if empty and not text.strip():
        return ()
    pairs = [_pair(part, number, plain_seconds=True) for number, part in enumerate(_parts(text), 1)]
    if not empty:
        return profile_of(pairs).steps
    profile_of((duration, max(1, processors)) for duration, processors in pairs)
    return tuple(Step(duration, processors) for duration, processors in pairs)


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    for number, part in enumerate(parts, 1):
        if not part:
            raise ValueError(f"step {number} of the profile is empty; {_HELP}")
    return parts


def _pair(part: str, number: int, *, plain_seconds: bool = False) -> tuple[float, int]:
    where = f"step {number} of the profile, {_short(part)!r},"
    fields = [field.strip() for field in part.split(":")]
    if len(fields) != 2 or not all(fields):
        raise ValueError(f"{where} is no width and duration; {_HELP}")
    timed = [_TIME.fullmatch(field) is not None for field in fields]
    if all(timed):
        raise ValueError(f"{where} has two durations and no width; {_HELP}")
    if not any(timed):
        if not plain_seconds:
            raise ValueError(f"{where} has no duration with a unit (s, m, h or d); {_HELP}")
        if not re.fullmatch(r"\d{1,12}(\.\d+)?", fields[0]):
            raise ValueError(f"{where} does not begin with seconds")
        duration, width = float(fields[0]), fields[1]
    else:
        duration, width = seconds_of(fields[timed.index(True)]), fields[timed.index(False)]
    if not re.fullmatch(r"\d{1,9}", width):
        raise ValueError(f"{where} has no whole number of processors; {_HELP}")
    return duration, int(width)


def seconds_of(text: str) -> float:
    """Seconds of `10m`, `1h30m` or `2.5s`. Raises ValueError."""
    if _TIME.fullmatch(text) is None:
        raise ValueError(f"{_short(text)!r} is no duration; write a number with s, m, h or d, such as 10m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def time_words(seconds: float) -> str:
    """The shortest spelling that :func:`seconds_of` reads: `90s`, `10m`, `1h30m`."""
    if seconds != int(seconds):
        return f"{seconds!r}s"
    left, words = int(seconds), ""
    for unit in ("d", "h", "m"):
        count, left = divmod(left, _UNITS[unit])
        words += f"{count}{unit}" if count else ""
    return words + (f"{left}s" if left or not words else "")


def plain(seconds: float) -> float:
    """A whole number as an int, which JSON shows without a point."""
    return int(seconds) if seconds == int(seconds) else seconds


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def held_profile(steps: Sequence[Step], starts_s: Sequence[float], end_s: float) -> Profile:
    """The expanded profile of steps that begin at these times: each is held until the next one begins."""
    ends = [*starts_s[1:], end_s]
    return Profile(tuple(Step(end - at, step.processors) for step, at, end in zip(steps, starts_s, ends, strict=True)))
