"""From a log's rows to the jobs that are simulated, by rules that have names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.swf import Oddity, SwfLog
from ejbd.sim.world import FloatArray, IntArray, Jobs

_CANCELLED = 5  # values of the field `status`
_PARTS = (2, 3, 4)


class RowRule(StrEnum):
    """What becomes of a row's fields; how many rows either changes or leaves out is told.

    ARCHIVE, after the archive's conventions (Feitelson, Tsafrir & Krakov, JPDC 2014): a row without a requested time
    asks for its run time, one without allocated processors has the requested ones; a job that ran longer than it asked
    for asks for as much as it ran; run times are rounded up to whole seconds, 1 at least. Left out are jobs that never
    ran (no run time, no processors, cancelled before their start), that have no submit time or are wider than the
    cluster, and the parts of a job that has a row of its own for the whole of it.

    PYSS, as the simulator of the EJB paper has it: walltime = max(requested, run, 1), run = max(min(requested, run), 1)
    and the allocated processors, 1 at least and all at most. A bad row (run or allocated not above 0, or submitted
    before 0) is kept with walltime 1 and run 1. Without a requested time run is 1, too.
    """

    ARCHIVE = "archive"
    PYSS = "pyss"


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of submission for a cluster of `processors`, and what is to be told about the log's rows.

    `users`: the user of each job, by the log's numbers (-1: not known). `read`: rows of the log, played or not.
    `user_names`: by those numbers, where the log has names. `memory_asked_kb` and `memory_used_kb`: of a processor, as
    the log has it (-1 or 0: not known). `lines`: of each job in the log. `cpu_s`: for how
    long each of its processors computed, on average, as the log has it (-1 or 0: not known).
    """

    name: str
    processors: int
    jobs: Jobs
    odd: tuple[Oddity, ...] = ()
    users: IntArray | None = None
    read: int = 0
    user_names: tuple[str, ...] = ()
    memory_asked_kb: IntArray | None = None
    memory_used_kb: IntArray | None = None
    lines: IntArray | None = None
    cpu_s: FloatArray | None = None

    def __len__(self) -> int:
        return int(self.jobs.submit.shape[0])


@dataclass(slots=True)
class _Rows:
    """The rows of a log on their way to jobs."""

    submit: FloatArray
    run: FloatArray
    walltime: FloatArray
    width: FloatArray
    kept: Any  # flags


def workload_of(
    log: SwfLog, name: str, *, processors: int | None = None, rule: RowRule = RowRule.ARCHIVE, limit: int | None = None
) -> Workload:
    """The workload of a log. `limit`: the first rows only.

    Raises EjbError where the cluster's size is not known, or no row makes a job.
    """
    processors = _cluster(log, name, processors)
    if limit is not None and limit < len(log):
        log = replace(log, rows=log.rows[:limit], lines=None if log.lines is None else log.lines[:limit])
    odd = list(log.odd)

    def tell(what: str, flags: Any, kept: bool = True) -> None:
        found = log.oddity(what, flags, kept)
        if found is not None:
            odd.append(found)

    rows = (_by_pyss if rule is RowRule.PYSS else _by_archive)(log, processors, tell)
    order = np.flatnonzero(rows.kept)
    if not order.size:
        told = "; ".join(str(one) for one in odd)
        raise EjbError(Code.INVALID, f"no row of {name} is a job that can be played: {told or 'it has no row'}")
    order = order[np.argsort(rows.submit[order], kind="stable")]
    jobs = Jobs(
        rows.submit[order],
        rows.run[order],
        rows.walltime[order],
        rows.width[order].astype(np.int64),
        log.column("job")[order].astype(np.int64),
    )
    users, asked, used = (
        log.column(field)[order].astype(np.int64) for field in ("user", "requested_memory_kb", "memory_kb")
    )
    cpu = log.column("cpu_s")[order]
    lines = order + 1 if log.lines is None else log.lines[order]
    return Workload(name, processors, jobs, tuple(odd), users, len(log), log.users, asked, used, lines, cpu)


