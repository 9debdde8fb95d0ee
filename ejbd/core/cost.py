"""What a move costs: lambda of Liu & Weissman (SC'15, section 3.2), from what this application's moves have cost.

A move stalls the application from the moment at which its ranks are asked to checkpoint until all of them run again:
*checkpoint* (the ranks are asked, agree, write and end; `write_s` of it is the writing), *restart* (they are started
and read what was written) and *wait* (what lies between: telling, an old lead that hands over). Three sources, the
better one first: measurements of the application at about the same placement size; a guess from the size of its memory
and the speed of the spool; the configured figure. What a job says itself goes before all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any, TypeVar

RECENT = 5  # measurements of about the same size that count: an application's state grows and shrinks
SAFETY = 1.5  # the next checkpoint may take so much longer than the longest of the recent ones
GUESS_SAFETY = 2.0  # a guess may be off by more
TELLING_S = 2.0  # from a decision until every worker has asked its ranks


class Source(StrEnum):
    """Where a figure comes from."""

    JOB = "job"
    MEASURED = "measured"
    CALIBRATED = "calibrated"
    GUESSED = "guessed"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One move. `processors`: those that the ranks left. `restart_s` None: they were not started again (yet).

    `to_processors`: those on which they went on, where that is known.
    """

    processors: int
    bytes: int
    checkpoint_s: float
    write_s: float
    wait_s: float
    restart_s: float | None
    to_processors: int | None = None


@dataclass(frozen=True, slots=True)
class Guess:
    """What can be said before the first move: bytes of memory in use, and the bytes a second that the spool takes."""

    bytes: int
    bytes_per_s: float

    @property
    def write_s(self) -> float:
        return self.bytes / self.bytes_per_s


def moves_to(measurements: Sequence[Measurement], floor_s: float) -> dict[int, float]:
    """What a move to each width has cost (seconds), as far as any ended there: medians of the newest few of each.

    `measurements` come newest first; nothing is below `floor_s`.
    """
    found: dict[int, list[float]] = {}
    for one in measurements:
        if one.to_processors is not None and one.restart_s is not None:
            found.setdefault(one.to_processors, []).append(one.checkpoint_s + one.wait_s + one.restart_s)
    return {width: max(floor_s, median(costs[:RECENT])) for width, costs in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class MoveCost:
    """Lambda as planning uses it, where it comes from, and its parts (None: not known).

    `reserve_s`: how long before a subjob's end the last checkpoint has to begin, lest the end come first. `samples`:
    measurements behind the figures; `why`: the same for people.
    """

    lambda_s: float
    reserve_s: float
    source: Source
    why: str
    samples: int = 0
    bytes: int | None = None
    checkpoint_s: float | None = None
    write_s: float | None = None
    wait_s: float | None = None
    restart_s: float | None = None

    @property
    def kept_s(self) -> float:
        """The end of a subjob's walltime that is not for ranks."""
        return max(self.reserve_s, self.lambda_s)

    @property
    def tail_s(self) -> float:
        """What has to be left of a subjob beyond the lambda that every plan leaves before its end."""
        return self.kept_s - self.lambda_s

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "source": self.source.value}


_One = TypeVar("_One")


def near_in_size(found: Sequence[_One], size: int | None, size_of: Callable[[_One], int]) -> list[_One]:
    """The newest few of the size that comes nearest to `size`, by powers of two (None: of any). Newest first."""
    if size is None or not found:
        return list(found[:RECENT])

    def distance(one: _One) -> int:
        return round(abs(math.log2(max(1, size_of(one)) / max(1, size))))

    least = min(map(distance, found))
    return [one for one in found if distance(one) == least][:RECENT]


def nearest(measurements: Sequence[Measurement], processors: int | None) -> list[Measurement]:
    """The newest few moves from about so many processors; `measurements` come newest first."""
    return near_in_size(measurements, processors, lambda one: one.processors)


