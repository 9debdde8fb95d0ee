"""Synthetic workloads: the model of Lublin & Feitelson (JPDC 2003) with its published parameters, and five plain ones.

The models give run times; requested times are those times a factor drawn between 1 and `overestimate` (the f-model of
Mu'alem & Feitelson, TPDS 2001).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.swf import FIELDS, SwfLog
from ejbd.sim.world import FloatArray, IntArray

_BUCKETS = 48  # half hours of a day
_BUCKET_S = 1800.0
_CYCLIC_START = 11  # the daily cycle's gamma begins at this half hour
_LONGEST_RUN = 12.0  # natural logarithms of seconds: larger draws are drawn again
_LONGEST_GAP = 13.0


class Model(StrEnum):
    """LUBLIN: Lublin & Feitelson's, all jobs of one type. UNIFORM: sizes, run times and gaps evenly distributed.
    BURSTY: as UNIFORM, but jobs arrive in bursts of 20 with long gaps between them. WIDE_HEAVY: as UNIFORM, but every
    second job takes between half of the cluster and all of it. LONG_HEAVY, SHORT_HEAVY: as UNIFORM, but one job of five
    runs for 6 to 24 hours, nine of ten for 1 to 60 s."""

    LUBLIN = "lublin"
    UNIFORM = "uniform"
    BURSTY = "bursty"
    WIDE_HEAVY = "wide-heavy"
    LONG_HEAVY = "long-heavy"
    SHORT_HEAVY = "short-heavy"


def generate(
    model: Model, *, jobs: int, processors: int, seed: int, load: float | None = None, overestimate: float = 5.0
) -> SwfLog:
    """A log of that many jobs. `load` stretches the gaps so that the offered load is that share of the cluster.

    Raises EjbError where the figures cannot be.
    """
    if jobs < 1 or processors < 1 or overestimate < 1 or (load is not None and not load > 0):
        wanted = "jobs and processors are 1 at least, the load is above 0, an overestimate 1 at least"
        raise EjbError(Code.INVALID, "such a workload cannot be generated", hint=wanted)
    dice = np.random.default_rng(seed)
    if model is Model.LUBLIN:
        width = _lublin_sizes(dice, jobs, processors)
        run = _lublin_runs(dice, width)
        submit = _lublin_arrivals(dice, jobs)
    else:
        width = dice.integers(1, max(1, processors // 2) + 1, jobs)
        run = dice.integers(60, 14_400, jobs).astype(np.float64)
        gaps = dice.uniform(0.0, 2.0, jobs)
        if model is Model.BURSTY:
            gaps = np.where(np.arange(jobs) % 20 == 0, 20.0 * gaps, 0.02 * gaps)
        if model is Model.WIDE_HEAVY:
            wide = dice.integers(max(1, processors // 2), processors + 1, jobs)
            width = np.where(dice.random(jobs) < 0.5, wide, width)
        if model is Model.LONG_HEAVY:
            run = np.where(dice.random(jobs) < 0.2, dice.integers(21_600, 86_400, jobs), run).astype(np.float64)
        if model is Model.SHORT_HEAVY:
            run = np.where(dice.random(jobs) < 0.9, dice.integers(1, 61, jobs), run).astype(np.float64)
        scale = float((width * run).mean()) / processors / (0.8 * float(gaps.mean()))
        submit = np.cumsum(gaps * scale)
    if load is not None and jobs > 1:
        span = float(submit[-1] - submit[0])
        submit = submit * (float((width * run).sum()) / (processors * load) / span) if span > 0 else submit
    requested = np.ceil(run * dice.uniform(1.0, overestimate, jobs))
    rows = np.full((jobs, len(FIELDS)), -1.0)
    rows[:, 0] = np.arange(1, jobs + 1)
    rows[:, 1] = np.floor(submit - submit[0])
    rows[:, 3], rows[:, 4], rows[:, 7], rows[:, 8], rows[:, 10] = run, width, width, requested, 1.0
    header = (
        ("Version", "2.2"),
        ("MaxJobs", str(jobs)),
        ("MaxProcs", str(processors)),
        ("Note", f"synthetic, model {model.value}, seed {seed}, overestimate up to {overestimate:g}"),
    )
    return SwfLog(rows, header)


def _lublin_sizes(dice: np.random.Generator, jobs: int, processors: int) -> IntArray:
    serial, power_of_two, low, likely = 0.244, 0.576, 0.8, 0.86
    high = math.log2(processors)
    middle = max(low, high - 2.5)
    kind = dice.random(jobs)
    lower = dice.random(jobs) <= likely
    first, last = np.where(lower, low, middle), np.where(lower, middle, max(high, middle))
    size = first + dice.random(jobs) * (last - first)
    size = np.where(kind <= serial + power_of_two, np.floor(size + 0.5), size)
    width = np.where(kind <= serial, 1.0, np.floor(2.0**size + 0.5))
    return np.clip(width, 1, processors).astype(np.int64)


def _lublin_runs(dice: np.random.Generator, width: IntArray) -> FloatArray:
    first = dice.random(width.size) <= np.clip(-0.0054 * width + 0.78, 0.0, 1.0)
    drawn = np.full(width.size, np.inf)
    while True:
        again = drawn > _LONGEST_RUN
        if not again.any():
            run: FloatArray = np.maximum(1.0, np.floor(np.exp(drawn)))
            return run
        drawn[again] = np.where(first[again], dice.gamma(4.2, 0.94, again.sum()), dice.gamma(312.0, 0.03, again.sum()))


def _lublin_arrivals(dice: np.random.Generator, jobs: int) -> FloatArray:
    """Gaps are drawn in points; each half hour of the day costs points by how many jobs arrive in it."""
    weights = _daily_cycle(8.1737, 3.9631)
    gaps = np.full(jobs, np.inf)
    while (gaps > _LONGEST_GAP).any():
        again = gaps > _LONGEST_GAP
        gaps[again] = dice.gamma(10.2303 * 1.0225, 0.4871, again.sum())
    total = np.cumsum(np.exp(gaps) / _BUCKET_S)  # points since midnight of the first day
    days, rest = np.divmod(total, weights.sum())
    before = np.concatenate([[0.0], np.cumsum(weights)])
    bucket = np.clip(np.searchsorted(before, rest, side="right") - 1, 0, _BUCKETS - 1)
    within = (rest - before[bucket]) / weights[bucket]
    submit: FloatArray = (days * _BUCKETS + bucket + within) * _BUCKET_S
    return submit


def _daily_cycle(shape: float, scale: float) -> FloatArray:
    """Each half hour's share of the arrivals, 1 on average: a gamma density over a day that begins in the morning."""
    weights = np.zeros(_BUCKETS)
    for slot in range(_CYCLIC_START, _CYCLIC_START + _BUCKETS):
        x = np.linspace(slot - 0.5, slot + 0.5, 101)
        density = np.exp((shape - 1) * np.log(x) - x / scale - math.lgamma(shape) - shape * math.log(scale))
        weights[(slot - 1) % _BUCKETS] = np.trapezoid(density, x)
    weights /= weights.mean()
    return weights
