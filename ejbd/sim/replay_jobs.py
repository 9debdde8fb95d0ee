"""The jobs of a live manager's log: their shapes, how they fared, and the log as a trace that can be simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ejbd.core.delta import Delta, delta_from_json, rate_with
from ejbd.sim.swf import FIELDS, SwfLog
from ejbd.wire.eventdata.jobs import Decided, JobAlone, JobReceived
from ejbd.wire.eventdata.ranks import EpochLaunching, EpochRate, EpochStep
from ejbd.wire.eventdata.subjobs import SubjobPlanned
from ejbd.wire.kinds import DECISION, JOB_EVENT, EventKind, SubjobRole
from ejbd.wire.states import TERMINAL_JOB

_SWF_STATUS = {"completed": 1, "failed": 0, "timeout": 0, "cancelled": 5}
_ENDS: dict[str, str] = {JOB_EVENT[state]: state.value for state in TERMINAL_JOB}


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
    delta: Delta = 1.0
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
        """One event. Those of jobs that began before the log are left alone."""
        if kind == EventKind.JOB_RECEIVED:
            self._lives[job] = _Life(at_s, bool(cast(JobReceived, data)["elastic"]))
        life = self._lives.get(job)
        if life is None:
            return
        if kind == EventKind.SUBJOB_PLANNED:
            planned = cast(SubjobPlanned, data)
            if planned["role"] not in (SubjobRole.SUBJOB, SubjobRole.STANDBY):
                life.processors, life.walltime_s = int(planned["processors"]), float(planned["walltime_s"])
        elif kind == EventKind.JOB_RUNNING and life.start_s is None:
            life.start_s = at_s
        elif kind == EventKind.JOB_ALONE:  # from then on it is as one that was passed through
            life.elastic, life.start_s = False, float(cast(JobAlone, data)["began_s"])
        elif kind in _ENDS:
            life.end_s, life.state = at_s, _ENDS[kind]
        elif kind.startswith(DECISION) and "question" in data:
            life.delta = delta_from_json(cast(Decided, data)["question"]["parameters"]["delta"])
        else:
            _note_epoch(life, kind, at_s, data)

    def jobs(self) -> tuple[LoggedJob, ...]:
        """In the order of submission."""
        return tuple(
            LoggedJob(
                id, life.elastic, life.processors, life.walltime_s, life.submit_s, life.start_s, life.end_s,
                life.state, _run_of(life),
            )
            for id, life in self._lives.items()
        )  # fmt: skip


def _note_epoch(life: _Life, kind: str, at_s: float, data: Mapping[str, Any]) -> None:
    match kind:
        case EventKind.EPOCH_LAUNCHING:
            launching = cast(EpochLaunching, data)
            life.epoch, life.ranks = int(launching["epoch"]), int(launching["ranks"])
            origin = launching["restart_from"]
            if origin is not None:
                life.work_s = life.stopped.get(int(origin), 0.0)
            elif int(launching["launch"]) == 0:
                life.work_s = 0.0
            life.since_s = None
        case EventKind.EPOCH_RUNNING:
            running = cast(EpochStep, data)
            if "rate" in running:
                life.speed = float(running["rate"])
            elif "processors" in running:  # a log of before
                life.speed = rate_with(life.ranks, int(running["processors"]), life.delta)
            life.since_s = at_s
        case EventKind.EPOCH_RATE | EventKind.EPOCH_RESIZED:
            life.work_s, life.since_s = life.computed(at_s), at_s
            life.speed = float(cast(EpochRate, data)["rate"])
        case EventKind.EPOCH_STOPPING | EventKind.EPOCH_ENDED:
            life.work_s, life.since_s = life.computed(at_s), None
        case EventKind.EPOCH_STOPPED:
            life.stopped[life.epoch] = life.work_s
        case EventKind.EPOCH_FAILED:
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
