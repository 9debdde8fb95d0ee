"""The law behind runs of the past: each form fitted by likelihood, one chosen by an information criterion.

Runs that were ended from outside count with the probability to have run longer (right censoring).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.core.speculation.empirical import Run, empirical
from ejbd.core.speculation.guarded import guarded
from ejbd.core.speculation.laws import (
    Beta,
    BoundedPareto,
    Exponential,
    Law,
    LogNormal,
    TruncatedNormal,
    Weibull,
    has_scipy,
)

FEWEST_RUNS = 10  # that ended by themselves; with fewer the user's request stands
_MISFIT = 0.95  # times 1/sqrt(n): a greater distance between the law and what was seen, and the latter is taken
_MANY_RUNS = 30  # from so many on where a law begins and ends may be read off the shortest and the longest
_SAME = 1e-3  # runs that scatter less, relative to their mean, are one value

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A law, and why it is this one.

    `criterion`: of each form that was tried, by its name, Akaike's with the correction for few runs (less is better).
    `distance`: the greatest between the best of them and what was seen (Kolmogorov and Smirnov's).
    """

    law: Law
    form: str
    runs: int
    censored: int
    criterion: tuple[tuple[str, float], ...]
    distance: float


@dataclass(frozen=True, slots=True)
class _Data:
    """Times over their median."""

    ended: Array
    weights: Array
    cut: Array
    cut_weights: Array
    scale: float

    @property
    def count(self) -> float:
        return float(self.weights.sum())


def fit(runs: Sequence[Run]) -> Fitted:
    """The law of these runs. Raises ValueError where none has come to its own end, or a time is not above 0.

    Without scipy it is always that of the runs as they were seen.
    """
    if any(not 0.0 < run.time_s < math.inf or not run.weight > 0.0 for run in runs):
        raise ValueError("run times and weights are above 0")
    seen = empirical(runs)
    ended = [run for run in runs if not run.censored]
    cut = [run for run in runs if run.censored]
    scale = float(np.median([run.time_s for run in ended]))
    data = _Data(
        np.array([run.time_s for run in ended]) / scale,
        np.array([run.weight for run in ended]),
        np.array([run.time_s for run in cut]) / scale,
        np.array([run.weight for run in cut]),
        scale,
    )
    mean = float(np.average(data.ended, weights=data.weights))
    if not has_scipy() or len(ended) < 3 or float(np.ptp(data.ended)) <= _SAME * mean:
        return Fitted(seen, "empirical", len(ended), len(cut), (), 0.0)
    tried: list[tuple[float, str, Law]] = []
    for form, fitter in _FITTERS.items():
        found = fitter(data) if form not in _WITH_ENDS or data.count >= _MANY_RUNS else None
        if found is None:
            continue
        parameters, likelihood, law = found
        n = data.count
        spare = max(n - parameters - 1.0, 0.5)
        tried.append((2.0 * parameters * (1.0 + (parameters + 1.0) / spare) - 2.0 * likelihood, form, law))
    tried.sort(key=lambda one: one[0])
    criterion = tuple((form, value) for value, form, _ in tried)
    if not tried:
        return Fitted(seen, "empirical", len(ended), len(cut), criterion, math.inf)
    _, form, law = tried[0]
    gap = _distance(law, seen.times[1:], seen.left)
    if gap > _MISFIT / math.sqrt(data.count):
        return Fitted(seen, "empirical", len(ended), len(cut), criterion, gap)
    longest = max(run.time_s for run in runs)
    return Fitted(guarded(law, data.count, longest), form, len(ended), len(cut), criterion, gap)


def _distance(law: Law, times: Sequence[float], left: Sequence[float]) -> float:
    """The greatest difference to the steps of what was seen."""
    gap = 0.0
    for at, time in enumerate(times):
        survival = law.survival(time)
        gap = max(gap, abs(survival - left[at]), abs(survival - left[at + 1]))
    return gap


Found = tuple[int, float, Law] | None
_Parts = Callable[[Array], tuple[Array, Array]]


def _search(data: _Data, start: Sequence[float], parts: _Parts) -> tuple[Array, float] | None:
    """The parameters of the greatest likelihood; `parts` gives log f of what ended and log S of what was cut."""
    from scipy.optimize import minimize

    def badness(at: Array) -> float:
        with np.errstate(all="ignore"):
            density, survival = parts(at)
            value = float(np.dot(data.weights, density) + np.dot(data.cut_weights, survival))
        return -value if math.isfinite(value) else 1e12

    found = minimize(badness, np.array(start), method="Nelder-Mead", options={"maxiter": 400, "fatol": 1e-5})
    return (found.x, -float(found.fun)) if found.fun < 1e11 else None


def _moments(data: _Data, values: Array) -> tuple[float, float]:
    mean = float(np.average(values, weights=data.weights))
    return mean, max(1e-3, math.sqrt(float(np.average((values - mean) ** 2, weights=data.weights))))


def _low_end(data: _Data) -> float:
    """Where a law begins that has an end below: the shortest run, less what so many leave open."""
    shortest = float(data.ended.min())
    return max(0.0, shortest - float(np.ptp(data.ended)) / data.ended.size)


def _likelihood_scale(data: _Data) -> float:
    return data.count * math.log(data.scale)


