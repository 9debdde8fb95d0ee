"""The embedded cluster itself: the queue, EASY backfilling, and the steps that run the jobs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from ejbd.batch.local import processes
from ejbd.batch.local.jobs import Job, JobFile
from ejbd.batch.local.nodes import Nodes
from ejbd.batch.local.step import write_json
from ejbd.core.easy import ActiveJob, EasyPass, QueuedJob, easy_pass
from ejbd.core.view import BatchState

LISTED_S = 300.0  # ended jobs stay in the listing for so long
KEPT_S = 7 * 86400.0  # and can be found and asked for their outcome for so long
_RETRY_S = 1.0
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


class Refused(Exception):
    """The request is wrong, or comes at the wrong time; the text says why."""


class Cluster:
    """All jobs of one embedded cluster in `directory`. Lives in one event loop; `clock` gives seconds since the epoch."""

    def __init__(self, directory: Path, nodes: int, processors: int, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._file = JobFile(directory / "jobs.sqlite")
        self._jobs: dict[int, Job] = {}
        self._steps: dict[int, processes.Identity] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pass_is_due = False
        self._closing = False
        self._idle = asyncio.Event()
        self.nodes = Nodes(nodes, processors)
        self.cluster = self._file.cluster
        self._set_shape(nodes, processors)

    def _set_shape(self, nodes: int, processors: int) -> None:
        known = self._file.shape()
        if known == (nodes, processors):
            return
        if known is not None and any(not job.state.ended for job in self._file.live_or_ended_since(self._clock())):
            self._file.close()
            raise Refused(
                f"the cluster in {self._directory} has {known[0]} nodes of {known[1]} processors and has jobs; "
                f"start it with that shape, or cancel them first"
            )
        self._file.set_shape(nodes, processors)

    # ---- life of the server

    def adopt(self) -> None:
        """Take up the queue and the running jobs of the server before this one."""
        now = self._clock()
        self._file.forget_ended_before(now - KEPT_S)
        for job in self._file.live_or_ended_since(now - LISTED_S):
            self._jobs[job.id] = job
        running = [job for job in self._jobs.values() if job.state.holds_processors]
        for job in running:
            self.nodes.retake(job.nodes)
        for job in running:
            self._adopt_step(job)
        self._clean_folders()
        self._wake()

    def _adopt_step(self, job: Job) -> None:
        if (self._folder(job.id) / "result.json").exists():
            self._settle(job)
            return
        started = self._started(job.id)
        if started is None:  # the last server was killed between its note and the start
            self._launch(job)
        elif processes.is_alive(started):
            self._watch(job, started)
            self._tell_limit(job)
            if job.cancelled:
                self._tell_end(job)
        else:
            self._settle(job)

    def close(self) -> None:
        """Let go; jobs go on."""
        for task in self._tasks:
            task.cancel()
        self._file.close()

    async def shut_down(self) -> None:
        """Cancel every job and wait until the last of their processes is gone."""
        self._closing = True
        self.cancel([job.id for job in self._jobs.values() if not job.state.ended])
        self._note_idle()
        await self._idle.wait()

    # ---- requests

    def submit(self, job: Job, spec: dict[str, Any]) -> int:
        """Queue a job; its number. It is on disk when this returns."""
        if self._closing:
            raise Refused("the embedded cluster is being shut down")
        if job.processors > self.nodes.total:
            raise Refused(f"{job.processors} processors are more than the {self.nodes.total} that the cluster has")
        job.id = self._file.add(job, spec)
        self._jobs[job.id] = job
        self._wake()
        return job.id

    def cancel(self, ids: Iterable[int]) -> None:
        """Waiting jobs end at once, running ones by TERM and KILL; others are passed over."""
        found = [job for id in ids if (job := self._jobs.get(id)) is not None and not job.state.ended]
        running = [job for job in found if job.state.holds_processors]
        waiting = [job for job in found if not job.state.holds_processors]
        now = self._clock()
        self._change(
            [(job, {"cancelled": True, "state": BatchState.ENDING}) for job in running]
            + [(job, {"cancelled": True, "state": BatchState.CANCELLED, "end_s": now}) for job in waiting]
        )
        for job in running:
            self._tell_end(job)
        self._wake()

    def update(self, id: int, *, walltime_s: float | None, hold: bool | None) -> None:
        """Shorten the walltime, hold or release. Refused where the job's state or the value does not allow it."""
        job = self._jobs.get(id)
        if job is None or job.state.ended:
            raise Refused(f"job {id} has ended or is not known")
        if walltime_s is not None and walltime_s > job.walltime_s:
            raise Refused(
                f"job {id} has a walltime of {job.walltime_s:g} s, which can only be shortened, not set to {walltime_s:g} s"
            )
        if hold is not None and job.state.holds_processors:
            raise Refused(f"job {id} runs; only a waiting job can be held or released")
        change: dict[str, Any] = {}
        if hold is not None:
            change["state"] = BatchState.HELD if hold else BatchState.PENDING
        if walltime_s is not None:
            change["walltime_s"] = walltime_s
            if job.start_s is not None:
                change["end_s"] = job.start_s + walltime_s
        self._change([(job, change)])
        if walltime_s is not None and job.state.holds_processors:
            self._tell_limit(job)
        self._wake()

    def listing(self) -> dict[str, Any]:
        """What `observe` needs, after a pass at this very moment."""
        plan = self._pass()
        now = self._clock()
        for id in [job.id for job in self._jobs.values() if job.state.ended and (job.end_s or 0) < now - LISTED_S]:
            del self._jobs[id]
        return {
            "time_s": now,
            "nodes": [[name, self.nodes.processors, free] for name, free in self.nodes.free.items()],
            "jobs": [job.wire() for job in self._in_order()],
            "head": plan.head,
            "shadow_s": plan.shadow_s,
        }

    def find(self, names: Sequence[str]) -> dict[str, str]:
        """Name -> number of the newest job of that name that was submitted in the last days, whatever became of it."""
        return {name: str(id) for name, id in self._file.by_names(names).items()}

    def outcomes(self, ids: Sequence[int]) -> dict[str, dict[str, Any]]:
        """How these jobs ended; those that have not, or are not known, are left out."""
        return {str(job.id): job.wire() for job in self._file.by_ids(ids) if job.state.ended}

    def _change(self, changes: Sequence[tuple[Job, Mapping[str, Any]]]) -> None:
        """Change jobs in memory and on disk, or (sqlite3.Error) in neither."""
        before = [(job, {name: getattr(job, name) for name in change}) for job, change in changes]
        for job, change in changes:
            for name, value in change.items():
                setattr(job, name, value)
        try:
            self._file.save([job for job, _ in changes])
        except sqlite3.Error:
            for job, old in before:
                for name, value in old.items():
                    setattr(job, name, value)
            raise

    # ---- scheduling

    def _in_order(self) -> list[Job]:
        """Waiting jobs in the order in which they are considered, then held ones, then the others."""
        rank = {BatchState.PENDING: 0, BatchState.HELD: 1}
        return sorted(self._jobs.values(), key=lambda job: (rank.get(job.state, 2), job.id))

    def _wake(self) -> None:
        if not self._pass_is_due:
            self._pass_is_due = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> EasyPass:
        """Start what EASY says now."""
        self._pass_is_due = False
        now = self._clock()
        pending = sorted(
            (job for job in self._jobs.values() if job.state is BatchState.PENDING), key=lambda job: job.id
        )
        queued = [QueuedJob(str(job.id), job.processors, job.walltime_s) for job in pending]
        active = [
            ActiveJob(str(job.id), job.processors, job.end_s or now)
            for job in self._jobs.values()
            if job.state.holds_processors
        ]
        plan = easy_pass(queued, active, self.nodes.all_free, now)
        if self._closing or not plan.starts:
            return plan
        starting = [self._jobs[int(id)] for id in plan.starts]
        placed = [self.nodes.take(job.processors) for job in starting]
        try:  # stored before the start: a server killed in between knows what it was about to do
            self._change(
                [
                    (job, {"state": BatchState.RUNNING, "start_s": now, "end_s": now + job.walltime_s, "nodes": shares})
                    for job, shares in zip(starting, placed, strict=True)
                ]
            )
        except sqlite3.Error as error:
            log.error("the start of jobs cannot be stored; trying again", jobs=plan.starts, error=str(error))
            for shares in placed:
                self.nodes.give_back(shares)
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake)
            return plan
        for job in starting:
            self._launch(job)
        return plan

    # ---- running

    def _folder(self, id: int) -> Path:
        return self._directory / "jobs" / str(id)

    def _started(self, id: int) -> processes.Identity | None:
        """The step that has this job; None where none ever began with it."""
        try:
            return processes.Identity(*json.loads((self._folder(id) / "started").read_text()))
        except FileNotFoundError:
            return None

    def _launch(self, job: Job) -> None:
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
            self._end(job, BatchState.NODE_FAIL, None, self._clock(), f"the job cannot be started: {error}")

    def _prepare(self, job: Job) -> Path:
        spec = self._file.spec(job.id)
        folder = self._folder(job.id)
        (folder / "processors").mkdir(parents=True, exist_ok=True)
        script = folder / "script"
        script.write_text(spec["script"], errors="surrogateescape")
        script.chmod(0o700)
        environment: dict[str, str] = dict(spec["environment"])
        environment.update(self._variables(job, folder))
        environment["PATH"] = f"{self._directory / 'bin'}:{environment.get('PATH') or os.defpath}"
        # The interpreter is called by name: the spool may be mounted without permission to execute.
        interpreter = spec["script"].splitlines()[0][2:].strip().split(None, 1)
        write_json(
            str(folder / "spec.json"),
            {
                "job": job.id,
                "cluster": self.cluster,
                "argv": [*interpreter, str(script)],
                "environment": environment,
                "workdir": spec["workdir"],
                "output": _expanded(spec["output"], job),
                "error": None if spec["error"] is None else _expanded(spec["error"], job),
                "umask": spec["umask"],
                "end_s": job.end_s,
            },
        )
        return folder

    def _variables(self, job: Job, folder: Path) -> Mapping[str, str]:
        return {
            processes.JOB_VARIABLE: str(job.id),
            processes.CLUSTER_VARIABLE: self.cluster,
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
            self._settle(job)
            return
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            self._settle(job)

        loop.add_reader(fd, ended)

    def _tell_limit(self, job: Job) -> None:
        limit = self._folder(job.id) / "limit"
        temporary = limit.with_suffix(".tmp")
        temporary.write_text(repr(job.end_s))
        temporary.rename(limit)
        self._signal_step(job, signal.SIGHUP)

    def _tell_end(self, job: Job) -> None:
        self._signal_step(job, signal.SIGTERM)

    def _signal_step(self, job: Job, signum: signal.Signals) -> None:
        step = self._steps.get(job.id)
        if step is not None and processes.is_alive(step):
            processes.send([step.pid], signum)

    def _settle(self, job: Job) -> None:
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
            self._keep(self._clean_up(job))
            return
        self._end(job, BatchState(result["state"]), result["exit_code"], result["end_s"], result["reason"])

    async def _clean_up(self, job: Job) -> None:
        """Kill what a killed step left behind, and only then give its processors away."""
        session = self._session(job.id)
        while left := processes.members(self.cluster, job.id, session=session):
            processes.send(left, signal.SIGKILL)
            await asyncio.sleep(0.05)
        state = BatchState.CANCELLED if job.cancelled else BatchState.NODE_FAIL
        self._end(job, state, None, self._clock(), "the process that watched over the job was killed")

    def _session(self, id: int) -> int | None:
        """The session of the job's script; None where its number may have become somebody else's."""
        try:
            leader = processes.Identity(*json.loads((self._folder(id) / "main").read_text()))
        except (OSError, ValueError):
            return None
        if leader.boot != processes.boot_id():
            return None
        # The number stays taken for as long as the session has members, with its leader or without.
        return leader.pid if processes.stat(leader.pid) is None or processes.is_alive(leader) else None

    def _end(self, job: Job, state: BatchState, code: int | None, end_s: float, reason: str) -> None:
        if not job.state.ended:
            self.nodes.give_back(job.nodes)
        job.state, job.exit_code, job.end_s, job.reason = state, code, end_s, reason
        try:
            self._file.save([job])
        except sqlite3.Error as error:
            log.error("the end of a job cannot be stored; trying again", job=job.id, error=str(error))
            asyncio.get_running_loop().call_later(_RETRY_S, self._end, job, state, code, end_s, reason)
        else:
            shutil.rmtree(self._folder(job.id), ignore_errors=True)
        self._note_idle()
        self._wake()

    def _note_idle(self) -> None:
        if not any(job.state.holds_processors for job in self._jobs.values()):
            self._idle.set()

    def _clean_folders(self) -> None:
        """Folders of jobs whose end was stored just before a server was killed."""
        for folder in (self._directory / "jobs").iterdir():
            job = self._jobs.get(int(folder.name)) if folder.name.isdecimal() else None
            if job is None or job.state.ended:
                shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _expanded(path: str, job: Job) -> str:
    """The patterns of an output's name that Slurm has and this cluster can fill: %j, %x, %u and %%."""
    words = {"j": str(job.id), "x": job.name.replace("/", "_"), "u": job.user, "%": "%"}
    return re.sub("%([jxu%])", lambda match: words[match[1]], path)
