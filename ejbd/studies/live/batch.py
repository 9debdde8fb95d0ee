"""Jobs on a real batch system, by its own commands: they sleep, or start a program. Each notes its start and end."""

from __future__ import annotations

import copy
import os
import shlex
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from ejbd.errors import Code, EjbError
from ejbd.studies.live.comparison import Overheads, PlayedJob, line_through
from ejbd.studies.live.program import Program

COMMAND_S = 30.0
# Jobs by themselves, jobs that follow each other, how long they sleep, and what they ask for (s): the measuring.
LONE, CHAINED, PROBE_S, PROBE_WALLTIME_S = 3, 8, 0.5, 60.0


class BatchRuns(ABC):
    """Implements :class:`ejbd.studies.live.comparison.Runner`. `folder` must be one that the nodes see.

    Without a `program` jobs sleep. What has computed something else than it should raises, as with EJB.
    """

    name: ClassVar[str]
    quantum_s: ClassVar[float]  # of walltimes
    starts_by: ClassVar[str]  # what starts the program's ranks
    silent: ClassVar[tuple[str, ...]]  # what commands write where the batch system does not answer
    where: ClassVar[str]  # how one says which it is

    def __init__(self, folder: Path, environment: Mapping[str, str], program: Program | None = None) -> None:
        self.folder = folder
        self._environment = environment
        self._program = program
        self._submitted: dict[int, tuple[str, float]] = {}
        self._shapes: dict[int, tuple[int, float]] = {}  # processors and run time

    @abstractmethod
    def processors(self) -> int:
        """All processors that a job of the default queue can have."""

    @abstractmethod
    def node_processors(self) -> int:
        """Those that are reserved together for a waiting job."""

    @abstractmethod
    def _submit(self, name: str, processors: int, walltime_s: float, script: str) -> str:
        """The job's number."""

    @abstractmethod
    def _listed(self) -> Collection[str]:
        """Jobs that are not over."""

    @abstractmethod
    def _cancel(self, ids: Collection[str]) -> None: ...

    @abstractmethod
    def _step(self, number: int, processors: int, command: str, meet: Path) -> str:
        """Shell that starts the program on all processors of the job: what a user's script has without EJB."""

    def submit(self, number: int, processors: int, walltime_s: float, run_s: float) -> None:
        start, end = (shlex.quote(str(self._note(number, what))) for what in ("start", "end"))
        does = f"sleep {run_s:g}"
        if self._program is not None:
            meet = self._note(number, "meet")
            meet.mkdir(exist_ok=True)
            command = shlex.join(self._program.command(run_s, self._note(number, "result")))
            does = self._step(number, processors, command, meet)
        script = f"#!/bin/sh\ndate +%s.%N > {start}\n{does} && date +%s.%N > {end}\n"
        at = time.time()
        self._shapes[number] = processors, run_s
        self._submitted[number] = self._submit(f"played-{number}", processors, walltime_s, script), at

    def running(self) -> int:
        """Those without an end are looked for in the listing, so that one that was killed is not waited for."""
        open_ones = [id for number, (id, _) in self._submitted.items() if self._read(number, "end") is None]
        return len(set(open_ones) & set(self._listed())) if open_ones else 0

    def played(self) -> dict[int, PlayedJob]:
        for number, (id, _) in self._submitted.items():
            if self._program is not None and self._read(number, "end") is not None:
                self._program.check(f"{self.name}'s {id}", *self._shapes[number], self._note(number, "result"))
        return {
            number: PlayedJob(
                at, self._read(number, "start"), self._read(number, "end"), why=f"{self.name}'s {id} wrote no end"
            )
            for number, (id, at) in self._submitted.items()
        }

    def close(self) -> None:
        ids = [id for number, (id, _) in self._submitted.items() if self._read(number, "end") is None]
        if ids:
            self._cancel(ids)

    def _beside(self, folder: Path) -> Self:
        """Jobs of the same batch system that sleep, and are noted elsewhere."""
        other = copy.copy(self)
        BatchRuns.__init__(other, folder, self._environment)
        folder.mkdir(exist_ok=True)
        return other

    def measure(self, processors: int) -> Overheads:
        """How long a job that fits takes to start, and one that follows another; the cluster must be empty."""
        chain = self._beside(self.folder / "measure")
        arrivals: list[float] = []
        for number in range(-LONE, 0):
            chain.submit(number, 1, PROBE_WALLTIME_S, PROBE_S)
            chain.wait()
            one = chain.played()[number]
            arrivals.append((one.start_s or 0.0) - one.submit_s)
        for number in range(CHAINED):
            chain.submit(number, processors, PROBE_WALLTIME_S, PROBE_S)
        chain.wait()
        played = chain.played()
        gaps = [(played[n + 1].start_s or 0.0) - (played[n].end_s or 0.0) for n in range(CHAINED - 1)]
        return Overheads(arrival_s=sum(arrivals) / len(arrivals), handover_s=sum(gaps) / len(gaps))

    def measured(self, base: Overheads) -> Overheads:
        """`base` with what the program takes beyond the run time that was meant, from start to end of its jobs."""
        told = [(self._shapes[number][1], job) for number, job in self.played().items()]
        whole = [(run_s, job.end_s - job.start_s) for run_s, job in told if job.end_s and job.start_s]
        if not whole:
            return base
        meant, took = zip(*whole, strict=True)
        pace, begin_s = line_through(meant, took)
        return replace(base, pace=pace, begin_s=begin_s)

    def wait(self) -> None:
        """Until all are over, a minute each at most."""
        deadline = time.monotonic() + 60.0 * len(self._submitted)
        while self.running():
            if time.monotonic() > deadline:
                self.close()
                raise EjbError(
                    Code.CONFLICT, "jobs of half a second are not over after a minute: is the cluster in use?"
                )
            time.sleep(0.1)

    def _note(self, number: int, what: str) -> Path:
        return self.folder / f"{number}.{what}"

    def _read(self, number: int, what: str) -> float | None:
        try:
            return float(self._note(number, what).read_text())
        except (OSError, ValueError):
            return None

    def _run(self, *argv: str, stdin: str = "") -> str:
        try:
            done = subprocess.run(
                argv, env=self._environment, input=stdin, capture_output=True, text=True, timeout=COMMAND_S, check=False
            )
        except FileNotFoundError:
            what = f"{argv[0]} is not on PATH; a log is played on a real {self.name}"
            raise EjbError(Code.UNSUPPORTED, what) from None
        except subprocess.TimeoutExpired:
            raise EjbError(Code.BATCH_UNAVAILABLE, f"{argv[0]} did not answer within {COMMAND_S:g} s") from None
        if done.returncode and any(words in done.stderr for words in self.silent):
            said = " ".join(done.stderr.split())
            raise EjbError(Code.BATCH_UNAVAILABLE, f"{argv[0]}: {said}", hint=self.where, transient=True)
        if done.returncode:
            raise EjbError(Code.BATCH_REFUSED, f"{argv[0]}: {done.stderr.strip() or 'failed'}")
        return done.stdout


def without(prefix: str) -> dict[str, str]:
    """The environment without variables that would be options of commands."""
    return {key: value for key, value in os.environ.items() if not key.startswith(prefix)}
