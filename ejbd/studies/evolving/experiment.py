"""The experiment of Klein & Perez, section 5.1: random jobs on an empty cluster, under each of their algorithms."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from ejbd.core.evolving.listing import Algorithm, Measures, measures, schedule
from ejbd.core.evolving.profiles import Profile, Step
from ejbd.sim import progress
from ejbd.studies.evolving.printed import NODES

JOBS, STEPS, DURATION_S, WIDTH = (15, 20), (1, 10), (500, 3600), (1, 75)
Triple = tuple[float, float, float]


def draw(dice: random.Random) -> list[Profile]:
    """One test: uniform whole numbers of jobs, steps, seconds and nodes, the ends among them."""
    return [
        Profile(
            tuple(Step(float(dice.randint(*DURATION_S)), dice.randint(*WIDTH)) for _ in range(dice.randint(*STEPS)))
        )
        for _ in range(dice.randint(*JOBS))
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """An algorithm's measures over all tests as least, mean, greatest; some are relative to rigid of the same test."""

    algorithm: str
    values: dict[str, Triple]


def experiment(tests: int, seed: int) -> list[Row]:
    """All algorithms on the same tests."""
    dice = random.Random(seed)
    found: dict[Algorithm, dict[str, list[float]]] = {algorithm: {} for algorithm in Algorithm}
    for number in range(tests):
        jobs = draw(dice)
        rigid: Measures | None = None
        for algorithm in Algorithm:
            begin = time.process_time()
            fitted = schedule(jobs, NODES, algorithm)
            elapsed_ms = 1000 * (time.process_time() - begin)
            told = measures(jobs, fitted, NODES)
            rigid = rigid or told
            for name, values in _figures(told, rigid, elapsed_ms).items():
                found[algorithm].setdefault(name, []).extend(values)
        progress.tell(f"{tests} tests", (number + 1) / tests)
    return [
        Row(algorithm.value, {name: (min(seen), sum(seen) / len(seen), max(seen)) for name, seen in values.items()})
        for algorithm, values in found.items()
    ]


def _figures(told: Measures, rigid: Measures, elapsed_ms: float) -> dict[str, list[float]]:
    """In the paper's units. Of a job: one value for each."""
    return {
        "waste": [100 * told.waste],
        "utilisation": [told.allocated / rigid.allocated],
        "effective": [100 * told.effective],
        "makespan": [told.makespan_s / rigid.makespan_s],
        "time": [elapsed_ms],
        "completion": [told.completion_s / rigid.completion_s],
        "waiting": [told.waiting_s / rigid.waiting_s if rigid.waiting_s else 1.0],
        "expanded": [100 * told.expanded],
        "expansion": [100 * one for one in told.expansions],
        "job_waste": [100 * one for one in told.wastes],
    }