def _cluster(log: SwfLog, name: str, processors: int | None) -> int:
    if processors is None:
        said = (log.value("MaxProcs") or log.value("MaxNodes") or "").split()
        if not said or not said[0].isdigit() or said[0] == "0":
            widest = log.column("processors").max(initial=0)
            raise EjbError(
                Code.INVALID,
                f"the header of {name} has no MaxProcs; give the cluster's processors with --procs",
                hint=f"its widest job has {widest:.0f}" if widest > 0 else "",
            )
        processors = int(said[0])
    if processors < 1:
        raise EjbError(Code.INVALID, f"a cluster has 1 processor at least, not {processors}")
    return processors


def _by_archive(log: SwfLog, processors: int, tell: Any) -> _Rows:
    submit, run, allocated = log.column("submit_s"), log.column("run_s"), log.column("processors")
    asked, requested, status = (log.column(name) for name in ("requested_processors", "requested_s", "status"))
    width = np.where(allocated > 0, allocated, asked)
    kept = np.full(len(log), True)

    def leave_out(what: str, flags: Any) -> None:
        tell(what, flags & kept, False)
        kept[flags] = False

    part = np.isin(status, _PARTS)
    if part.any():
        leave_out("a part of a job that has a row of its own", part & np.isin(log.column("job"), log.rows[~part, 0]))
    leave_out("no submit time", submit < 0)
    leave_out("cancelled before it started", (status == _CANCELLED) & ((run <= 0) | (width <= 0)))
    leave_out("no run time", run < 0)
    leave_out("no processors, allocated or requested", width <= 0)
    leave_out(f"wider than the cluster of {processors} processors", width > processors)
    tell("no allocated processors: those requested are taken", kept & (allocated <= 0))
    tell("run time 0: 1 s is played", kept & (run == 0))
    tell("a run time that is no whole number of seconds: rounded up", kept & (run != np.trunc(run)))
    whole = np.maximum(np.ceil(run), 1.0)
    tell("no requested time: the run time is taken", kept & (requested <= 0))
    tell("ran longer than requested: the request is raised to the run time", kept & (requested > 0) & (requested < run))
    return _Rows(submit, whole, np.maximum(np.ceil(requested), whole), width, kept)


def _by_pyss(log: SwfLog, processors: int, tell: Any) -> _Rows:
    submit, run = log.column("submit_s"), np.trunc(log.column("run_s"))
    allocated, requested = log.column("processors"), np.trunc(log.column("requested_s"))
    bad = (run <= 0) | (allocated <= 0) | (submit < 0)
    tell("no run time, no processors or no submit time: 1 s is played", bad)
    tell("no requested time: the run time becomes 1 s", ~bad & (requested <= 0))
    tell("ran longer than requested: the run is cut to the request", ~bad & (requested > 0) & (requested < run))
    tell(f"wider than the cluster: cut to its {processors} processors", allocated > processors)
    walltime = np.where(bad, 1.0, np.maximum(np.maximum(requested, run), 1.0))
    played = np.where(bad, 1.0, np.maximum(np.minimum(requested, run), 1.0))
    width = np.minimum(np.maximum(allocated, 1.0), processors)
    return _Rows(np.maximum(submit, 0.0), played, walltime, width, np.full(len(log), True))


def scaled_arrivals(workload: Workload, factor: float) -> Workload:
    """The same jobs arriving `factor` times as fast: the gaps between submissions are divided by it."""
    if not factor > 0:
        raise EjbError(Code.INVALID, f"arrivals cannot come {factor:g} times as fast; give a factor above 0")
    first = workload.jobs.submit[0] if len(workload) else 0.0
    submit = np.floor(first + (workload.jobs.submit - first) / factor)
    return replace(workload, jobs=workload.jobs._replace(submit=submit))
