"""From a log's rows to the jobs that are simulated, by rules that have names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.swf import RowFault, SwfLog
from ejbd.sim.world import Jobs


class RowRule(StrEnum):
    """What becomes of a row's fields.

    PYSS, as the simulator of the EJB paper has it: walltime = max(requested, run, 1), run = max(min(requested, run), 1)
    and the allocated processors, 1 at least and all at most. A bad row (run or allocated not above 0, or submitted
    before 0) is kept with walltime 1 and run 1. CLEAN: bad rows are left out; a row without a requested time asks for
    its run time, one without allocated processors has the requested ones.
    """

    PYSS = "pyss"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of submission for a cluster of `processors`, and what was odd about the log."""

    name: str
    processors: int
    jobs: Jobs
    faults: tuple[RowFault, ...] = ()

    def __len__(self) -> int:
        return int(self.jobs.submit.shape[0])


def workload_of(
    log: SwfLog, name: str, *, processors: int | None = None, rule: RowRule = RowRule.PYSS, limit: int | None = None
) -> Workload:
    """The workload of a log. `limit`: the first rows only. Raises EjbError where the cluster's size is not known."""
    if processors is None:
        said = log.value("MaxProcs") or log.value("MaxNodes")
        if said is None or not said.split()[0].isdigit():
            raise EjbError(
                Code.INVALID, f"the header of {name} has no MaxProcs; give the cluster's processors with --procs"
            )
        processors = int(said.split()[0])
    if processors < 1:
        raise EjbError(Code.INVALID, f"a cluster has 1 processor at least, not {processors}")
    rows = log.rows[:limit]
    submit, run, allocated, requested = rows[:, 1], np.trunc(rows[:, 3]), rows[:, 4], np.trunc(rows[:, 8])
    faults = list(log.faults)
    if rule is RowRule.CLEAN:
        allocated = np.where(allocated > 0, allocated, rows[:, 7])
        requested = np.where(requested > 0, requested, run)
    bad = (run <= 0) | (allocated <= 0) | (submit < 0)
    kept = np.full(len(rows), True) if rule is RowRule.PYSS else ~bad
    for index in np.flatnonzero(bad):
        line = log.lines[index] if log.lines else int(index) + 1
        what = f"job {rows[index, 0]:.0f} has run time {run[index]:g}, processors {allocated[index]:g}"
        faults.append(RowFault(line, what, bool(kept[index])))
    walltime = np.where(bad, 1.0, np.maximum(np.maximum(requested, run), 1.0))
    true_run = np.where(bad, 1.0, np.maximum(np.minimum(requested, run), 1.0))
    width = np.minimum(np.maximum(allocated, 1.0), processors).astype(np.int64)
    order = np.flatnonzero(kept)
    order = order[np.argsort(submit[order], kind="stable")]
    jobs = Jobs(
        np.maximum(submit[order], 0.0), true_run[order], walltime[order], width[order], rows[order, 0].astype(np.int64)
    )
    return Workload(name, processors, jobs, tuple(sorted(faults, key=lambda fault: fault.line)))


def scaled_arrivals(workload: Workload, factor: float) -> Workload:
    """The same jobs arriving `factor` times as fast: the gaps between submissions are divided by it."""
    if not factor > 0:
        raise EjbError(Code.INVALID, f"arrivals cannot come {factor:g} times as fast; give a factor above 0")
    first = workload.jobs.submit[0] if len(workload) else 0.0
    submit = np.floor(first + (workload.jobs.submit - first) / factor)
    return Workload(workload.name, workload.processors, workload.jobs._replace(submit=submit), workload.faults)
