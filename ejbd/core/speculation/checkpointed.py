"""The sequence where a reservation may end with a checkpoint, from which the next one resumes (IPDPS 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ejbd.core.speculation.discrete import Discrete, discretise
from ejbd.core.speculation.laws import Law

POINTS = 100


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation. `walltime_s`: what is asked for, restart and checkpoint included; `until_s`: how much of the run
    is behind it where it succeeds; `checkpoint`: it ends with one, so that the next resumes there."""

    walltime_s: float
    until_s: float
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class CheckpointedPlan:
    """The reservations one after the other, and what the run is expected to cost."""

    reservations: tuple[Reservation, ...]
    expected_cost_s: float

    @property
    def sequence_s(self) -> tuple[float, ...]:
        return tuple(one.walltime_s for one in self.reservations)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a platform takes: alpha of what is asked for, beta of what is used, gamma a reservation (seconds)."""

    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0


REQUESTED = Prices()


@lru_cache(maxsize=1024)
def checkpointed_plan_of(
    law: Law,
    *,
    checkpoint_s: float,
    restart_s: float,
    points: int = POINTS,
    limit_s: float = math.inf,
    prices: Prices = REQUESTED,
) -> CheckpointedPlan:
    """The best reservations for a law where a checkpoint and a restart take so long. Raises ValueError.

    `limit_s`: no reservation is longer, restart and checkpoint included.
    """
    if not (0.0 <= checkpoint_s < math.inf and 0.0 <= restart_s < math.inf):
        raise ValueError("a checkpoint and a restart take 0 s or more")
    return checkpointed(discretise(law, points), checkpoint_s, restart_s, prices, limit_s=limit_s)


def checkpointed(
    table: Discrete, checkpoint_s: float, restart_s: float, prices: Prices = REQUESTED, *, limit_s: float = math.inf
) -> CheckpointedPlan:
    """E(c, i): the run goes on from the checkpoint at index c (0: there is none), and is longer than v_i."""
    n = table.points
    values = table.values
    left = table.beyond.copy()
    left[0] = 1.0
    best = np.full((n + 1, n + 1), math.inf)  # by c, i
    chosen = np.zeros((n + 1, n + 1), dtype=np.int64)
    saved = np.zeros((n + 1, n + 1), dtype=bool)
    mean = float(np.dot(table.shares, values))
    best[:, n] = prices.beta * mean
    for i in range(n - 1, -1, -1):
        later = values[i + 1 :]
        for c in range(i, -1, -1):
            done = float(values[c]) if c else 0.0
            resume = restart_s if c else 0.0
            asked = resume + later - done
            kept = (prices.alpha * asked + prices.beta * resume + prices.gamma) * left[i]
            plain = kept + prices.beta * (later - done) * left[i + 1 :] + best[c, i + 1 :]
            saving = (
                kept
                + prices.alpha * checkpoint_s * left[i]
                + prices.beta * checkpoint_s * left[i + 1 :]
                + best.diagonal()[i + 1 :]
            )
            plain[asked > limit_s] = math.inf
            saving[asked + checkpoint_s > limit_s] = math.inf
            at, at_saving = int(np.argmin(plain)), int(np.argmin(saving))
            with_one = bool(saving[at_saving] < plain[at])
            best[c, i] = saving[at_saving] if with_one else plain[at]
            chosen[c, i], saved[c, i] = i + 1 + (at_saving if with_one else at), with_one
    if not math.isfinite(best[0, 0]):
        raise ValueError("within this limit no reservation makes progress: restart, a step and a checkpoint are longer")
    return CheckpointedPlan(_reservations(values, chosen, saved, checkpoint_s, restart_s), float(best[0, 0]))


def _reservations(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    chosen: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    saved: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    checkpoint_s: float,
    restart_s: float,
) -> tuple[Reservation, ...]:
    found = []
    c = i = 0
    while i < values.shape[0] - 1:
        j, saves = int(chosen[c, i]), bool(saved[c, i])
        done, resume = (float(values[c]), restart_s) if c else (0.0, 0.0)
        walltime = resume + float(values[j]) - done + (checkpoint_s if saves else 0.0)
        found.append(Reservation(walltime, float(values[j]), saves))
        c, i = (j if saves else c), j
    return tuple(found)
