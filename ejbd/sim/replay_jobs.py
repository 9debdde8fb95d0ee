"""The jobs of a live manager's log: their shapes, how they fared, and the log as a trace that can be simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ejbd.core.progress import rate
from ejbd.sim.swf import FIELDS, SwfLog
from ejbd.wire.kinds import EventKind, SubjobRole

_SWF_STATUS = {"completed": 1, "failed": 0, "timeout": 0, "cancelled": 5}


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """One job. `run_s`: its run time at full width, which for an elastic one is the work done (Eq. 3), not its stay."""

    id: str
    elastic: bool
    processors: int
    walltime_s: float
    submit_s: float
    start_s: float | None
    end_s: float | None
    state: str
    run_s: float


@dataclass(slots=True)
class _Life:
    """What is known of a job so far."""

    submit_s: float
    elastic: bool
    processors: int = 0
    walltime_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    state: str = "received"
    delta: float = 1.0
    ranks: int = 0
    epoch: int = 0
    work_s: float = 0.0  # done by the present epoch's beginning
    stopped: dict[int, float] = field(default_factory=dict)  # epoch -> work that its checkpoint holds
    since_s: float | None = None  # the present epoch computes since then
    speed: float = 0.0

    def computed(self, now: float) -> float:
        return self.work_s + (self.speed * (now - self.since_s) if self.since_s is not None else 0.0)


class JobBook:
    """Takes events in their order and keeps the jobs."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def note(self, kind: str, at_s: float, job: str, data: Mapping[str, Any]) -> None:
        """One event. Those of jobs whose beginning is not in the log are left alone."""
        if kind == EventKind.JOB_RECEIVED:
            self._lives[job] = _Life(at_s, bool(data["elastic"]))
        life = self._lives.get(job)
        if life is None:
            return
        subject, _, what = kind.partition(".")
        if kind == EventKind.SUBJOB_PLANNED and data["role"] in (SubjobRole.PLACEHOLDER, SubjobRole.RIGID):
            life.processors, life.walltime_s = int(data["processors"]), float(data["walltime_s"])
        elif kind == EventKind.JOB_RUNNING and life.start_s is None:
            life.start_s = at_s
        elif subject == "job" and what in _SWF_STATUS:
            life.end_s, life.state = at_s, what
        elif subject == "decision" and "question" in data:
            life.delta = float(data["question"]["parameters"]["delta"])
        elif subject == "epoch":
            _note_epoch(life, what, at_s, data)

    def jobs(self) -> tuple[LoggedJob, ...]:
        """In the order of submission."""
        return tuple(
            LoggedJob(
                id, life.elastic, life.processors, life.walltime_s, life.submit_s, life.start_s, life.end_s,
                life.state, _run_of(life),
            )
            for id, life in self._lives.items()
        )  # fmt: skip


def _note_epoch(life: _Life, what: str, at_s: float, data: Mapping[str, Any]) -> None:
    if what == "launching":
        life.epoch, life.ranks = int(data["epoch"]), int(data["ranks"])
        origin = data["restart_from"]
        if origin is not None:
            life.work_s = life.stopped.get(int(origin), 0.0)
        elif int(data["launch"]) == 0:
            life.work_s = 0.0
        life.since_s = None
    elif what == "running":
        if "rate" in data:
            life.speed = float(data["rate"])
        elif "processors" in data:  # a log of before
            life.speed = rate(life.ranks, int(data["processors"]), life.delta)
        life.since_s = at_s
    elif what == "rate":
        life.work_s, life.since_s, life.speed = life.computed(at_s), at_s, float(data["rate"])
    elif what in ("stopping", "ended"):
        life.work_s, life.since_s = life.computed(at_s), None
    elif what == "stopped":
        life.stopped[life.epoch] = life.work_s
    elif what == "failed":
        life.since_s = None


def _run_of(life: _Life) -> float:
    if life.elastic:
        return life.work_s
    return life.end_s - life.start_s if life.start_s is not None and life.end_s is not None else 0.0


def as_swf(jobs: Sequence[LoggedJob], processors: int) -> SwfLog:
    """The jobs that ran to an end as a trace; times count from the first submission.

    Field 4 is the run time at full width, so that a simulator gets the true one of an elastic job too.
    """
    over = [job for job in jobs if job.start_s is not None and job.end_s is not None and job.run_s > 0]
    first = min((job.submit_s for job in over), default=0.0)
    rows = np.full((len(over), len(FIELDS)), -1.0)
    for index, job in enumerate(over):
        told = {
            "job": index + 1,
            "submit_s": np.floor(job.submit_s - first),
            "wait_s": np.floor((job.start_s or 0.0) - job.submit_s),
            "run_s": max(1.0, np.ceil(job.run_s)),
            "processors": job.processors,
            "requested_processors": job.processors,
            "requested_s": np.ceil(job.walltime_s),
            "status": _SWF_STATUS[job.state],
        }
        for name, value in told.items():
            rows[index, FIELDS.index(name)] = value
    widest = max((job.processors for job in over), default=1)
    header = (
        ("Version", "2.2"),
        ("Computer", "EJB"),
        ("UnixStartTime", f"{first:.0f}"),
        ("MaxJobs", f"{len(over)}"),
        ("MaxProcs", f"{max(processors, widest)}"),
        ("Note", "run times are those at full width: of elastic jobs the work that was done"),
    )
    return SwfLog(rows, header)
