"""Elastic jobs for a live run: paced ranks, submitted to a real EJB, and what its events say about its costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ejbd.core.walltime import format_walltime
from ejbd.errors import EjbError
from ejbd.sim.replay_jobs import JobBook
from ejbd.studies.live.comparison import Overheads, PlayedJob, line_through
from ejbd.studies.live.program import Program
from ejbd.wire.kinds import EventKind

CLOSE_S = 30.0
LISTED = 1000  # living jobs: of others, which come after it, each is asked for
CUT_S = 0.5  # batch systems tell whole seconds: the mean of what is cut off
_OVER = ("completed", "failed", "timeout", "cancelled")


class Daemon(Protocol):
    """The REST API of a daemon, as far as it is needed here."""

    def get(self, path: str, **query: Any) -> Any: ...

    def post(self, path: str, body: Mapping[str, Any]) -> Any: ...


class ElasticRuns:
    """Implements :class:`ejbd.studies.live.comparison.Runner`. A job that has computed something else has no end."""

    def __init__(self, daemon: Daemon, program: Program, folder: Path) -> None:
        self._daemon = daemon
        self._program = program
        self._folder = folder
        self._ids: dict[int, str] = {}
        self._run_s: dict[int, float] = {}
        self._ranks: dict[int, int] = {}
        self._over: dict[str, dict[str, Any]] = {}

    def submit(self, number: int, processors: int, walltime_s: float, run_s: float) -> None:
        body = {
            "command": self._program.command(run_s, self._result(number)),
            "cwd": str(self._folder),
            "env": {"PATH": os.environ.get("PATH", os.defpath)},
            "overrides": {
                "ntasks": processors,
                "time": format_walltime(walltime_s),
                "engine": "application",
                "elastic": "on",
                "delta": 1.0,  # the pace makes it so, and the simulation has it so: what is measured would add noise
                "name": f"elastic-{number}",
                "output": "/dev/null",
            },
        }
        self._ids[number] = str(self._daemon.post("/v1/jobs", body)["id"])
        self._run_s[number] = run_s
        self._ranks[number] = processors

    def running(self) -> int:
        living = {job["id"] for job in self._daemon.get("/v1/jobs", alive=True, limit=LISTED)["jobs"]}
        for id in self._ids.values():
            if id not in self._over and id not in living:
                job = self._daemon.get(f"/v1/jobs/{id}")
                if job["state"] in _OVER and all(subjob["state"] not in _LIVE for subjob in job["subjobs"]):
                    self._over[id] = job
        return len(self._ids) - len(self._over)

    def played(self) -> dict[int, PlayedJob]:
        found: dict[int, PlayedJob] = {}
        for number, id in self._ids.items():
            job = self._over[id]
            events = self._events(id)
            end = job["end_s"] if job["state"] == "completed" else None
            if end is not None and _first(events, EventKind.JOB_ALONE) is not None:
                end = _whole(_last_end(job))  # the daemon sees it with its next look
            if end is not None:
                self._program.check(id, self._ranks[number], self._run_s[number], self._result(number))
            epochs = [event for event in events if event["kind"] == EventKind.EPOCH_LAUNCHING]
            why = "" if end is not None else f"EJB's {id} is {job['state']} ({job.get('reason') or 'without a reason'})"
            found[number] = PlayedJob(job["submit_s"], _first_start(job), end, max(0, len(epochs) - 1), why)
        return found

    def _result(self, number: int) -> Path:
        return self._folder / f"{number}.result"

    def close(self) -> None:
        """Cancel what is not over, and wait for a while until its processors are given back."""
        self.running()
        for id in self._ids.values():
            if id not in self._over:
                with suppress(EjbError):  # it may have ended meanwhile
                    self._daemon.post(f"/v1/jobs/{id}/cancel", {})
        deadline = time.monotonic() + CLOSE_S
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.5)

    def measured(self, base: Overheads) -> Overheads:
        """`base` with the means of what these jobs' events say about elastic ones."""
        arrivals, starts, backs, moves = [], [], [], []
        meant, took = [], []
        for number, id in self._ids.items():
            job, events = self._over[id], self._events(id)
            arrivals += _gap(job["submit_s"], _first(events, EventKind.SUBJOB_PENDING))
            if _first(events, EventKind.JOB_ALONE) is not None:
                continue  # it had no workers: what it cost is EASY's
            starts += _gap(_first_start(job), _first(events, EventKind.EPOCH_RUNNING))
            backs += _gap(job["end_s"], _whole(_last_end(job)))
            moves += _moves(events)
            book = JobBook()
            for event in events:
                book.note(event["kind"], event["at_s"], id, event["data"])
            meant.append(self._run_s[number])
            took.append(book.jobs()[0].run_s)
        pace, begin_s = line_through(meant, took) if meant else (base.pace, base.begin_s)
        return replace(
            base,
            elastic_arrival_s=base.arrival_s + _mean(arrivals, 0.0),
            start_up_s=max(0.0, _mean(starts, 0.0)),
            begin_s=begin_s,
            giving_back_s=max(0.0, _mean(backs, 0.0)),
            move_s=_mean(moves, None),
            pace=pace,
        )

    def _events(self, id: str) -> list[dict[str, Any]]:
        return list(self._daemon.get(f"/v1/jobs/{id}/events", limit=10_000)["events"])


_LIVE = ("planned", "pending", "running")


def _first(events: Iterable[Mapping[str, Any]], kind: str) -> float | None:
    return next((float(event["at_s"]) for event in events if event["kind"] == kind), None)


def _first_start(job: Mapping[str, Any]) -> float | None:
    starts = [subjob["start_s"] for subjob in job["subjobs"] if subjob["start_s"] is not None]
    return _whole(min(starts, default=None))


def _last_end(job: Mapping[str, Any]) -> float | None:
    return max((subjob["end_s"] for subjob in job["subjobs"] if subjob["start_s"] is not None), default=None)


def _whole(told_s: float | None) -> float | None:
    """A time of the batch system's, which cuts it to whole seconds; what was seen here is what it is."""
    return told_s + CUT_S if told_s is not None and told_s.is_integer() else told_s


def _gap(begin: float | None, end: float | None) -> list[float]:
    return [end - begin] if begin is not None and end is not None else []


def _moves(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds from a stop to the next placement's computing, where nothing was waited for in between."""
    found: list[float] = []
    stopping: float | None = None
    for event in events:
        if event["kind"] == EventKind.EPOCH_STOPPING:
            stopping = float(event["at_s"])
        elif event["kind"] == EventKind.JOB_WAITING:
            stopping = None
        elif event["kind"] == EventKind.EPOCH_RUNNING and stopping is not None:
            found.append(float(event["at_s"]) - stopping)
            stopping = None
    return found


def _mean(values: Sequence[float], other: Any) -> Any:
    return sum(values) / len(values) if values else other