def _truncated_normal(low_of: Callable[[_Data], float], free: int) -> Callable[[_Data], Found]:
    def fitter(data: _Data) -> Found:
        from scipy.special import log_ndtr

        low = low_of(data)
        mean, deviation = _moments(data, data.ended)

        def parts(at: Array) -> tuple[Array, Array]:
            mu, sigma = at[0], math.exp(at[1])
            if not -20.0 < mu < 100.0:
                return np.full_like(data.ended, -math.inf), np.zeros_like(data.cut)
            whole = log_ndtr((mu - low) / sigma)
            z = (data.ended - mu) / sigma
            density = -0.5 * z * z - math.log(sigma) - 0.5 * math.log(2.0 * math.pi) - whole
            return density, log_ndtr((mu - data.cut) / sigma) - whole

        found = _search(data, (mean, math.log(deviation)), parts)
        if found is None:
            return None
        (mu, log_sigma), likelihood = found
        law = TruncatedNormal(float(mu) * data.scale, math.exp(log_sigma) * data.scale, low * data.scale)
        return free, likelihood - _likelihood_scale(data), law

    return fitter


def _log_normal(data: _Data) -> Found:
    from scipy.special import log_ndtr

    logs, cut = np.log(data.ended), np.log(data.cut)
    mean, deviation = _moments(data, logs)

    def parts(at: Array) -> tuple[Array, Array]:
        mu, sigma = at[0], math.exp(at[1])
        z = (logs - mu) / sigma
        return -0.5 * z * z - math.log(sigma) - 0.5 * math.log(2.0 * math.pi) - logs, log_ndtr((mu - cut) / sigma)

    found = _search(data, (mean, math.log(deviation)), parts)
    if found is None:
        return None
    (mu, log_sigma), likelihood = found
    law = LogNormal(float(mu) + math.log(data.scale), math.exp(log_sigma))
    return 2, likelihood - _likelihood_scale(data), law


def _weibull(data: _Data) -> Found:
    logs, cut = np.log(data.ended), np.log(data.cut)
    mean, deviation = _moments(data, logs)

    def parts(at: Array) -> tuple[Array, Array]:
        shape, log_scale = math.exp(min(at[0], 50.0)), at[1]
        power = shape * (logs - log_scale)
        density = math.log(shape) - log_scale + (shape - 1.0) * (logs - log_scale) - np.exp(power)
        return density, -np.exp(shape * (cut - log_scale))

    found = _search(data, (math.log(1.28 / deviation), mean + 0.5 * deviation), parts)
    if found is None:
        return None
    (log_shape, log_scale), likelihood = found
    law = Weibull(math.exp(log_shape), math.exp(log_scale) * data.scale)
    return 2, likelihood - _likelihood_scale(data), law


def _exponential(low_of: Callable[[_Data], float], free: int) -> Callable[[_Data], Found]:
    def fitter(data: _Data) -> Found:
        low = low_of(data)
        exposed = float(np.dot(data.weights, data.ended - low))
        exposed += float(np.dot(data.cut_weights, np.maximum(0.0, data.cut - low)))
        if exposed <= 0.0:
            return None
        scale = exposed / data.count
        likelihood = -data.count * math.log(scale) - data.count
        law = Exponential(scale * data.scale, low * data.scale)
        return free, likelihood - _likelihood_scale(data), law

    return fitter


def _high_end(data: _Data) -> float:
    """Where a law ends that has an end above: the longest run, more what so many leave open."""
    longest = float(max(data.ended.max(), data.cut.max(initial=0.0)))
    return longest + float(np.ptp(data.ended)) / data.ended.size


def _pareto(data: _Data) -> Found:
    low, high = float(data.ended.min()), _high_end(data)
    cut = np.maximum(data.cut, low)

    def parts(at: Array) -> tuple[Array, Array]:
        alpha = math.exp(min(at[0], 50.0))
        whole = math.log(-math.expm1(alpha * math.log(low / high)))
        density = math.log(alpha) + alpha * math.log(low) - (alpha + 1.0) * np.log(data.ended) - whole
        return density, np.log((low / cut) ** alpha - (low / high) ** alpha) - whole

    start = data.count / max(1e-9, float(np.dot(data.weights, np.log(data.ended / low))))
    found = _search(data, (math.log(start),), parts)
    if found is None:
        return None
    (log_alpha,), likelihood = found
    law = BoundedPareto(math.exp(log_alpha), low * data.scale, high * data.scale)
    return 3, likelihood - _likelihood_scale(data), law


def _beta(data: _Data) -> Found:
    from scipy.special import betainc, betaln

    low, high = 0.0, _high_end(data)
    spread = high - low
    shares, cut = (data.ended - low) / spread, (data.cut - low) / spread
    mean, deviation = _moments(data, shares)
    both = max(0.1, mean * (1.0 - mean) / deviation**2 - 1.0)

    def parts(at: Array) -> tuple[Array, Array]:
        alpha, beta = math.exp(min(at[0], 20.0)), math.exp(min(at[1], 20.0))
        density = (alpha - 1.0) * np.log(shares) + (beta - 1.0) * np.log1p(-shares) - betaln(alpha, beta)
        return density - math.log(spread), np.log(betainc(beta, alpha, 1.0 - cut))

    found = _search(data, (math.log(mean * both), math.log((1.0 - mean) * both)), parts)
    if found is None:
        return None
    (log_alpha, log_beta), likelihood = found
    law = Beta(math.exp(log_alpha), math.exp(log_beta), low * data.scale, high * data.scale)
    return 3, likelihood - _likelihood_scale(data), law


def _zero(data: _Data) -> float:
    return 0.0


_FITTERS: dict[str, Callable[[_Data], Found]] = {
    "truncnorm": _truncated_normal(_zero, 2),
    "truncnorm from the shortest": _truncated_normal(_low_end, 3),
    "lognormal": _log_normal,
    "weibull": _weibull,
    "exponential": _exponential(_zero, 1),
    "exponential from the shortest": _exponential(_low_end, 2),
    "beta": _beta,
    "pareto": _pareto,
}
_WITH_ENDS = {"truncnorm from the shortest", "exponential from the shortest", "beta", "pareto"}
