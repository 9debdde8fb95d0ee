"""The simulations behind the tables: a workload under EASY and under FCFS-malleable, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.malleable.parameters import MalleableParameters
from ejbd.sim.accounts import read_log
from ejbd.sim.metrics import Outcome, change, fragmentation, means, multiprogramming
from ejbd.sim.swf import FIELDS
from ejbd.sim.workload import Workload, workload_of
from ejbd.studies.malleable.printed import PrintedLog

_COMPLETED = 1.0  # the field `status`


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one simulation, over all of its jobs; seconds, and shares from 0 to 1.

    `slowdown` is formula 1, not bounded; `bounded` counts runs of less than 10 s as so long.
    """

    wait_s: float
    run_s: float
    response_s: float
    slowdown: float
    bounded: float
    mpl: float
    fragmentation: float

    def to_json(self) -> dict[str, float]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in Figures.__slots__}


def figures_of(workload: Workload, outcome: Outcome) -> Figures:
    """What a simulation comes to."""
    jobs, processors = workload.jobs, workload.processors
    found = means(jobs, outcome, slice(None))
    slowdown = float(((outcome.end - jobs.submit) / jobs.run).mean())
    return Figures(
        found.mean_wait_s, found.mean_run_s, found.mean_turnaround_s, slowdown, found.mean_bounded_slowdown,
        multiprogramming(jobs, outcome, processors), fragmentation(jobs, outcome, processors),
    )  # fmt: skip


def part_of(path: Path, log: PrintedLog) -> Workload:
    """The rows of a log that the paper simulated, on the paper's machine. Raises EjbError where it cannot be read.

    Each of these rows is a job, of one allocated processor and one second at least: so it comes to the paper's count.
    """
    found = read_log(path)
    part = slice(log.after, log.last)
    rows = found.rows[part].copy()
    for name in ("run_s", "processors"):
        at = FIELDS.index(name)
        rows[:, at] = np.maximum(rows[:, at], 1.0)
    rows[:, FIELDS.index("status")] = _COMPLETED
    lines = None if found.lines is None else found.lines[part]
    return workload_of(replace(found, rows=rows, lines=lines), log.name, processors=log.processors)


def with_use(parameters: MalleableParameters, log: PrintedLog) -> MalleableParameters:
    """The same with the processor use that the paper gives of a log."""
    return replace(parameters, use=log.use, use_long=log.use_long)


def asked_for(workload: Workload, outcome: Outcome) -> float:
    """Processors that jobs in the queue and jobs that run have asked for, a processor, averaged over the makespan."""
    jobs = workload.jobs
    span = float(outcome.end.max() - jobs.submit.min())
    return float((jobs.processors * (outcome.end - jobs.submit)).sum() / (workload.processors * span))


def percent(before: float, after: float) -> str:
    """A change, for a table."""
    value = change(before, after)
    return "-" if not np.isfinite(value) else f"{value:+.0f} %"


def mean_of(values: list[Figures], name: str) -> float:
    """The mean of one figure over several simulations."""
    found: Any = np.mean([getattr(one, name) for one in values])
    return float(found)