def move_cost(
    measurements: Sequence[Measurement],
    processors: int | None,
    guess: Guess | None,
    *,
    configured_s: float,
    floor_s: float = 0.0,
    job_s: float | None = None,
    look_s: float = 0.0,
) -> MoveCost:
    """The cost of the next move from a placement on `processors` (None: there is none).

    Medians of the measurements, never below `floor_s`. A guess can only make planning more careful: `configured_s` is
    its floor. `job_s` is what the job says, and holds for the plan; the reserve goes by what was measured all the same.
    `look_s` is the time between two looks at the job: a checkpoint that is due may be asked for so much later.
    """
    found = _measured(nearest(measurements, processors), floor_s, look_s + TELLING_S)
    if found is None and guess is not None:
        found = _guessed(guess, configured_s, look_s + TELLING_S)
    if found is None:
        why = f"configured: {configured_s:.3g} s, nothing was measured yet"
        found = MoveCost(configured_s, configured_s + look_s + TELLING_S, Source.CONFIGURED, why)
    if job_s is None:
        return found
    told = {**asdict(found), "lambda_s": job_s, "source": Source.JOB, "why": f"the job says {job_s:.3g} s"}
    if found.source is Source.CONFIGURED:
        told["reserve_s"] = job_s + look_s + TELLING_S
    return MoveCost(**told)


def _measured(near: Sequence[Measurement], floor_s: float, telling_s: float) -> MoveCost | None:
    if not near:
        return None
    checkpoint_s = median(m.checkpoint_s for m in near)
    restarts = [m.restart_s for m in near if m.restart_s is not None]
    # What has not been started again yet: reading takes about what writing took.
    restart_s = median(restarts) if restarts else checkpoint_s
    wait_s = median(m.wait_s for m in near)
    lambda_s = max(floor_s, checkpoint_s + restart_s + wait_s)
    bytes_ = int(median(m.bytes for m in near))
    times = "once" if len(near) == 1 else f"{len(near)} times"
    sizes = sorted({m.processors for m in near})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return MoveCost(
        lambda_s=lambda_s,
        reserve_s=SAFETY * max(m.checkpoint_s for m in near) + telling_s,
        source=Source.MEASURED,
        why=f"measured {times} on {size} processors: {in_words(bytes_)}, checkpoint {checkpoint_s:.3g} s, "
        f"restart {restart_s:.3g} s, wait {wait_s:.3g} s",
        samples=len(near),
        bytes=bytes_,
        checkpoint_s=checkpoint_s,
        write_s=median(m.write_s for m in near),
        wait_s=wait_s,
        restart_s=restart_s,
    )


def _guessed(guess: Guess, configured_s: float, telling_s: float) -> MoveCost:
    write_s = guess.write_s
    moved_s = 2 * write_s + TELLING_S  # written, and read again
    why = f"guessed: {in_words(guess.bytes)} of memory at {in_words(int(guess.bytes_per_s))}/s"
    if moved_s <= configured_s:
        why += f", which the configured {configured_s:.3g} s cover"
    return MoveCost(
        lambda_s=max(configured_s, moved_s),
        reserve_s=max(configured_s, GUESS_SAFETY * write_s) + telling_s,
        source=Source.GUESSED,
        why=why,
        bytes=guess.bytes,
        checkpoint_s=write_s,
        write_s=write_s,
        restart_s=write_s,
    )


TELLING_BYTES = 1 << 20


def spool_speed(writes: Sequence[tuple[int, float]]) -> float | None:
    """Bytes a second, the median of (bytes, seconds) of checkpoints; None where none says enough.

    Small checkpoints say how long it takes to open a file, not how fast it is written.
    """
    speeds = [size / seconds for size, seconds in writes if size >= TELLING_BYTES and seconds > 0]
    return median(speeds) if speeds else None


def in_words(size: int) -> str:
    """Bytes, or bytes a second, as people write them."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
