"""Running jobs: starts their steps, wakes when one ends, and cleans up after one that was killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from ejbd.batch.local import processes
from ejbd.batch.local.jobs import Job
from ejbd.batch.local.step import write_json
from ejbd.batch.local.variables import mpi_defaults, slurm_variables
from ejbd.core.view import BatchState

_PACKAGES = Path(__file__).resolve().parents[3]  # where `ejbd` is imported from
# -S: a step needs none of the site's packages, and starts in a third of the time without looking for them.
_STEP = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.insert(0, sys.argv[1]); from ejbd.batch.local.step import main; sys.exit(main())",
    str(_PACKAGES),
)
_DELIVERED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended; `end_s` is None where only the time of noticing is known."""

    state: BatchState
    exit_code: int | None
    end_s: float | None
    reason: str


class Steps:
    """The steps of the jobs that run in `directory`. `ended` is called once for each job, in the event loop."""

    def __init__(
        self,
        directory: Path,
        cluster: str,
        spec: Callable[[int], dict[str, Any]],
        ended: Callable[[Job, End], None],
    ) -> None:
        self._directory = directory
        self._cluster = cluster
        self._spec = spec
        self._ended = ended
        self._steps: dict[int, processes.Identity] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop cleaning up; steps go on."""
        for task in self._tasks:
            task.cancel()

    def adopt(self, job: Job) -> None:
        """Take up a job that the server before this one had started, or was about to start."""
        if (self._folder(job.id) / "result.json").exists():
            self._take_result(job)
            return
        started = self._started(job.id)
        if started is None:  # the last server was killed between its note and the start
            if job.cancelled:
                self._ended(job, End(BatchState.CANCELLED, None, None, ""))
            else:
                self.launch(job)
        elif processes.is_alive(started):
            self._watch(job, started)
            self.tell_limit(job)
            if job.cancelled:
                self.tell_end(job)
        else:
            self._take_result(job)

    def _folder(self, id: int) -> Path:
        return self._directory / "jobs" / str(id)

    def _started(self, id: int) -> processes.Identity | None:
        """The step that has this job; None where none ever began with it."""
        try:
            return processes.Identity(*json.loads((self._folder(id) / "started").read_text()))
        except FileNotFoundError:
            return None

    def launch(self, job: Job) -> None:
        """Start the step of a job that is noted as running. It claims the job, so that a second start does nothing."""
        try:
            folder = self._prepare(job)
            # Blocked from birth: a signal that comes before the step waits for signals must not kill it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _DELIVERED)
            try:
                child = subprocess.Popen(
                    [*_STEP, str(folder)], cwd="/", stdin=subprocess.DEVNULL, env={}, start_new_session=True
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._children[job.id] = child
            identity = processes.identify(child.pid)
            assert identity is not None  # not collected yet, so at least a zombie is there
            self._watch(job, identity)
        except OSError as error:
            log.error("a job cannot be started", job=job.id, error=str(error))
            self._ended(job, End(BatchState.NODE_FAIL, None, None, f"the job cannot be started: {error}"))

    def _prepare(self, job: Job) -> Path:
        spec = self._spec(job.id)
        folder = self._folder(job.id)
        (folder / "processors").mkdir(parents=True, exist_ok=True)
        script = folder / "script"
        # Renamed into place: a step that the last server started just before its end may be reading it.
        script.with_suffix(".tmp").write_text(spec["script"], errors="surrogateescape")
        script.with_suffix(".tmp").chmod(0o700)
        script.with_suffix(".tmp").rename(script)
        environment: dict[str, str] = dict(spec["environment"])
        environment.update(self._variables(job, folder))
        if spec.get("tells"):
            environment = {**mpi_defaults(job), **environment, **slurm_variables(job, spec["tells"])}
        environment["PATH"] = f"{self._directory / 'bin'}:{environment.get('PATH') or os.defpath}"
        # The interpreter is called by name: the spool may be mounted without permission to execute.
        interpreter = spec["script"].split("\n", 1)[0][2:].strip().split(None, 1)
        write_json(
            str(folder / "spec.json"),
            {
                "job": job.id,
                "cluster": self._cluster,
                "argv": [*interpreter, str(script), *spec.get("args", ())],
                "limits": spec.get("limits", {}),
                "environment": environment,
                "workdir": spec["workdir"],
                "output": _expanded(spec["output"], job),
                "error": None if spec["error"] is None else _expanded(spec["error"], job),
                "input": _expanded(spec.get("input", ""), job),
                "append": spec.get("append", False),
                "signal": spec.get("signal"),
                "umask": spec["umask"],
                "end_s": job.end_s,
            },
        )
        return folder

    def _variables(self, job: Job, folder: Path) -> Mapping[str, str]:
        return {
            processes.JOB_VARIABLE: str(job.id),
            processes.CLUSTER_VARIABLE: self._cluster,
            "EJB_LOCAL_JOB_NAME": job.name,
            "EJB_LOCAL_JOB_DIR": str(folder),
            "EJB_LOCAL_NODES": ",".join(f"{name}:{count}" for name, count in job.nodes),
        }

    def _watch(self, job: Job, step: processes.Identity) -> None:
        """Wake when the step ends; no polling, whether it is a child or was adopted."""
        self._steps[job.id] = step
        try:
            fd = os.pidfd_open(step.pid)
        except ProcessLookupError:
            self._take_result(job)
            return
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            self._take_result(job)

        loop.add_reader(fd, ended)

    def tell_limit(self, job: Job) -> None:
        """The planned end has changed."""
        limit = self._folder(job.id) / "limit"
        temporary = limit.with_suffix(".tmp")
        temporary.write_text(repr(job.end_s))
        temporary.rename(limit)
        self._signal_step(job, signal.SIGHUP)

    def tell_end(self, job: Job) -> None:
        """End the job now."""
        self._signal_step(job, signal.SIGTERM)

    def send_signal(self, job: Job, number: int, to: str) -> None:
        """Send a signal to the `script`, the `ranks` or `all` of a running job."""
        leader = self._leader(job.id)
        if to == "script":
            processes.send([leader.pid] if leader is not None and processes.is_alive(leader) else [], number)
            return
        step = self._steps.get(job.id)
        found = processes.members(self._cluster, job.id, ancestor=None if step is None else step.pid)
        if to == "ranks":
            processes.signal_tasks(found, number)
        else:
            processes.send(found, number)

    def _signal_step(self, job: Job, signum: signal.Signals) -> None:
        step = self._steps.get(job.id)
        if step is not None and processes.is_alive(step):
            processes.send([step.pid], signum)

    def _take_result(self, job: Job) -> None:
        """The step has ended: take its result, or clean up after it where it left none."""
        child = self._children.pop(job.id, None)
        if child is not None:
            child.wait()
        self._steps.pop(job.id, None)
        started = self._started(job.id)
        if child is not None and started is not None and started.pid != child.pid and processes.is_alive(started):
            self._watch(job, started)  # another server's step had claimed the job first
            return
        try:
            result = json.loads((self._folder(job.id) / "result.json").read_text())
        except (OSError, ValueError):
            task = asyncio.get_running_loop().create_task(self._clean_up(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._ended(job, End(BatchState(result["state"]), result["exit_code"], result["end_s"], result["reason"]))

    async def _clean_up(self, job: Job) -> None:
        """Kill what a killed step left behind, and only then give its processors away."""
        session = self._session(job.id)
        while left := processes.members(self._cluster, job.id, session=session):
            processes.send(left, signal.SIGKILL)
            await asyncio.sleep(0.05)
        state = BatchState.CANCELLED if job.cancelled else BatchState.NODE_FAIL
        self._ended(job, End(state, None, None, "the process that watched over the job was killed"))

    def _session(self, id: int) -> int | None:
        """The session of the job's script; None where its number may have become another process's."""
        leader = self._leader(id)
        if leader is None or leader.boot != processes.boot_id():
            return None
        # The number stays taken for as long as the session has members, with its leader or without.
        return leader.pid if processes.stat(leader.pid) is None or processes.is_alive(leader) else None

    def _leader(self, id: int) -> processes.Identity | None:
        """The job's script; None where it did not begin."""
        try:
            return processes.Identity(*json.loads((self._folder(id) / "main").read_text()))
        except (OSError, ValueError):
            return None

    def forget(self, id: int) -> None:
        """Remove the folder of a job once its end is stored."""
        shutil.rmtree(self._folder(id), ignore_errors=True)

    def forget_all_but(self, live: Container[int]) -> None:
        """Remove the folders of jobs that ended, with the end stored, just before a server was killed."""
        for folder in (self._directory / "jobs").iterdir():
            if not (folder.name.isdecimal() and int(folder.name) in live):
                shutil.rmtree(folder, ignore_errors=True)


def _expanded(path: str, job: Job) -> str:
    """The patterns of an output's name that this cluster can fill: %j, %x, %u, %S (a server's name: none) and %%."""
    words = {"j": str(job.id), "x": job.name.replace("/", "_"), "u": job.user, "S": "", "%": "%"}
    return re.sub("%([jxuS%])", lambda match: words[match[1]], path)
