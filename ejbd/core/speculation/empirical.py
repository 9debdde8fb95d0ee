"""The law of what was seen, as it was seen: Kaplan and Meier's, with a tail beyond the longest run."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ejbd.core.speculation.laws import Law

_TAIL_FROM = 0.8  # the mean excess over this quantile is the tail's scale
_LEAST_TAIL = 0.02  # of the longest run: one value alone has a tail, too
_FOOT = 0.01  # of the shortest run: how far below it the law begins


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the past. `censored`: it was ended from outside after `time_s`, and would have run longer.

    `weight`: how much it counts.
    """

    time_s: float
    censored: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Empirical(Law):
    """Survival through the points (`times`, `left`), straight in between; beyond the last one exponential.

    `tail_s`: the scale of that tail.
    """

    times: tuple[float, ...]
    left: tuple[float, ...]
    tail_s: float
    high: float = math.inf

    @property
    def low(self) -> float:  # type: ignore[override]
        return self.times[0]

    def survival(self, time_s: float) -> float:
        if time_s <= self.times[0]:
            return 1.0
        if time_s >= self.high:
            return 0.0
        if time_s >= self.times[-1]:
            return self.left[-1] * math.exp(-(time_s - self.times[-1]) / self.tail_s)
        at = bisect_right(self.times, time_s)
        before, after = self.times[at - 1], self.times[at]
        share = (time_s - before) / (after - before)
        return self.left[at - 1] + share * (self.left[at] - self.left[at - 1])

    def quantile(self, share: float) -> float:
        if share <= 0.0:
            return self.low
        beyond = 1.0 - share
        if beyond < self.left[-1]:
            end = self.times[-1] + self.tail_s * math.log(self.left[-1] / beyond) if beyond > 0.0 else self.high
            return min(end, self.high)
        at = bisect_left(self.left, -beyond, key=operator.neg)
        before, after = self.times[at - 1], self.times[at]
        return after - (after - before) * (beyond - self.left[at]) / (self.left[at - 1] - self.left[at])

    def words(self) -> str:
        return f"empirical:points={len(self.times) - 1},tail={self.tail_s:.12g}"


def empirical(runs: Sequence[Run]) -> Empirical:
    """The law of these runs. Raises ValueError where none has come to its own end.

    With n runs that all did, the i-th shortest is the i/(n+1) quantile, so that the tail has 1/(n+1).
    """
    ordered = sorted(runs, key=lambda run: (run.time_s, run.censored))
    ends = [run for run in ordered if not run.censored]
    if not ends:
        raise ValueError("none of the runs came to its own end")
    at_risk = sum(run.weight for run in ordered)
    spare = sum(run.weight for run in ends) / len(ends)
    shortest = ends[0].time_s
    times, left = [shortest * (1.0 - _FOOT)], [1.0]
    survival = 1.0
    for run in ordered:
        if not run.censored:
            survival *= 1.0 - run.weight / (at_risk + spare)
            if run.time_s > times[-1]:
                times.append(run.time_s)
                left.append(survival)
            else:
                left[-1] = survival
        at_risk = max(0.0, at_risk - run.weight)
    longest = max(run.time_s for run in ordered)
    if longest > times[-1]:  # censored ones, beyond all that ended: the law does not fall before them
        times.append(longest)
        left.append(survival)
    return Empirical(tuple(times), tuple(left), _tail(ends, longest))


def _tail(ends: Sequence[Run], longest_s: float) -> float:
    """The mean excess of the longest runs over the quantile below them."""
    ordered = sorted(run.time_s for run in ends)
    from_s = ordered[min(len(ordered) - 1, int(_TAIL_FROM * len(ordered)))]
    above = [time - from_s for time in ordered if time > from_s]
    excess = sum(above) / len(above) if above else 0.0
    return max(excess, _LEAST_TAIL * longest_s, 1e-6)
