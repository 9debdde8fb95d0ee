"""List scheduling of evolving jobs in order of arrival (Klein & Perez 2011, Algorithm 1), and its measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ejbd.core.evolving.profiles import Profile
from ejbd.core.evolving.space import Fitted, FreeSpace


class Algorithm(StrEnum):
    """Those of the paper's section 5.1, by its names. RIGID: the peak for the whole time, as conservative backfilling
    has it."""

    RIGID = "rigid"
    NO_X = "noX"
    TWO_X = "2X"
    TWO_X_C = "2X+c"
    INF_X = "infX"
    INF_X_C = "infX+c"

    @property
    def limit(self) -> float:
        return {"rigid": 1.0, "noX": 1.0, "2X": 2.0, "infX": math.inf}[self.value.removesuffix("+c")]

    @property
    def compacts(self) -> bool:
        return self.value.endswith("+c")


def schedule(jobs: Sequence[Profile], processors: int, algorithm: Algorithm) -> list[Fitted]:
    """Where each job goes, in their order. Raises ValueError for one that is wider than the cluster."""
    space, found = FreeSpace.empty(processors), []
    for number, profile in enumerate(jobs, 1):
        asked = profile.rigid() if algorithm is Algorithm.RIGID else profile
        fitted = space.fit(asked, limit=algorithm.limit, compact=algorithm.compacts)
        if fitted is None:
            raise ValueError(f"job {number} needs {profile.peak} processors, and there are {processors}")
        space.take_fitted(fitted)
        found.append(fitted)
    return found


@dataclass(frozen=True, slots=True)
class Measures:
    """Of one schedule, by the paper's section 5.1. Shares are of 1; the paper prints per cent.

    `waste`: what is allocated beyond what computes, as a share of what computes. `allocated`: processor-seconds.
    `effective`: what computes, as a share of the cluster until the makespan. `completion_s`, `waiting_s`: means. All
    jobs are there from the beginning. `expanded`: share of the jobs that are held. `expansions`, `wastes`: of each job,
    time beyond its own, and allocation beyond its own.
    """

    waste: float
    allocated: float
    effective: float
    makespan_s: float
    completion_s: float
    waiting_s: float
    expanded: float
    expansions: tuple[float, ...]
    wastes: tuple[float, ...]


def measures(jobs: Sequence[Profile], fitted: Sequence[Fitted], processors: int) -> Measures:
    """The measures of a schedule of one job at least."""
    computes = sum(profile.area for profile in jobs)
    allocated = sum(one.held.area for one in fitted)
    makespan = max(one.completion_s for one in fitted)
    expansions = tuple(one.held.duration_s / job.duration_s - 1 for job, one in zip(jobs, fitted, strict=True))
    return Measures(
        waste=allocated / computes - 1,
        allocated=allocated,
        effective=computes / (processors * makespan),
        makespan_s=makespan,
        completion_s=sum(one.completion_s for one in fitted) / len(fitted),
        waiting_s=sum(one.start_s for one in fitted) / len(fitted),
        expanded=sum(1 for expansion in expansions if expansion > 0) / len(fitted),
        expansions=expansions,
        wastes=tuple(one.held.area / job.area - 1 for job, one in zip(jobs, fitted, strict=True)),
    )
