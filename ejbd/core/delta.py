"""Delta by degree: the penalty factor of Eq. 2 (Liu & Weissman, SC'15) where it is not the same for every degree.

The paper has one Delta for all degrees of over-subscription, which is a plain number here. Measured, it grows with the
degree (benchmarks/README.md), which a :class:`DeltaByDegree` says: a second makes 1/(Delta(k)*k) seconds of full-speed
work at degree k.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from ejbd.core.progress import degree, rate

HIGHEST = 64  # from this degree on a Delta by degree stays what it is


@dataclass(frozen=True, slots=True)
class DeltaByDegree:
    """Delta at some degrees, and by them at all others.

    `points`: (degree, Delta), degrees 2 and more. Between two points, and between degree 1, where Delta is 1 by
    definition, and the lowest, it is a straight line. Beyond the highest it is a prior: it goes on along the line
    through the last two of all these where that rises, up to degree :data:`HIGHEST`, and else stays as it is.
    Raises ValueError, in a sentence, for points that cannot be.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        degrees = [at for at, _ in self.points]
        if not degrees or min(degrees) < 2 or len(set(degrees)) < len(degrees):
            raise ValueError("Delta by degree takes degrees from 2 on, each of them once")
        if not all(0 < value < math.inf for _, value in self.points):
            raise ValueError("Delta is a number above 0 at every degree")
        object.__setattr__(self, "points", tuple(sorted(self.points)))

    def at(self, degree: int) -> float:
        """Delta at a degree: 1 where nothing is over-subscribed."""
        if degree <= 1:
            return 1.0
        known = ((1, 1.0), *self.points)
        for (low, below), (high, above) in pairwise(known):
            if degree <= high:
                return above if degree == high else below + (above - below) * (degree - low) / (high - low)
        (before, lower), (last, value) = known[-2:]
        slope = max(0.0, (value - lower) / (last - before))
        return value + slope * max(0, min(degree, HIGHEST) - last)

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2:0.8,4:1.1,8:1.7`, or with `/` for the commas. Raises ValueError for what is no such text."""
        try:
            points = tuple(
                (int(at), float(value)) for at, _, value in (p.partition(":") for p in re.split("[,/]", text))
            )
        except ValueError:
            raise ValueError(f"{text!r} is no Delta by degree such as 2:0.8,4:1.1,8:1.7") from None
        return cls(points)

    def __str__(self) -> str:
        return ",".join(f"{at}:{value:.12g}" for at, value in self.points)


Delta = float | DeltaByDegree
"""The paper's one figure for all degrees, or one by degree."""


def parse_delta(text: str) -> Delta:
    """A number, or `2:0.8,4:1.1,8:1.7`. Raises ValueError for what is neither."""
    return DeltaByDegree.parse(text) if ":" in text else float(text)


def delta_at(delta: Delta, degree: int) -> float:
    """Delta at a degree (2 and more; what it is without over-subscription plays no part)."""
    return delta.at(degree) if isinstance(delta, DeltaByDegree) else delta


def least_of(delta: Delta) -> float:
    """The lowest Delta that is known."""
    return min(value for _, value in delta.points) if isinstance(delta, DeltaByDegree) else delta


def deltas_for_kernels(delta: Delta, pace: float = 1.0) -> list[float]:
    """Delta by its degree, the last for all that are higher: the form in which kernels take it.

    With a `pace` above 1 every second of work takes so much longer, without over-subscription, too.
    """
    if not isinstance(delta, DeltaByDegree):
        return [pace, pace, float(delta) * pace]
    highest = max(HIGHEST, delta.points[-1][0])
    return [delta.at(at) * pace for at in range(highest + 1)]


def rate_with(processes: int, processors: int, delta: Delta) -> float:
    """Work per second on that many processors: :func:`ejbd.core.progress.rate` with the Delta of its degree."""
    if processors <= 0:
        return 0.0
    return rate(processes, processors, delta_at(delta, degree(processes, processors)))


def delta_to_json(delta: Delta) -> Any:
    """A number, or the text of a Delta by degree."""
    return str(delta) if isinstance(delta, DeltaByDegree) else delta


def delta_from_json(value: Any) -> Delta:
    """What :func:`delta_to_json` made. Raises ValueError where `value` is not that."""
    return parse_delta(value) if isinstance(value, str) else float(value)
