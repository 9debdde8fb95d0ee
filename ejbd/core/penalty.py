"""Delta, the penalty factor of over-subscription (Liu & Weissman, SC'15, Eq. 2), from what an application achieved.

Eq. 2 says that at degree k (ceil(P/q) processes on the fullest processor) a second makes 1/(Delta*k) seconds of
full-speed work. An application that does v(1) units of its own work a second at full width, and v(k) at degree k, has

    Delta = v(1) / (k * v(k)).

Only stretches of the very same work are set beside each other: those of one launch of one job; failing that, those of
jobs with the same command and the same end in sight.

Of an application that tells nothing of its progress whole runs are compared (*calibration*). A run takes t1 seconds at
full width. Another of the same command that spends t(k) seconds at degree k, and the rest at full width, does there

    t1 - rest = sum of t(k) / (Delta*k)

full-speed seconds of work, which gives Delta.

Delta is not the same at every degree: :func:`by_degree` tells the measured ones apart, and
:class:`ejbd.core.delta.DeltaByDegree` says what lies between and beyond them.

What a job says itself goes before what was measured, that before what was calibrated, and the configured figure comes
last, as with lambda (:mod:`ejbd.core.cost`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median, median_low
from typing import Any, TypeVar

from ejbd.core.cost import RECENT, Source, near_in_size

SHORTEST_S = 5.0  # a stretch of less says little: a file's time may be a second wrong, and steps are not all alike
SLOWEST = 1e-9  # units a second that can still be divided by: ranks may tell anything
LEAST_RUN_S = 60.0  # of full-speed work that a run must have done over-subscribed: starting up takes seconds as well
LEAST_PART = 0.25  # of its whole work, since two runs of one command are never quite alike
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
class Run:
    """A whole run that ended well: for how long it computed at full width and, by degree, over-subscribed."""

    work: str
    full_s: float
    over: Mapping[int, float]

    @property
    def at_full_width(self) -> bool:
        return not self.over


@dataclass(frozen=True, slots=True)
class Calibration:
    """What over-subscription, by `degree` for the most part, made of a run. `delta` is unbounded.

    `over_s`: for so long it was over-subscribed, and did `work_s` of the `full_s` of work that another run shows.
    """

    degree: int
    delta: float
    over_s: float
    work_s: float
    full_s: float


_Found = TypeVar("_Found", Ratio, Calibration)


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


@dataclass(frozen=True, slots=True)
class AtDegree:
    """Delta as it was measured at one degree."""

    degree: int
    penalty: Penalty

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"degree": self.degree, **self.penalty.to_json()}


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


def calibrations(runs: Sequence[Run]) -> list[Calibration]:
    """One for each run that was over-subscribed for long enough and has others at full width to be set beside.

    Newest first, as `runs`.
    """
    found = []
    for run in runs:
        beside = [other.full_s for other in runs if other.at_full_width and other.work == run.work][:RECENT]
        if run.at_full_width or not beside:
            continue
        full_s = median(beside)
        work_s = full_s - run.full_s
        if work_s < max(LEAST_RUN_S, LEAST_PART * full_s):
            continue
        shares = {degree: seconds / degree for degree, seconds in run.over.items()}
        most = max(shares, key=lambda degree: shares[degree])
        found.append(Calibration(most, sum(shares.values()) / work_s, sum(run.over.values()), work_s, full_s))
    return found


def penalty(
    measured: Sequence[Ratio],
    degree: int | None,
    *,
    calibrated: Sequence[Calibration] = (),
    configured: float,
    told: float | None = None,
) -> Penalty:
    """Delta for a placement of `degree` (None: for any): of the measurements of about that degree the median.

    `measured` and `calibrated` come newest first; `told` is what the job says.
    """
    if told is not None:
        return Penalty(told, Source.JOB, f"the job says {told:.3g}")
    found = _measured(measured, degree) or _calibrated(calibrated, degree)
    return found or Penalty(configured, Source.CONFIGURED, f"configured: {configured:.3g}, nothing was measured yet")


def by_degree(measured: Sequence[Ratio], calibrated: Sequence[Calibration]) -> tuple[AtDegree, ...]:
    """Delta at each degree at which there are measurements, the lowest degree first: the median of the newest few
    there, of progress told before runs compared. Both come newest first.

    A higher degree is never taken for faster than a lower one: what was measured so counts as equally fast.
    """
    found: list[AtDegree] = []
    slowest = 1.0
    for degree in sorted({one.degree for one in measured} | {one.degree for one in calibrated}):
        here = _measured([one for one in measured if one.degree == degree], degree)
        here = here or _calibrated([one for one in calibrated if one.degree == degree], degree)
        if here is None:
            continue
        if here.delta * degree < slowest:
            why = f"{here.why}; {here.delta:.3g} would be faster than a lower degree"
            delta = math.ceil(100 * slowest / degree - 1e-9) / 100
            while delta * degree < slowest:  # 4 * 3.3 is a little less than 3 * 4.4
                delta = math.nextafter(delta, math.inf)
            here = replace(here, delta=delta, why=why)
        slowest = here.delta * degree
        found.append(AtDegree(degree, here))
    return tuple(found)


def _measured(measured: Sequence[Ratio], degree: int | None) -> Penalty | None:
    near = near_in_size(measured, degree, lambda ratio: ratio.degree)
    if not near:
        return None
    one = _median(near)
    degrees, times = _in_words([ratio.degree for ratio in near])
    at = f" at degree {one.degree}" if len({ratio.degree for ratio in near}) > 1 else ""
    why = (
        f"measured {times} at degree {degrees} by the progress told: {one.per_s:.3g} a second{at}, "
        f"{one.full_per_s:.3g} at full width"
    )
    return _believed(one.delta, Source.MEASURED, why, len(near))


def _calibrated(calibrated: Sequence[Calibration], degree: int | None) -> Penalty | None:
    near = near_in_size(calibrated, degree, lambda one: one.degree)
    if not near:
        return None
    one = _median(near)
    degrees, times = _in_words([other.degree for other in near])
    why = (
        f"calibrated {times} at degree {degrees}: {one.work_s:.3g} of the {one.full_s:.3g} s that the same command "
        f"computes at full width took {one.over_s:.3g} s"
    )
    return _believed(one.delta, Source.CALIBRATED, why, len(near))


def _median(near: Sequence[_Found]) -> _Found:
    """The one with the median Delta; of an even number the lower of the two in the middle."""
    middle = median_low([one.delta for one in near])
    return next(one for one in near if one.delta == middle)


def _in_words(degrees: Sequence[int]) -> tuple[str, str]:
    """Degrees, and how often something was measured at them."""
    low, high = min(degrees), max(degrees)
    times = "once" if len(degrees) == 1 else f"{len(degrees)} times"
    return (f"{low}" if low == high else f"{low} to {high}"), times


def _believed(delta: float, source: Source, why: str, samples: int) -> Penalty:
    if not LEAST <= delta <= MOST:
        why += f"; {delta:.3g} is not believed"
    # To two places: what cannot be told apart is not followed by everything that is planned.
    return Penalty(round(min(MOST, max(LEAST, delta)), 2), source, why, samples)
