"""A law from few runs knows little of what is longer than all of them: it is mixed with a long tail."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ejbd.core.speculation.laws import FARTHEST, Law

_ALPHA = 2.0  # of the tail: survival (from/t)^alpha
_CUT = 0.05  # the share of the tail that a sequence does not plan for step by step


@dataclass(frozen=True, slots=True)
class Guarded(Law):
    """`law`, but for a share `aside` of the runs, which are longer than `from_s` (Pareto's law)."""

    law: Law
    aside: float
    from_s: float

    @property
    def low(self) -> float:  # type: ignore[override]
        return self.law.low

    @property
    def high(self) -> float:  # type: ignore[override]
        return math.inf

    def survival(self, time_s: float) -> float:
        tail = (self.from_s / time_s) ** _ALPHA if time_s > self.from_s else 1.0
        return (1.0 - self.aside) * self.law.survival(time_s) + self.aside * tail

    def upper(self, limit_s: float = math.inf) -> float:
        return min(limit_s, max(self.law.upper(), self.quantile(1.0 - max(FARTHEST, self.aside * _CUT))))

    def words(self) -> str:
        return f"{self.law.words()} and {self.aside:.2g} of the runs longer than {self.from_s:.6g}"


def guarded(law: Law, runs: float, longest_s: float) -> Law:
    """A law that was fitted to so many runs, the longest of which took `longest_s`."""
    return Guarded(law, 1.0 / (runs + 1.0), longest_s)
