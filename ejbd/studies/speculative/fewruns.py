"""What a law from few runs costs where no form fits them: two lengths, or some that fail early."""

from __future__ import annotations

import numpy as np

from ejbd.core.speculation.empirical import Run, empirical
from ejbd.core.speculation.fitting import FEWEST_RUNS, fit
from ejbd.core.speculation.sequence import expected_request, plan_of

ODD = ("two clusters", "early failures")
TRUTH = 1000  # draws that stand for the law itself
POINTS = 400  # the best sequence is sought at
LIMIT_S = 20_000.0


def draw(kind: str, count: int, dice: np.random.Generator) -> list[Run]:
    """Runs of about 10 and 110 minutes, half of each; or of 110, of which three of ten fail within a minute."""
    long = dice.normal(6600.0, 300.0, count)
    if kind == ODD[0]:
        times = np.where(dice.random(count) < 0.5, dice.normal(600.0, 30.0, count), long)
    else:
        times = np.where(dice.random(count) < 0.3, dice.uniform(5.0, 60.0, count), long)
    return [Run(float(time)) for time in times]


def costs_of(kind: str, runs: int = FEWEST_RUNS, seeds: int = 20) -> list[float]:
    """By seed: what is asked for in expectation with a law from so many runs, over what the best sequence asks for."""
    truth = empirical(draw(kind, TRUTH, np.random.default_rng(0)))
    best = expected_request(truth, plan_of(truth, points=POINTS, limit_s=LIMIT_S).sequence_s)
    found = []
    for seed in range(1, seeds + 1):
        learned = fit(draw(kind, runs, np.random.default_rng(seed))).law
        found.append(expected_request(truth, plan_of(learned, limit_s=LIMIT_S).sequence_s) / best)
    return found
