"""The best sequence of reservations for one stochastic job: TOptimal and ATOptimal (Theorem 2); what any costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ejbd.core.speculation.discrete import Array, Discrete, discretise
from ejbd.core.speculation.laws import Law

POINTS = 200
ADAPTIVE_POINTS = 46
_HAIR = 1e-12  # of a comparison of costs, relative


@dataclass(frozen=True, slots=True)
class Plan:
    """Walltimes to be asked for one after the other (seconds), and what the run is expected to cost altogether."""

    sequence_s: tuple[float, ...]
    expected_cost_s: float


@dataclass(frozen=True, slots=True)
class Indices:
    """The same by the points of a discrete law."""

    indices: tuple[int, ...]
    cost: float


@lru_cache(maxsize=1024)
def plan_of(law: Law, *, points: int | None = None, zeta: float = 0.0, limit_s: float = math.inf) -> Plan:
    """The best sequence for a law. `zeta`: the rate of backfilling work relative to the processors, 0 <= zeta < 1.

    `limit_s`: no walltime is longer; the last one is this limit where the law goes on beyond its last point. Raises
    ValueError.
    """
    if not 0.0 <= zeta < 1.0:
        raise ValueError("zeta is at least 0 and below 1")
    if not limit_s > 0.0:
        raise ValueError("a limit is above 0 s")
    if limit_s <= law.low:  # nothing can be chosen: whatever is asked for is the limit
        return Plan((limit_s,), limit_s)
    upper = law.upper(limit_s)
    table = discretise(law, points or (ADAPTIVE_POINTS if zeta else POINTS), upper)
    found = at_optimal(table, zeta) if zeta else t_optimal(table)
    sequence = tuple(float(table.values[index]) for index in found.indices)
    cost = found.cost
    if limit_s > upper and math.isfinite(limit_s) and table.beyond[-1] > 0.0:
        sequence += (limit_s,)
        cost += limit_s * float(table.beyond[-1])
    return Plan(sequence, cost)


def t_optimal(table: Discrete) -> Indices:
    """Without backfilling work: E(i) = min over j of v_j P(X > v_i) + E(j)."""
    n = table.points
    left = _left(table)
    best = np.zeros(n + 1)
    chosen = np.zeros(n + 1, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        costs = table.values[i + 1 :] * left[i] + best[i + 1 :]
        at = int(np.argmin(costs))
        chosen[i], best[i] = i + 1 + at, costs[at]
    return Indices(_chain(chosen, n), float(best[0]))


def _left(table: Discrete) -> Array:
    """The probability that the run is still to be done after the reservation of index i; at 0 nothing was tried."""
    left = table.beyond.copy()
    left[0] = 1.0
    return left


def _chain(chosen: np.ndarray[tuple[int], np.dtype[np.int64]], n: int) -> tuple[int, ...]:
    found: list[int] = []
    at = 0
    while at < n:
        at = int(chosen[at])
        found.append(at)
    return tuple(found)


class _Adaptive:
    """The costs of one reservation while small jobs fill in behind: the terms of Theorem 2."""

    def __init__(self, table: Discrete, zeta: float) -> None:
        self.table, self.zeta, self.n = table, zeta, table.points
        self.total = np.concatenate(([0.0], np.cumsum(table.shares)))  # at l: the shares below index l
        self.weighted = np.concatenate(([0.0], np.cumsum(table.shares * table.values)))
        self.left = _left(table)

    def next_costs(self, i: int, wasted_s: float) -> Array:
        """For each j in i+1..n what that reservation costs in expectation, `wasted_s` after failed ones."""
        values, zeta = self.table.values, self.zeta
        j = np.arange(i + 1, self.n + 1)
        first = i + 1 if i else 0
        # the last index at which run and backfilling work end within the reservation
        fits = np.searchsorted(values, (values[j] + wasted_s) * (1.0 - zeta) - wasted_s, side="right") - 1
        fits = np.minimum(np.maximum(fits, first - 1), j)
        within = self.total[fits + 1] - self.total[first]
        over = self.total[j + 1] - self.total[fits + 1]
        over_s = self.weighted[j + 1] - self.weighted[fits + 1]
        late = (over_s + zeta * wasted_s * over) / (1.0 - zeta)
        costs: Array = values[j] * (within + self.left[j]) + late
        return costs


def at_optimal(table: Discrete, zeta: float) -> Indices:
    """With backfilling work at a rate of `zeta`: E(0, 0, 0) of Theorem 2, exactly.

    The state is the last reservation and W, the sum of those that failed. Costs grow with W, which is at least the last
    reservation; what a state costs at least is therefore known in O(n^2), and only states that may still lead to
    something better than the best so far are looked at.
    """
    costs_of = _Adaptive(table, zeta)
    n = table.points
    least = np.zeros(n + 1)
    chosen = np.zeros(n + 1, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        costs = costs_of.next_costs(i, float(table.values[i]) if i else 0.0) + least[i + 1 :]
        at = int(np.argmin(costs))
        chosen[i], least[i] = i + 1 + at, costs[at]
    best = _chain(chosen, n)
    best_cost = _cost(costs_of, best)
    # States in the order of their last index: (number, sum of indices) -> (cost so far, indices).
    states: list[dict[tuple[int, int], tuple[float, tuple[int, ...]]]] = [{} for _ in range(n + 1)]
    states[0][0, 0] = (0.0, ())
    for i in range(n):
        for (count, total), (so_far, indices) in states[i].items():
            if so_far + least[i] >= best_cost * (1.0 - _HAIR) and i:
                continue
            costs = so_far + costs_of.next_costs(i, count * table.low + total * table.step)
            for at in np.flatnonzero(costs + least[i + 1 :] < best_cost * (1.0 - _HAIR)).tolist():
                j, cost = i + 1 + at, float(costs[at])
                if j == n:
                    if cost < best_cost * (1.0 - _HAIR):
                        best, best_cost = (*indices, n), cost
                    continue
                key = (count + 1, total + j)
                known = states[j].get(key)
                if known is None or cost < known[0]:
                    states[j][key] = (cost, (*indices, j))
        states[i].clear()
    return Indices(best, best_cost)


def _cost(costs_of: _Adaptive, indices: Sequence[int]) -> float:
    cost = wasted = 0.0
    for i, j in pairwise((0, *indices)):
        cost += float(costs_of.next_costs(i, wasted)[j - i - 1])
        wasted += float(costs_of.table.values[j])
    return cost


def expected_request(law: Law, sequence_s: Sequence[float]) -> float:
    """What is asked for altogether in expectation (seconds): every reservation until the run is done.

    A run that is longer than the last reservation asks for that one, and for no more.
    """
    asked = 0.0
    for before, walltime in pairwise((None, *sequence_s)):
        asked += (walltime or 0.0) * (1.0 if before is None else law.survival(before))
    return asked


def finishing(law: Law, sequence_s: Sequence[float]) -> tuple[float, ...]:
    """The probability to be done with each reservation, given that those before it were not enough."""
    shares = []
    left = 1.0
    for walltime in sequence_s:
        after = law.survival(walltime)
        shares.append(1.0 - after / left if left > 0.0 else 1.0)
        left = after
    return tuple(shares)
