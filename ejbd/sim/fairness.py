"""Gains and losses: one simulation beside another of the same workload, and orders that were turned round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.sim.metrics import BOUND_S, Outcome, change, finite
from ejbd.sim.world import FloatArray, IntArray, Jobs

NO_DIFFERENCE_S = 1e-6  # times are sums of seconds, which differ in their last digits


@dataclass(frozen=True, slots=True)
class Side:
    """The jobs on one side of a comparison: how many, and their mean, 95th percentile and maximum in seconds."""

    jobs: int
    mean_s: float
    p95_s: float
    max_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a figure of no jobs is null."""
        return {
            "jobs": self.jobs,
            "mean_s": finite(self.mean_s),
            "p95_s": finite(self.p95_s),
            "max_s": finite(self.max_s),
        }


@dataclass(frozen=True, slots=True)
class Shift:
    """Of `jobs` jobs, those for which something comes later than before, and those for which it comes earlier."""

    jobs: int
    later: Side
    earlier: Side

    @property
    def later_percent(self) -> float:
        """The share of the jobs for which it comes later; not a number where there are none."""
        return 100.0 * self.later.jobs / self.jobs if self.jobs else math.nan

    @property
    def earlier_percent(self) -> float:
        """The share of the jobs for which it comes earlier; not a number where there are none."""
        return 100.0 * self.earlier.jobs / self.jobs if self.jobs else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a figure of no jobs is null."""
        return {
            "jobs": self.jobs,
            "later": {**self.later.to_json(), "percent": finite(self.later_percent)},
            "earlier": {**self.earlier.to_json(), "percent": finite(self.earlier_percent)},
        }


def shift(before: FloatArray, after: FloatArray) -> Shift:
    """How the same jobs' times (seconds) differ between two simulations."""
    differences = after - before
    later = differences[differences > NO_DIFFERENCE_S]
    earlier = -differences[differences < -NO_DIFFERENCE_S]
    return Shift(int(differences.size), _side(later), _side(earlier))


def _side(seconds: FloatArray) -> Side:
    if not seconds.size:
        return Side(0, math.nan, math.nan, math.nan)
    return Side(int(seconds.size), float(seconds.mean()), float(np.percentile(seconds, 95)), float(seconds.max()))


@dataclass(frozen=True, slots=True)
class Beside:
    """One simulation beside another: starts of the jobs that are elastic in neither, ends of those that are in the
    second, and the change of the number of priority inversions in per cent."""

    others_start: Shift
    elastic_end: Shift
    inversions_percent: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "others_start": self.others_start.to_json(),
            "elastic_end": self.elastic_end.to_json(),
            "priority_inversions_change_percent": finite(self.inversions_percent),
        }


def beside(jobs: Jobs, before: Outcome, after: Outcome, kept: Any) -> Beside:
    """The jobs that `kept` flags, in the simulation `after` beside `before`."""
    elastic = after.elastic != 0
    others = kept & ~elastic & (before.elastic == 0)
    chosen = kept & elastic
    old, new = (priority_inversions(jobs.submit[kept], outcome.start[kept]) for outcome in (before, after))
    return Beside(
        shift(before.start[others], after.start[others]),
        shift(before.end[chosen], after.end[chosen]),
        change(old, new),
    )


def priority_inversions(submit: FloatArray, start: FloatArray) -> int:
    """Pairs of jobs of which the one that was submitted later started earlier (Liu & Weissman, SC'15, section 6.4).

    Jobs submitted or started at one time are in no order. `submit` may be unsorted; takes O(n log^2 n).
    """
    # By submission; among those of one time the earlier start first, so that they count as no pair.
    order = np.lexsort((start, submit))
    _, ranks = np.unique(start[order], return_inverse=True)
    count = int(ranks.size)
    none = int(ranks.max()) + 1 if count else 0  # what fills the array up to a power of two is behind everything
    sorted_runs: IntArray = np.full(1 << max(0, count - 1).bit_length(), none, dtype=np.int64)
    sorted_runs[:count] = ranks
    found, width = 0, 1
    while width < count:
        # Runs of `width` are sorted; in each pair of them count those on the left behind one on the right.
        runs = np.sort(sorted_runs.reshape(-1, width), axis=1)
        apart = (none + 1) * np.arange(runs.shape[0] // 2)[:, np.newaxis]  # makes of all runs one sorted vector
        left, right = (runs[0::2] + apart).ravel(), runs[1::2] + apart
        not_behind = np.searchsorted(left, right.ravel(), side="right").reshape(right.shape)
        ends = width * np.arange(1, right.shape[0] + 1)[:, np.newaxis]
        found += int(((ends - not_behind) * (runs[1::2] < none)).sum())
        sorted_runs = runs.ravel()
        width *= 2
    return found


def max_bounded_slowdown(jobs: Jobs, outcome: Outcome, kept: Any) -> float:
    """The highest bounded slowdown among the jobs that `kept` flags; not a number where there are none."""
    turnaround = (outcome.end - jobs.submit)[kept]
    if not turnaround.size:
        return math.nan
    return max(1.0, float((turnaround / np.maximum(jobs.run[kept], BOUND_S)).max()))


def shares(outcome: Outcome, chosen: Any) -> tuple[float, float]:
    """The shares (0 to 1) of the jobs that `chosen` names which ran on more than one subjob, and which moved."""
    if not outcome.subjobs[chosen].size:
        return math.nan, math.nan
    return float((outcome.subjobs[chosen] > 1).mean()), float((outcome.moves[chosen] > 0).mean())
