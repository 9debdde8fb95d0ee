"""Walltimes that are learned while a log is played: from what has ended by then, and from nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ejbd.core.speculation.empirical import Empirical, Run, empirical
from ejbd.core.speculation.sequence import plan_of

FEWEST_RUNS = 10
NEWEST = 200  # runs that a law is made of
HALF = 100  # so many runs later one counts half
GROWTH = 1.1  # a law is made anew once so many times the runs are known
EVERY = 20  # or so many more
QUANTUM_S = 60.0


class Asked(NamedTuple):
    """A job as it is submitted: what may be known of it then."""

    user: int
    processors: int
    requested_s: float


class Way(NamedTuple):
    """A way to choose walltimes. `walltimes`: one after the other, the last the user's own; `ended` hears of runs."""

    walltimes: Callable[[Asked], tuple[float, ...]]
    ended: Callable[[Asked, float], None]


def _nothing(asked: Asked, run_s: float) -> None:
    pass


def up_to(walltimes: Iterable[float], requested_s: float) -> tuple[float, ...]:
    """Whole minutes, increasing, none above the user's own request, which is the last."""
    found: list[float] = []
    for walltime in walltimes:
        rounded = -(-walltime // QUANTUM_S) * QUANTUM_S
        if rounded >= requested_s:
            break
        if rounded > 0.0 and (not found or rounded > found[-1]):
            found.append(rounded)
    return (*found, requested_s)


def own() -> Way:
    """The user's request."""
    return Way(lambda asked: (asked.requested_s,), _nothing)


def _last(count: int, choose: Callable[[Sequence[float]], Sequence[float]]) -> Way:
    """By the last runs of the user; with fewer than that many the user's request."""
    known: dict[int, deque[float]] = {}

    def walltimes(asked: Asked) -> tuple[float, ...]:
        runs = known.get(asked.user, ())
        return up_to(choose(list(runs)) if len(runs) == count else (), asked.requested_s)

    def ended(asked: Asked, run_s: float) -> None:
        known.setdefault(asked.user, deque(maxlen=count)).append(run_s)

    return Way(walltimes, ended)


def longest_of_ten() -> Way:
    """The longest of the user's last ten, after a time-out half as much again (as in Neuroscience)."""

    def choose(runs: Sequence[float]) -> Sequence[float]:
        longest = max(runs)
        return [longest * 1.5**more for more in range(12)]

    return _last(10, choose)


def mean_of_two() -> Way:
    """The mean of the user's last two (Tsafrir, Etsion, Feitelson), then the request."""
    return _last(2, lambda runs: [sum(runs) / len(runs)])


@dataclass(slots=True)
class _Known:
    """Run times of one group, the newest last, and the law that they had when it was last made."""

    runs: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    seen: int = 0
    law: Empirical | None = None
    of: int = 0  # runs that were known then


Choose = Callable[[Empirical, Asked], Sequence[float]]
Group = tuple[float, ...]


class Laws:
    """The law of earlier runs in each group, made anew when enough more of them have ended."""

    def __init__(self) -> None:
        self._known: dict[Group, _Known] = {}

    def ended(self, group: Group, time: float) -> None:
        """A run of the group is over: seconds, or what part of its request it took."""
        of = self._known.setdefault(group, _Known())
        of.runs.append(time)
        of.seen += 1

    def law(self, group: Group) -> Empirical | None:
        """The same value as long as it is the same law; None with fewer than ten runs."""
        of = self._known.get(group)
        if of is None or len(of.runs) < FEWEST_RUNS:
            return None
        if of.law is None or of.seen >= GROWTH * of.of or of.seen - of.of >= EVERY:
            weighed = [Run(run_s, False, 0.5 ** (age / HALF)) for age, run_s in enumerate(reversed(of.runs))]
            of.law, of.of = empirical(weighed), of.seen
        return of.law


def learned(choose: Choose, *, alike: bool = True) -> Way:
    """By the law of earlier runs; with fewer than ten of them the user's request.

    `alike`: of runs of the user as wide as this one that asked for as much, which is as near to an application as a log
    comes; else of all of the user's runs.
    """
    laws = Laws()

    def group(asked: Asked) -> Group:
        return tuple(asked) if alike else (asked.user,)

    def walltimes(asked: Asked) -> tuple[float, ...]:
        law = laws.law(group(asked))
        return (asked.requested_s,) if law is None else up_to(choose(law, asked), asked.requested_s)

    def ended(asked: Asked, run_s: float) -> None:
        laws.ended(group(asked), run_s)

    return Way(walltimes, ended)


def t_optimal(law: Empirical, asked: Asked) -> Sequence[float]:
    """The sequence that is expected to ask for the least."""
    return plan_of(law, limit_s=asked.requested_s).sequence_s


def quantile(share: float) -> Choose:
    """One walltime that is enough for this share of the runs, then the request."""
    return lambda law, asked: [law.quantile(share)]
