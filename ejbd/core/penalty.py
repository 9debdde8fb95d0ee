"""Delta, the penalty factor of over-subscription (Liu & Weissman, SC'15, Eq. 2), from what an application achieved.

Eq. 2 says that at degree k (ceil(P/q) processes on the fullest processor) a second makes 1/(Delta*k) seconds of
full-speed work. An application that does v(1) units of its own work a second at full width, and v(k) at degree k, has

    Delta = v(1) / (k * v(k)).

Only stretches of the very same work are set beside each other: those of one launch of one job; failing that, those of
jobs with the same command and the same end in sight. What a job says itself goes before what was measured, and that
before the configured figure, as with lambda (:mod:`ejbd.core.cost`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, median_low
from typing import Any

from ejbd.core.cost import RECENT, Source, near_in_size

SHORTEST_S = 5.0  # a stretch of less says little: a file's time may be a second wrong, and steps are not all alike
SLOWEST = 1e-9  # units a second that can still be divided by: ranks may tell anything
LEAST = 0.5
"""The least Delta that is believed. Degree 2 then costs nothing (2 * 1/2 = 1): fewer processors are never planned as
faster than one for each process, which Eq. 2 does not know and the policies do not expect. Below 1 it may be: ranks
that wait for each other leave the processor to their neighbours."""
MOST = 100.0  # as the configuration has it


@dataclass(frozen=True, slots=True)
class Speed:
    """A stretch of one placement's progress: `units` of the application's own in `seconds`.

    `work` is the same for the same command; `total` is where the application said that it would end (None: nothing).
    """

    job: str
    launch: int
    work: str
    total: float | None
    degree: int
    units: float
    seconds: float

    @property
    def per_s(self) -> float:
        return self.units / self.seconds

    @property
    def tells(self) -> bool:
        return self.seconds >= SHORTEST_S and self.per_s >= SLOWEST


@dataclass(frozen=True, slots=True)
class Ratio:
    """What over-subscription by `degree` made of an application's speed. `delta` is as it was measured, unbounded."""

    degree: int
    delta: float
    per_s: float
    full_per_s: float


@dataclass(frozen=True, slots=True)
class Penalty:
    """Delta as planning uses it and where it comes from; `samples` measurements are behind it. `why`: for people."""

    delta: float
    source: Source
    why: str
    samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "source": self.source.value}


def ratios(speeds: Sequence[Speed]) -> list[Ratio]:
    """One for each over-subscribed stretch that has some at full width to be set beside. Newest first, as `speeds`."""
    telling = [one for one in speeds if one.tells]
    full = [one for one in telling if one.degree == 1]
    found = []
    for one in telling:
        beside = _comparable(one, full) if one.degree > 1 else []
        if beside:
            full_per_s = median(other.per_s for other in beside)
            found.append(Ratio(one.degree, full_per_s / (one.degree * one.per_s), one.per_s, full_per_s))
    return found


def _comparable(one: Speed, full: Iterable[Speed]) -> list[Speed]:
    """The newest few at full width that do what `one` does: of the same launch, or else of the same command and end."""
    alike = [other for other in full if (other.launch, other.total) == (one.launch, one.total)]
    own = [other for other in alike if other.job == one.job]
    others = [other for other in alike if other.work == one.work] if one.total is not None else []
    return (own or others)[:RECENT]


def penalty(measured: Sequence[Ratio], degree: int | None, *, configured: float, told: float | None = None) -> Penalty:
    """Delta for a placement of `degree` (None: for any): of the measurements of about that degree the median.

    `measured` come newest first; `told` is what the job says.
    """
    if told is not None:
        return Penalty(told, Source.JOB, f"the job says {told:.3g}")
    near = near_in_size(measured, degree, lambda ratio: ratio.degree)
    if not near:
        return Penalty(configured, Source.CONFIGURED, f"configured: {configured:.3g}, nothing was measured yet")
    found = median_low([ratio.delta for ratio in near])
    one = next(ratio for ratio in near if ratio.delta == found)
    delta = round(min(MOST, max(LEAST, found)), 2)
    degrees = sorted({ratio.degree for ratio in near})
    words = f"{degrees[0]}" if len(degrees) == 1 else f"{degrees[0]} to {degrees[-1]}"
    times = "once" if len(near) == 1 else f"{len(near)} times"
    why = (
        f"measured {times} at degree {words} by the progress told: {one.per_s:.3g} a second"
        f"{f' at degree {one.degree}' if len(degrees) > 1 else ''}, {one.full_per_s:.3g} at full width"
    )
    if not LEAST <= found <= MOST:
        why += f"; {found:.3g} is not believed"
    return Penalty(delta, Source.MEASURED, why, len(near))
