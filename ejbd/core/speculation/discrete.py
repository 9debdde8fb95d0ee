"""Equally spaced discretisation (section 4.2): what the sequences are worked out on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.core.speculation.laws import Law, survivals

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Discrete:
    """Run times v_i = low + i * step, i = 0..n, with the probabilities f_i; what they lack of 1 is longer than v_n.

    `beyond`: P(X > v_i), with that rest in it.
    """

    low: float
    step: float
    values: Array
    shares: Array
    beyond: Array

    @property
    def points(self) -> int:
        return int(self.values.shape[0]) - 1


def discretise(law: Law, points: int, upper_s: float | None = None) -> Discrete:
    """A law on [low, `upper_s`], by default up to where it ends, in so many steps. Raises ValueError."""
    upper = law.upper() if upper_s is None else upper_s
    if points < 1:
        raise ValueError("a law is discretised at 1 point or more")
    if not upper > law.low:
        raise ValueError("a law cannot be discretised where it has not begun")
    step = (upper - law.low) / points
    values: Array = law.low + step * np.arange(points + 1, dtype=np.float64)
    values[-1] = upper
    beyond = survivals(law, values.tolist())
    shares = np.empty(points + 1)
    shares[0] = 1.0 - beyond[0]
    shares[1:] = beyond[:-1] - beyond[1:]
    return Discrete(law.low, step, values, shares, beyond)
