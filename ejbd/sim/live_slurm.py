"""Jobs on a real Slurm, by its own commands: they sleep, or srun starts a program. Each notes its start and end."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from ejbd.core.walltime import format_walltime
from ejbd.errors import Code, EjbError
from ejbd.sim.live import Overheads, PlayedJob, line_through
from ejbd.sim.live_program import Program

QUANTUM_S = 60.0  # Slurm's time limits are whole minutes
COMMAND_S = 30.0
LONE, CHAINED, PROBE_S = (
    3,
    8,
    0.5,
)  # jobs by themselves, jobs that follow each other, and how long they sleep: the measuring
_SILENT = ("Unable to contact slurm controller", "Could not establish a configuration source")
_WHERE = "SLURM_CONF or --cluster says where Slurm is"


class SlurmRuns:
    """Implements :class:`ejbd.sim.live.Runner`. `folder` must be one that the nodes see.

    Without a `program` jobs sleep. What has computed something else than it should raises, as with EJB.
    """

    def __init__(self, folder: Path, conf: Path | None = None, program: Program | None = None) -> None:
        self.folder = folder
        self._program = program
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("SBATCH")}
        if conf is not None:
            self._environment["SLURM_CONF"] = str(conf)
        named = self._environment.get("SLURM_CONF")
        if named and not Path(named).is_file():  # Slurm's own commands would look for it for a minute
            raise EjbError(Code.BATCH_UNAVAILABLE, f"there is no Slurm: {named} is not there", hint=_WHERE)
        self._submitted: dict[int, tuple[str, float]] = {}
        self._shapes: dict[int, tuple[int, float]] = {}  # processors and run time

    def processors(self) -> int:
        """All processors of the default partition."""
        rows = [line.split() for line in self._run("sinfo", "--noheader", "--format=%P %C").splitlines()]
        sizes = {name: int(counts.split("/")[-1]) for name, counts in rows}
        default = next((name for name in sizes if name.endswith("*")), None)
        if default is None:
            raise EjbError(Code.INVALID, "Slurm has no default partition to play the log on")
        return sizes[default]

    def node_processors(self) -> int:
        """Of the smallest node of all partitions: Slurm's reservations are of whole nodes."""
        return min(int(word.rstrip("+")) for word in self._run("sinfo", "--noheader", "--Node", "--format=%c").split())

    def submit(self, number: int, processors: int, walltime_s: float, run_s: float) -> None:
        start, end = (shlex.quote(str(self._note(number, what))) for what in ("start", "end"))
        does = self._step(number, run_s) if self._program is not None else f"sleep {run_s:g}"
        script = f"#!/bin/sh\ndate +%s.%N > {start}\n{does} && date +%s.%N > {end}\n"
        words = ["--parsable", "--no-requeue", "--output=/dev/null", f"--job-name=played-{number}"]
        words += [f"--ntasks={processors}", f"--time={format_walltime(walltime_s)}"]
        at = time.time()
        self._shapes[number] = processors, run_s
        self._submitted[number] = (self._run("sbatch", *words, stdin=script).strip().split(";")[0], at)

    def running(self) -> int:
        """Those without an end are looked for in Slurm's listing, so that one that was killed is not waited for."""
        open_ones = [id for number, (id, _) in self._submitted.items() if self._read(number, "end") is None]
        if not open_ones:
            return 0
        listed = self._run("squeue", "--noheader", "--format=%i").split()
        return len(set(open_ones) & set(listed))

    def played(self) -> dict[int, PlayedJob]:
        for number, (id, _) in self._submitted.items():
            if self._program is not None and self._read(number, "end") is not None:
                self._program.check(f"Slurm's {id}", *self._shapes[number], self._note(number, "result"))
        return {
            number: PlayedJob(
                at, self._read(number, "start"), self._read(number, "end"), why=f"Slurm's {id} wrote no end"
            )
            for number, (id, at) in self._submitted.items()
        }

    def close(self) -> None:
        ids = [id for number, (id, _) in self._submitted.items() if self._read(number, "end") is None]
        if ids:
            self._run("scancel", *ids)

    def measure(self, processors: int) -> Overheads:
        """How long a job that fits takes to start, and one that follows another; the cluster must be empty."""
        chain = SlurmRuns(self.folder / "measure")
        chain._environment = self._environment
        chain.folder.mkdir(exist_ok=True)
        arrivals: list[float] = []
        for number in range(-LONE, 0):
            chain.submit(number, 1, QUANTUM_S, PROBE_S)
            chain.wait()
            one = chain.played()[number]
            arrivals.append((one.start_s or 0.0) - one.submit_s)
        for number in range(CHAINED):
            chain.submit(number, processors, QUANTUM_S, PROBE_S)
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

    def _step(self, number: int, run_s: float) -> str:
        """The program, started by srun on all processors of the job: what a user's script has without EJB."""
        assert self._program is not None
        meet = self._note(number, "meet")
        meet.mkdir(exist_ok=True)
        command = shlex.join(self._program.command(run_s, self._note(number, "result")))
        return f"EJB_RENDEZVOUS={shlex.quote(str(meet))} srun --kill-on-bad-exit=1 --input=none {command}"

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
            raise EjbError(Code.UNSUPPORTED, f"{argv[0]} is not on PATH; a log is played on a real Slurm") from None
        except subprocess.TimeoutExpired:
            raise EjbError(Code.BATCH_UNAVAILABLE, f"{argv[0]} did not answer within {COMMAND_S:g} s") from None
        if done.returncode and any(words in done.stderr for words in _SILENT):
            raise EjbError(Code.BATCH_UNAVAILABLE, f"{argv[0]}: {done.stderr.strip()}", hint=_WHERE, transient=True)
        if done.returncode:
            raise EjbError(Code.BATCH_REFUSED, f"{argv[0]}: {done.stderr.strip() or 'failed'}")
        return done.stdout
