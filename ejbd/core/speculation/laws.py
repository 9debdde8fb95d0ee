"""Laws of run times: what is known of how long an application runs, as a distribution.

Each law is a frozen value, so that what was worked out for it can be kept by it. All are cut to [low, high] (seconds)
and are conditioned on lying there; `high` may be infinite.
"""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

LONGEST_S = 1e9  # that is taken as a time
FARTHEST = 1e-4  # what a law without an upper end is cut off at: the probability beyond
_STEPS = 512  # of an integral over a law


@cache
def has_scipy() -> bool:
    """Whether laws can be fitted here, and be beta laws: the daemon alone does without."""
    return importlib.util.find_spec("scipy") is not None


class Law(ABC):
    """A distribution of run times between `low` and `high` (seconds)."""

    low: float
    high: float

    @abstractmethod
    def survival(self, time_s: float) -> float:
        """The probability to run longer than `time_s`."""

    def cdf(self, time_s: float) -> float:
        """The probability to be done by `time_s`."""
        return 1.0 - self.survival(time_s)

    def quantile(self, share: float) -> float:
        """The shortest time by which so large a share of the runs is done; found by halving."""
        low, high = self.low, self.high
        if not math.isfinite(high):
            high = max(1.0, 2.0 * low)
            while self.cdf(high) < share and high < 1e18:
                high *= 2.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            if self.cdf(middle) < share:
                low = middle
            else:
                high = middle
        return high

    def upper(self, limit_s: float = math.inf) -> float:
        """Where a sequence has to end: the law's own end, or where next to nothing is left; at most `limit_s`."""
        end = self.high if math.isfinite(self.high) else self.quantile(1.0 - FARTHEST)
        return min(end, limit_s)

    def part_of_mean(self, low_s: float, high_s: float) -> float:
        """The integral of t f(t) from `low_s` to `high_s`, with f the law's density."""
        low_s, high_s = max(low_s, self.low), min(high_s, self.upper())
        if high_s <= low_s:
            return 0.0
        times = np.linspace(low_s, high_s, _STEPS + 1)
        left = np.array([self.survival(float(time)) for time in times])
        area = float(np.sum((left[1:] + left[:-1]) * np.diff(times)) / 2.0)
        return low_s * float(left[0]) - high_s * float(left[-1]) + area

    @property
    def mean(self) -> float:
        """The mean run time (seconds)."""
        return _mean(self)

    @abstractmethod
    def words(self) -> str:
        """The law as `ejb history sequence --law` takes it."""


@lru_cache(maxsize=512)
def _mean(law: Law) -> float:
    return law.part_of_mean(law.low, law.upper())


class _Cut(Law):
    """A law that is another one, on [low, high]."""

    @abstractmethod
    def whole(self, time_s: float) -> float:
        """The survival of the law before it is cut."""

    def survival(self, time_s: float) -> float:
        if time_s <= self.low:
            return 1.0
        if time_s >= self.high:
            return 0.0
        below, above = self.whole(self.low), self.whole(self.high) if math.isfinite(self.high) else 0.0
        if below <= above:  # all of it is beyond an end, as far as numbers go
            return 1.0 if self.whole(self.low) > 0.5 else 0.0
        return min(1.0, max(0.0, (self.whole(time_s) - above) / (below - above)))


def _text(value: float) -> str:
    return f"{value:.12g}"


def _ends(low: float, high: float) -> str:
    return f",low={_text(low)}" + (f",high={_text(high)}" if math.isfinite(high) else "")


