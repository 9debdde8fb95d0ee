"""Laws as the experiments use them: tabulated, so that they are quick to ask and to draw from."""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache
from typing import Any

import numpy as np

from ejbd.core.speculation.laws import Law, law_of
from ejbd.core.speculation.sequence import plan_of

_POINTS = 2000
HOUR = 3600.0

LAWS = {
    "Normal": "truncnorm:mu=8h,sigma=2h,low=6h,high=16h",
    "Beta": "beta:alpha=2,beta=2,low=0,high=1h",
    "Exponential": "exponential:scale=1h,high=16h",
    "Pareto": "pareto:alpha=2.1,low=1h,high=20h",
}
"""The four of the paper's section 5.2."""


class Tabulated(Law):
    """A law by a table: its survival and its part of the mean are read off."""

    def __init__(self, words: str) -> None:
        exact = law_of(words)
        self.low, self.high = exact.low, exact.upper()
        self._words = words
        self._step = (self.high - self.low) / _POINTS
        times = np.linspace(self.low, self.high, _POINTS + 1)
        left = np.array([exact.survival(float(time)) for time in times])
        left[-1] = 0.0
        areas = np.concatenate(([0.0], np.cumsum((left[1:] + left[:-1]) * np.diff(times) / 2.0)))
        self._left: list[float] = left.tolist()
        self._area: list[float] = areas.tolist()
        self._times: list[float] = times.tolist()
        self._shares: list[float] = (1.0 - left).tolist()

    def _at(self, table: list[float], time_s: float) -> float:
        place = (time_s - self.low) / self._step
        at = min(_POINTS - 1, max(0, int(place)))
        return table[at] + (place - at) * (table[at + 1] - table[at])

    def survival(self, time_s: float) -> float:
        if time_s <= self.low:
            return 1.0
        return 0.0 if time_s >= self.high else self._at(self._left, time_s)

    def part_of_mean(self, low_s: float, high_s: float) -> float:
        low_s, high_s = max(low_s, self.low), min(high_s, self.high)
        if high_s <= low_s:
            return 0.0
        area = self._at(self._area, high_s) - self._at(self._area, low_s)
        return low_s * self.survival(low_s) - high_s * self.survival(high_s) + area

    def quantile(self, share: float) -> float:
        at = min(_POINTS, max(1, bisect_right(self._shares, share)))
        before, after = self._shares[at - 1], self._shares[at]
        part = (share - before) / (after - before) if after > before else 0.0
        return self._times[at - 1] + part * self._step

    def draw(self, rng: np.random.Generator) -> float:
        """A run time."""
        return max(1.0, self.quantile(float(rng.random())))

    @property
    def mean(self) -> float:
        return self._area[-1] + self.low

    def words(self) -> str:
        return self._words

    def __hash__(self) -> int:
        return hash(self._words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tabulated) and other._words == self._words


@cache
def tabulated(words: str) -> Tabulated:
    """The law in words."""
    return Tabulated(words)


def optimal(law: Tabulated, zeta: float = 0.0) -> tuple[float, ...]:
    """TOptimal at 200 points, or ATOptimal at 46."""
    return plan_of(law_of(law.words()), zeta=zeta).sequence_s


def whole(law: Tabulated) -> tuple[float, ...]:
    """Classical HPC: the upper bound."""
    return (law.high,)


def longest_of_last(law: Tabulated, rng: np.random.Generator, count: int = 10) -> tuple[float, ...]:
    """Neuroscience: the longest of the last runs; then half as much again, until the upper bound."""
    asked = max(law.draw(rng) for _ in range(count))
    sequence = []
    while asked < law.high:
        sequence.append(asked)
        asked *= 1.5
    return (*sequence, law.high)


def widths(allocation: str, processors: int, count: int, rng: np.random.Generator) -> list[int]:
    """How wide the jobs are: Full, Half, Truncnormal or Beta (section 5.2)."""
    if allocation == "Full":
        return [processors] * count
    if allocation == "Half":
        return [processors // 2] * count
    if allocation == "Beta":
        drawn: Any = rng.beta(2.0, 2.0, count) * processors
    else:
        law = tabulated(f"truncnorm:mu={0.5 * processors},sigma={0.3 * processors},low=1,high={processors}")
        drawn = np.array([law.quantile(float(share)) for share in rng.random(count)])
    return [min(processors, max(1, math.ceil(width))) for width in drawn.tolist()]


ALLOCATIONS = ("Full", "Half", "Truncnormal", "Beta")
