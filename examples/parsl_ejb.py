"""A Parsl provider with blocks that are jobs of EJB.

    Config(executors=[HighThroughputExecutor(provider=EjbProvider(processors=16, walltime="01:00:00"))])

A block that starts its workers by one `srun` (launcher `SrunLauncher`) can be an elastic job. Any other is passed
through. It needs Parsl and the command `ejb`, and nothing else of EJB.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parsl.jobs.states import JobState, JobStatus  # type: ignore[import-not-found,unused-ignore]
from parsl.launchers import SingleNodeLauncher  # type: ignore[import-not-found,unused-ignore]
from parsl.providers.base import ExecutionProvider  # type: ignore[import-not-found,unused-ignore]
from parsl.utils import RepresentationMixin  # type: ignore[import-not-found,unused-ignore]

STATES = {
    "received": JobState.PENDING,
    "waiting": JobState.PENDING,
    "running": JobState.RUNNING,
    "ending": JobState.RUNNING,
    "unknown": JobState.UNKNOWN,  # it becomes one of the others: EJB goes on asking
    "completed": JobState.COMPLETED,
    "cancelled": JobState.CANCELLED,
    "timeout": JobState.TIMEOUT,
    "failed": JobState.FAILED,
}
PATIENCE_S = 600.0  # that a daemon may be away while something is submitted
NO_JOB = 3  # exit code of `ejb`: there is no such job


class EjbProvider(ExecutionProvider, RepresentationMixin):  # type: ignore[misc,unused-ignore]
    """Blocks of `processors` for `walltime` (as `ejb submit -t` has it). `options`: further words of `ejb submit`."""

    def __init__(
        self,
        processors: int = 1,
        walltime: str = "00:10:00",
        options: Sequence[str] = (),
        launcher: Any = None,
        worker_init: str = "",
        nodes_per_block: int = 1,
        init_blocks: int = 1,
        min_blocks: int = 0,
        max_blocks: int = 1,
        parallelism: float = 1,
    ) -> None:
        self.processors, self.walltime, self.options = processors, walltime, tuple(options)
        self.launcher = SingleNodeLauncher() if launcher is None else launcher
        self.worker_init = worker_init
        self.nodes_per_block, self.parallelism = nodes_per_block, parallelism
        self.init_blocks, self.min_blocks, self.max_blocks = init_blocks, min_blocks, max_blocks
        self.script_dir = "."  # Parsl sets it to the run's own folder
        self.resources: dict[object, Any] = {}

    def submit(self, command: str, tasks_per_node: int, job_name: str = "parsl") -> object:
        """Submit a block that runs `command`; its job's id."""
        folder = Path(self.script_dir or ".").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / f"{job_name}.sh"
        started = self.launcher(command, tasks_per_node, self.nodes_per_block)
        script.write_text(f"#!/bin/bash\n{self.worker_init}\n{started}\n")
        words = ["submit", "--parsable", "-J", job_name, "-n", str(self.processors), "-t", self.walltime]
        output = ["-o", str(folder / f"{job_name}.out")]
        # Under one key it is one job, however often it has to be said.
        words += ["--idempotency-key", uuid.uuid4().hex]
        job = _ejb(*words, *output, *self.options, str(script), patience_s=PATIENCE_S).strip()
        self.resources[job] = {"job_id": job}
        return job

    def status(self, job_ids: Sequence[object]) -> Sequence[JobStatus]:
        """How each job is: as long as no daemon answers, as it was, so that one that is started again ends no block."""
        return [JobStatus(self._state(job)) for job in job_ids]

    def _state(self, job: object) -> JobState:
        known = self.resources[job]
        try:
            known["state"] = STATES[json.loads(_ejb("status", str(job), "--json"))["state"]]
        except subprocess.CalledProcessError as error:
            if error.returncode == NO_JOB:
                known["state"] = JobState.MISSING
        except subprocess.TimeoutExpired:
            pass
        state: JobState = known.get("state", JobState.PENDING)
        return state

    def cancel(self, job_ids: Sequence[object]) -> Sequence[bool]:
        """End jobs; for each, whether it was there to be ended."""
        return [self._cancel(job) for job in job_ids]

    def _cancel(self, job: object) -> bool:
        try:
            _ejb("cancel", str(job), patience_s=60.0)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    @property
    def label(self) -> str:
        return "ejb"

    @property
    def status_polling_interval(self) -> int:
        return 5  # seconds


def _ejb(*words: str, patience_s: float = 0.0) -> str:
    """What `ejb` prints. As long as no daemon answers (code 9) it is said again, for `patience_s`."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return subprocess.run(["ejb", *words], check=True, capture_output=True, text=True, timeout=60).stdout
        except subprocess.CalledProcessError as error:
            if error.returncode != 9 or time.monotonic() > until:
                raise
        time.sleep(1)
