"""The figures of a simulation, by the definitions of Liu & Weissman (SC'15, section 6.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.sim.world import FloatArray, IntArray, Jobs

BOUND_S = 10.0  # bounded slowdown counts a shorter run as this long


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each job, in the order of submission. Times in seconds.

    `elastic`: it did not start in its own shape. `without_workers`: its J0 ran it so. `subjobs` counts a J0 that ran
    the application; `moved_s` is the time spent in moves, `used` processor-seconds.
    """

    start: FloatArray
    end: FloatArray
    used: FloatArray
    moved_s: FloatArray
    subjobs: IntArray
    moves: IntArray
    elastic: IntArray
    idle_s: float  # processor-seconds idle while a job waited
    queued_s: float  # seconds in which a job waited
    events: int
    elapsed_s: float  # without kernels_s
    kernels_s: float = 0.0  # compiling or loading kernels
    compiled: bool = False
    without_workers: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """Means over a set of jobs."""

    jobs: int
    mean_wait_s: float
    mean_run_s: float
    mean_turnaround_s: float
    mean_bounded_slowdown: float

    def to_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "mean_wait_s": finite(self.mean_wait_s),
            "mean_run_s": finite(self.mean_run_s),
            "mean_turnaround_s": finite(self.mean_turnaround_s),
            "mean_bounded_slowdown": finite(self.mean_bounded_slowdown),
        }


def finite(value: float) -> float | None:
    """What JSON has a word for: a number, or None for what is none."""
    return value if math.isfinite(value) else None


def means(jobs: Jobs, outcome: Outcome, kept: Any) -> Means:
    """Means over the jobs that `kept` (flags) names. The slowdown is against the true run time in the job's shape."""
    count = int(np.count_nonzero(kept))
    if count == 0:
        return Means(0, math.nan, math.nan, math.nan, math.nan)
    wait = (outcome.start - jobs.submit)[kept]
    run = (outcome.end - outcome.start)[kept]
    turnaround = (outcome.end - jobs.submit)[kept]
    slowdown = np.maximum(1.0, turnaround / np.maximum(jobs.run[kept], BOUND_S))
    return Means(count, float(wait.mean()), float(run.mean()), float(turnaround.mean()), float(slowdown.mean()))


def idle_while_queued(outcome: Outcome) -> float:
    """Fragmentation: processors idle on average while the queue is not empty."""
    return outcome.idle_s / outcome.queued_s if outcome.queued_s > 0 else 0.0


def fragmentation(jobs: Jobs, outcome: Outcome, processors: int) -> float:
    """Formula 2 of Utrera et al. (2012): processors idle while jobs wait, as a share (0 to 1) of the makespan's."""
    span = makespan(jobs, outcome)
    return outcome.idle_s / (processors * span) if span > 0 else 0.0


def multiprogramming(jobs: Jobs, outcome: Outcome, processors: int) -> float:
    """Processes of all running jobs a processor, on average over the makespan (Utrera et al., Table 3)."""
    span = makespan(jobs, outcome)
    run = outcome.end - outcome.start
    return float((jobs.processors * run).sum() / (processors * span)) if span > 0 else 0.0


def makespan(jobs: Jobs, outcome: Outcome) -> float:
    """Seconds from the first submission to the last end."""
    return float(outcome.end.max() - jobs.submit.min()) if outcome.end.size else 0.0


def utilization(jobs: Jobs, outcome: Outcome, processors: int) -> float:
    """Processor-seconds used over those there were in the makespan."""
    span = makespan(jobs, outcome)
    return float(outcome.used.sum() / (processors * span)) if span > 0 else 0.0


def paper_trim(jobs: Jobs, outcome: Outcome) -> Any:
    """Flags: not among the first 1 % by submission, and ended by the last arrival."""
    count = jobs.submit.size
    flags = outcome.end <= jobs.submit.max()
    flags[: math.ceil(count / 100)] = False
    return flags


def overhead(jobs: Jobs, outcome: Outcome) -> FloatArray:
    """Processor-seconds beyond those of the job in its own shape, as a share of those."""
    own = jobs.processors * jobs.run
    return (outcome.used - own) / own


def move_share(outcome: Outcome) -> FloatArray:
    """The share of a job's run time that was spent in moves."""
    run = outcome.end - outcome.start
    share: FloatArray = np.divide(outcome.moved_s, run, out=np.zeros_like(run), where=run > 0)
    return share


def change(before: float, after: float) -> float:
    """In per cent; not a number where there is nothing to compare with."""
    return 100.0 * (after / before - 1.0) if before else math.nan


def confidence_95(differences: FloatArray) -> tuple[float, float]:
    """The 95 % interval of the mean of paired differences, by the normal distribution."""
    half = 1.959964 * float(differences.std(ddof=1)) / math.sqrt(differences.size) if differences.size > 1 else math.nan
    middle = float(differences.mean()) if differences.size else math.nan
    return middle - half, middle + half