@dataclass(frozen=True, slots=True)
class TruncatedNormal(_Cut):
    """A normal law of mean `mu` and deviation `sigma` (seconds), before it is cut."""

    mu: float
    sigma: float
    low: float = 0.0
    high: float = math.inf

    def whole(self, time_s: float) -> float:
        return 0.5 * math.erfc((time_s - self.mu) / (self.sigma * math.sqrt(2.0)))

    def words(self) -> str:
        return f"truncnorm:mu={_text(self.mu)},sigma={_text(self.sigma)}{_ends(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class LogNormal(_Cut):
    """The logarithm of the run time (in seconds) is normal, of mean `mu` and deviation `sigma`."""

    mu: float
    sigma: float
    low: float = 0.0
    high: float = math.inf

    def whole(self, time_s: float) -> float:
        if time_s <= 0.0:
            return 1.0
        return 0.5 * math.erfc((math.log(time_s) - self.mu) / (self.sigma * math.sqrt(2.0)))

    def words(self) -> str:
        return f"lognormal:mu={_text(self.mu)},sigma={_text(self.sigma)}{_ends(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Weibull(_Cut):
    """Survival exp(-(t/scale)^shape), `scale` in seconds."""

    shape: float
    scale: float
    low: float = 0.0
    high: float = math.inf

    def whole(self, time_s: float) -> float:
        if time_s <= 0.0:
            return 1.0
        power = self.shape * math.log(time_s / self.scale)
        return math.exp(-math.exp(power)) if power < 7.0 else 0.0

    def words(self) -> str:
        return f"weibull:shape={_text(self.shape)},scale={_text(self.scale)}{_ends(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Exponential(_Cut):
    """Survival exp(-(t-low)/scale), `scale` in seconds."""

    scale: float
    low: float = 0.0
    high: float = math.inf

    def whole(self, time_s: float) -> float:
        return math.exp(-max(0.0, time_s - self.low) / self.scale)

    def words(self) -> str:
        return f"exponential:scale={_text(self.scale)}{_ends(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class BoundedPareto(_Cut):
    """Survival (low/t)^alpha on [low, high], before it is cut; `low` above 0."""

    alpha: float
    low: float
    high: float

    def whole(self, time_s: float) -> float:
        return (self.low / time_s) ** self.alpha if time_s > self.low else 1.0

    def words(self) -> str:
        return f"pareto:alpha={_text(self.alpha)}{_ends(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Beta(Law):
    """A beta law of `alpha` and `beta`, stretched to [low, high]."""

    alpha: float
    beta: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not has_scipy():
            raise ValueError("a beta law is computed by scipy, which is not installed: pip install 'ejb[sim]'")

    def survival(self, time_s: float) -> float:
        from scipy.special import betainc

        share = min(1.0, max(0.0, (time_s - self.low) / (self.high - self.low)))
        return float(betainc(self.beta, self.alpha, 1.0 - share))

    def words(self) -> str:
        return f"beta:alpha={_text(self.alpha)},beta={_text(self.beta)}{_ends(self.low, self.high)}"


# -- laws by their words ----------------------------------------------------------------------------------------------

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIMES = {"mu", "sigma", "low", "high", "scale", "mean"}
_FORMS: dict[str, tuple[Callable[..., Law], tuple[str, ...], tuple[str, ...]]] = {
    "truncnorm": (TruncatedNormal, ("mu", "sigma"), ("low", "high")),
    "lognormal": (LogNormal, ("mu", "sigma"), ("low", "high")),
    "weibull": (Weibull, ("shape", "scale"), ("low", "high")),
    "exponential": (Exponential, ("scale",), ("low", "high")),
    "pareto": (BoundedPareto, ("alpha", "low", "high"), ()),
    "beta": (Beta, ("alpha", "beta", "low", "high"), ()),
}
FORMS = tuple(_FORMS)


def seconds_of(text: str) -> float:
    """A time as a number with a unit (s, m, h, d), seconds without one. Raises ValueError."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :]
    if unit and unit not in _UNITS:
        raise ValueError(f"{text!r} is no time: a number with s, m, h or d")
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"{text!r} is no time: a number with s, m, h or d") from None
    seconds = value * _UNITS[unit or "s"]
    if not abs(seconds) <= LONGEST_S:
        raise ValueError(f"{text!r} is no time that a job could take: at most {LONGEST_S:.0e} s")
    return seconds


def law_of(text: str) -> Law:
    """A law by its words, such as truncnorm:mu=8h,sigma=2h,low=0h,high=20h. Raises ValueError with a sentence."""
    form, _, rest = text.partition(":")
    if form not in _FORMS:
        raise ValueError(f"{form!r} is no law that is known here: one of {', '.join(FORMS)}")
    made, needed, free = _FORMS[form]
    given: dict[str, float] = {}
    for word in rest.split(",") if rest else ():
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals or name not in (*needed, *free):
            raise ValueError(f"{word!r} is no part of a {form} law: {', '.join((*needed, *free))}, each NAME=VALUE")
        if name in given:
            raise ValueError(f"{name} is given twice")
        logarithmic = form == "lognormal" and name in ("mu", "sigma")
        given[name] = _plain(name, value) if logarithmic or name not in _TIMES else seconds_of(value.strip())
    missing = [name for name in needed if name not in given]
    if missing:
        raise ValueError(f"a {form} law needs {', '.join(missing)}")
    _check(form, given)
    return made(**given)


def _plain(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is a number, not {text!r}")
    return value


def _check(form: str, given: dict[str, float]) -> None:
    for name in ("sigma", "scale", "shape", "alpha", "beta"):
        if given.get(name, 1.0) <= 0.0:
            raise ValueError(f"{name} must be above 0")
    low, high = given.get("low", 0.0), given.get("high", math.inf)
    if low < 0.0 or not low < high:
        raise ValueError("low must not be below 0, and high must be above low")
    if form == "pareto" and low <= 0.0:
        raise ValueError("low of a pareto law must be above 0")


def survivals(law: Law, times_s: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The survival at each time."""
    return np.array([law.survival(float(time)) for time in times_s], dtype=np.float64)
