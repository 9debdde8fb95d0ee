"""What elastic jobs would have been worth on a centre's own log: gains, losses, costs, and when it stops paying.

docs/value.md is made of it (:mod:`ejbd.studies.value.page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.delta import Delta, DeltaByDegree
from ejbd.core.parameters import declared
from ejbd.sim.fairness import Shift, shift
from ejbd.sim.grid import Cell, grid
from ejbd.sim.metrics import Outcome, change, makespan, means, paper_trim, utilization
from ejbd.sim.progress import part
from ejbd.sim.run import Policy
from ejbd.sim.settings import Setting, Source, play
from ejbd.sim.workload import Workload

DELTA = DeltaByDegree(((2, 0.8), (4, 1.35), (8, 1.7)))
"""The medians of five programs that were measured (benchmarks/README.md, Figure 6)."""
DELTAS = (1.0, 1.2, 1.5, 2.0, 3.0)  # for all degrees
LAMBDAS_S = (30.0, 120.0, 600.0, 1800.0)
FEW_JOBS = 10  # of a user; nothing is said by name of one with fewer
NOTICED = 1.0  # per cent by which a user's mean turnaround has to change to count


@dataclass(frozen=True, slots=True)
class Group:
    """Some jobs: how many, their mean waiting and turnaround times (seconds) before and after."""

    name: str
    jobs: int
    wait_before_s: float
    wait_s: float
    before_s: float
    after_s: float

    @property
    def change_percent(self) -> float:
        return change(self.before_s, self.after_s)


@dataclass(frozen=True, slots=True)
class OfUser:
    """One user's jobs: mean turnaround (seconds) before and after. `elastic`: how many of them were elastic."""

    user: str
    jobs: int
    elastic: int
    before_s: float
    after_s: float

    @property
    def change_percent(self) -> float:
        return change(self.before_s, self.after_s)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the batch system beyond what its users ask without EJB, at the most.

    `submissions`: of subjobs. `cancellations`: of place holders that their jobs did not need. `hours`: that the log
    lasts. `elastic`: jobs that this is for. `most`: submissions of subjobs for one job.
    """

    submissions: int
    cancellations: int
    elastic: int
    most: int
    hours: float


@dataclass(frozen=True, slots=True)
class Price:
    """Processor-seconds that were used, before and after, and the seconds by which all jobs together ended earlier."""

    before: float
    after: float
    gained_s: float
    utilization_before: float
    utilization: float

    @property
    def more_percent(self) -> float:
        return change(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Value:
    """One log. `points`: (Delta, lambda in seconds) -> change of the mean turnaround of all jobs, and of the others
    than elastic ones, in per cent."""

    name: str
    workload: Workload
    setting: Setting
    groups: Mapping[str, Group]
    others_start: Shift
    elastic_end: Shift
    cells: Sequence[Cell]
    users: Sequence[OfUser]
    price: Price
    asked: Asked
    points: Mapping[tuple[float, float], tuple[float, float]]


def live_setting(changes: Mapping[str, Any], min_processors: int, trimmed: bool) -> Setting:
    """EJB as a queue has it by default, with Delta as it was measured.

    `changes` to its parameters are by the names of their fields.
    """
    usual = {name: one.queue_default for name, one in declared(BundlingParameters).items()}
    usual["fair_half_life_s"] = 0.0  # what it costs is told apart (docs/policies.md): it is not compiled
    parameters = replace(BundlingParameters(), **{**usual, "delta": DELTA, **changes})
    setting = Setting(parameters=parameters, trimmed=trimmed)
    return replace(setting, choice=replace(setting.choice, min_processors=min_processors))


def value_of(
    source: Source, setting: Setting, *, deltas: Sequence[float] = DELTAS, lambdas_s: Sequence[float] = LAMBDAS_S
) -> Value:
    """Simulate a log without EJB, with it as `setting` says, and with every Delta and lambda.

    Jobs count that the paper's trim leaves in both, where the setting is trimmed.
    """
    count = 2 + len(deltas) * len(lambdas_s)
    with part("without EJB", 0.0, 1 / count):
        workload, easy, _ = play(source, replace(setting, policy=Policy.EASY))
    with part("with EJB", 1 / count, 2 / count):
        _, ejb, _ = play(source, setting, again=count - 1)
    points = {}
    for number, (delta, lambda_s) in enumerate((d, s) for d in deltas for s in lambdas_s):
        here = replace(setting, parameters=replace(setting.parameters, delta=delta, lambda_s=lambda_s))
        with part(f"Delta {delta:g}, lambda {lambda_s:g} s", (number + 2) / count, (number + 3) / count):
            _, outcome, _ = play(source, here, again=count - 2 - number)
        found = _groups(workload, easy, outcome, setting)
        points[delta, lambda_s] = found["all"].change_percent, found["others"].change_percent
    kept = _kept(workload, easy, ejb, setting)
    elastic = ejb.elastic != 0
    return Value(
        workload.name,
        workload,
        setting,
        _groups(workload, easy, ejb, setting),
        shift(easy.start[kept & ~elastic], ejb.start[kept & ~elastic]),
        shift(easy.end[kept & elastic], ejb.end[kept & elastic]),
        grid(workload.jobs, easy, ejb, kept),
        _users(workload, easy, ejb, kept),
        _price(workload, easy, ejb),
        _asked(workload, ejb),
        points,
    )


def _kept(workload: Workload, easy: Outcome, ejb: Outcome, setting: Setting) -> Any:
    if not setting.trimmed:
        return np.full(len(workload), True)
    return paper_trim(workload.jobs, easy) & paper_trim(workload.jobs, ejb)


def _groups(workload: Workload, easy: Outcome, ejb: Outcome, setting: Setting) -> dict[str, Group]:
    """All jobs, those that EJB made elastic, and the others (which are not, since they are narrow or could start at
    once)."""
    kept, elastic = _kept(workload, easy, ejb, setting), ejb.elastic != 0
    groups = {}
    for name, chosen in (("all", kept), ("elastic", kept & elastic), ("others", kept & ~elastic)):
        old, new = means(workload.jobs, easy, chosen), means(workload.jobs, ejb, chosen)
        groups[name] = Group(
            name, old.jobs, old.mean_wait_s, new.mean_wait_s, old.mean_turnaround_s, new.mean_turnaround_s
        )
    return groups


def _users(workload: Workload, easy: Outcome, ejb: Outcome, kept: Any) -> list[OfUser]:
    """Users with more than a few jobs, those with the most first; empty where the log does not tell users."""
    if workload.users is None:
        return []
    jobs, found = workload.jobs, []
    old, new = easy.end - jobs.submit, ejb.end - jobs.submit
    for number in np.unique(workload.users[kept]).tolist():
        chosen = kept & (workload.users == number)
        count = int(np.count_nonzero(chosen))
        if number < 0 or count < FEW_JOBS:
            continue
        name = workload.user_names[number] if 0 < number < len(workload.user_names) else f"user {number}"
        elastic = int(np.count_nonzero(ejb.elastic[chosen]))
        found.append(OfUser(name, count, elastic, float(old[chosen].mean()), float(new[chosen].mean())))
    return sorted(found, key=lambda one: -one.jobs)


def _price(workload: Workload, easy: Outcome, ejb: Outcome) -> Price:
    return Price(
        float(easy.used.sum()),
        float(ejb.used.sum()),
        float((easy.end - ejb.end).sum()),
        utilization(workload.jobs, easy, workload.processors),
        utilization(workload.jobs, ejb, workload.processors),
    )


def _asked(workload: Workload, ejb: Outcome) -> Asked:
    """J0 is submitted in the place of the user's own job, so that it is no more than there was."""
    elastic = ejb.elastic != 0
    count = int(np.count_nonzero(elastic))
    subjobs = ejb.subjobs[elastic]
    hours = makespan(workload.jobs, ejb) / 3600
    return Asked(int(subjobs.sum()), count, count, int(subjobs.max(initial=0)), hours)


def break_even(value: Value, lambda_s: float, *, others: bool = False) -> float | None:
    """The Delta (for all degrees) from which on elastic jobs make the mean turnaround longer at this lambda.

    By straight lines between those that were simulated; None: it pays up to the highest.
    """
    of = int(others)
    line = sorted((delta, changes[of]) for (delta, at_s), changes in value.points.items() if at_s == lambda_s)
    before: tuple[float, float] | None = None
    for delta, percent in line:
        if percent > 0:
            if before is None:
                return delta
            low, was = before
            return low + (delta - low) * -was / (percent - was)
        before = delta, percent
    return None


def told(delta: Delta) -> str:
    """Delta for people."""
    if isinstance(delta, DeltaByDegree):
        return ", ".join(f"{value:g} at degree {degree}" for degree, value in delta.points)
    return f"{delta:g}"
