"""The embedded cluster itself: the queue, EASY backfilling, and the steps that run the jobs."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from ejbd.batch.local.binding import places
from ejbd.batch.local.folding import Pool, Turn, turn
from ejbd.batch.local.jobs import Job, JobFile
from ejbd.batch.local.nodes import Layout, Nodes, Shares
from ejbd.batch.local.schedule import Schedule, plan_starts
from ejbd.batch.local.steps import End, Steps
from ejbd.core.evolving.space import FreeSpace
from ejbd.core.freespace import last_obstacle
from ejbd.core.view import BatchState
from ejbd.wire.hostlists import fold

LISTED_S = 300.0  # ended jobs stay in the listing for so long
KEPT_S = 7 * 86400.0  # and can be found and asked for their outcome for so long
_RETRY_S = 1.0

log = structlog.get_logger()


class Refused(Exception):
    """The request is wrong, or comes at the wrong time; the text says why."""


def beside(
    starting: Sequence[tuple[Job, Shares]], kept: Iterable[Job], active: Iterable[Job], free: int, now: float
) -> list[tuple[Job, Shares]]:
    """Those of the jobs that may start now and leave its processors to each that has a begin of its own later.

    Such a job has a reservation: from its begin to the end of its walltime. What does not fit beside all of them waits.
    """
    space = FreeSpace.of_releases(free, now, [(job.end_s or now, job.processors) for job in active])
    for job in kept:
        begin_s = math.ceil(job.begin_s)
        space.take(begin_s, begin_s + job.walltime_s, job.processors)
    found = []
    for job, shares in starting:
        end_s = space.times[0] + job.walltime_s
        if last_obstacle(space.times, space.levels, space.steps, space.times[0], end_s, job.processors) == -math.inf:
            space.take(space.times[0], end_s, job.processors)
            found.append((job, shares))
    return found


class Cluster:
    """All jobs of one embedded cluster in `directory`. Lives in one event loop; `clock` is seconds since the epoch.

    `pool`: it is one, with jobs folded in place so that the next one can start (FCFS-malleable). `names`: of its nodes.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int,
        processors: int,
        clock: Callable[[], float],
        *,
        pool: Pool | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._clock = clock
        self._file = JobFile(directory / "jobs.sqlite")
        self._jobs: dict[int, Job] = {}
        self._pass_is_due = False
        self._closing = False
        self._idle = asyncio.Event()
        self._changed = asyncio.Event()
        self.version = 0  # how often what runs, and on what, has become another
        self.nodes = Nodes(nodes, processors, names)
        self.cluster = self._file.cluster
        self._steps = Steps(directory, self.cluster, self._file.spec, self._end)
        self._set_shape(nodes, processors)

    def _set_shape(self, nodes: int, processors: int) -> None:
        known = self._file.shape()
        if known == (nodes, processors):
            return
        alive = [] if known is None else [j for j in self._file.live_or_ended_since(self._clock()) if not j.state.ended]
        if self._pool is not None and all(job.processors <= self.nodes.total for job in alive):
            alive = []  # a pool goes on in another allocation, and what ran in the last one has ended with it
        if known is not None and alive:
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
            self.nodes.retake(job.held)
        for job in running:
            self._steps.adopt(job)
        self._steps.forget_all_but({job.id for job in running})
        self._wake()

    def close(self) -> None:
        """Let go; jobs go on."""
        self._steps.close()
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
        self.check(job)
        job.folds = job.folds and self._pool is not None
        job.id = self._file.add(job, spec)
        self._jobs[job.id] = job
        self._wake_at(max(job.begin_s, job.eligible_s))
        return job.id

    def check(self, job: Job) -> None:
        """Make its processors those that its layout comes to. Refused, in Slurm's words, where no nodes have them."""
        if job.processors > self.nodes.total:
            raise Refused(f"{job.processors} processors are more than the {self.nodes.total} that the cluster has")
        if self._pool is not None:
            if job.layout.whole or job.layout.only or job.layout.never:
                raise Refused("in a pool no job has nodes by their names, or to itself")
            job.layout = Layout()  # it is started where it can be folded
            return
        if unknown := [name for name in job.layout.only if name not in self.nodes.free]:
            raise Refused(
                f"Invalid node name specified: {unknown[0]}; the embedded cluster has {fold(self.nodes.free)}"
            )
        job.processors, job.layout = job.layout.sized(job.processors, self.nodes.processors)
        if self.nodes.emptied().place(job.processors, job.layout) is None:
            shape = f"{len(self.nodes.free)} nodes of {self.nodes.processors} processors"
            raise Refused(f"Requested node configuration is not available; the embedded cluster has {shape}")

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
            self._steps.tell_end(job)
        self._wake()

    def signal(self, id: int, number: int, to: str) -> None:
        """Send a signal to the `script`, the `ranks` or `all` of a job, where it runs."""
        job = self._jobs.get(id)
        if job is not None and job.state is BatchState.RUNNING:
            self._steps.send_signal(job, number, to)

    def update(self, id: int, *, walltime_s: float | None, hold: bool | None, begin_in_s: float | None = None) -> None:
        """Shorten the walltime, hold or release, or change the begin. Refused where the job's state or the value does
        not allow it."""
        job = self._jobs.get(id)
        if job is None or job.state.ended:
            raise Refused(f"job {id} has ended or is not known")
        if walltime_s is not None and walltime_s > job.walltime_s:
            raise Refused(
                f"job {id} has a walltime of {job.walltime_s:g} s, which can be shortened only, not made {walltime_s:g}"
            )
        if hold is not None and job.state.holds_processors:
            raise Refused(f"job {id} runs; only a waiting job can be held or released")
        if begin_in_s is not None and job.state.holds_processors:
            raise Refused(f"job {id} runs; only a waiting job can begin later")
        change: dict[str, Any] = {} if begin_in_s is None else {"begin_s": self._clock() + begin_in_s}
        if hold is not None:
            change["state"] = BatchState.HELD if hold else BatchState.PENDING
        if walltime_s is not None:
            change["walltime_s"] = walltime_s
            if job.start_s is not None:
                change["end_s"] = job.start_s + walltime_s
        self._change([(job, change)])
        if walltime_s is not None and job.state.holds_processors:
            self._steps.tell_limit(job)
        self._wake_at(job.begin_s)

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
            "head": None if plan.head is None else str(plan.head.id),
            "shadow_s": plan.shadow_s,
        }

    def find(self, names: Sequence[str]) -> dict[str, str]:
        """Name -> number of the newest job of that name that was submitted in the last days, whatever became of it."""
        return {name: str(id) for name, id in self._file.by_names(names).items()}

    def outcomes(self, ids: Sequence[int]) -> dict[str, dict[str, Any]]:
        """How these jobs ended; those that have not, or are not known, are left out."""
        return {str(job.id): job.wire() for job in self._file.by_ids(ids) if job.state.ended}

    async def wait_for_change(self, since: int) -> int:
        """Until jobs have started or ended, or have other processors, since `version` was this; what it is then."""
        while self.version == since:
            await self._changed.wait()
        return self.version

    def _tell_change(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

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
        return sorted(self._jobs.values(), key=lambda job: (rank.get(job.state, 2), not job.begin_s, job.id))

    def _wake_at(self, time_s: float) -> None:
        """Look at the queue now, and once more where a job may begin then."""
        self._wake()
        if (ahead_s := time_s - self._clock()) > 0:
            asyncio.get_running_loop().call_later(ahead_s, self._wake)

    def _wake(self) -> None:
        if not self._pass_is_due:
            self._pass_is_due = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _fold(self, pool: Pool) -> Schedule:
        """Start what FCFS-malleable says now, and tell what running jobs have for it.

        What does not start before the pool ends waits for no room here, and is in no other job's way.
        """
        now = self._clock()
        waiting = [job for job in self._in_order() if job.state is BatchState.PENDING and job.may_begin(now)]
        waiting = [job for job in waiting if pool.may_start(job, now)]
        running = [job for job in self._jobs.values() if job.state is BatchState.RUNNING]
        nothing = Schedule()  # FCFS reserves nothing, and foretells no start
        if self._closing:
            return nothing
        before = dict(self.nodes.free)
        found: Turn = turn(waiting, running, self.nodes)
        if not found.shares and not found.starts:
            return nothing
        begun = [
            {"state": BatchState.RUNNING, "start_s": now, "nodes": s.nodes, "holds": s.holds}
            | {"end_s": min(now + s.job.walltime_s, pool.until_s)}
            for s in found.starts
        ]
        changes: dict[int, tuple[Job, dict[str, Any]]] = {job.id: (job, {"holds": h}) for job, h in found.shares}
        changes |= {s.job.id: (s.job, dict(change)) for s, change in zip(found.starts, begun, strict=True)}
        as_changed = [
            replace(job, **changes[job.id][1]) if job.id in changes else job
            for job in self._jobs.values()
            if job.state.holds_processors
        ]
        as_changed += [replace(start.job, **changes[start.job.id][1]) for start in found.starts]
        for id, mine in places(as_changed, self.nodes.free, self.nodes.processors).items():
            if id in changes:
                changes[id][1]["places"] = mine
        try:
            self._change(list(changes.values()))
        except sqlite3.Error as error:
            log.error("what jobs have cannot be stored; trying again", error=str(error))
            self.nodes.free = before
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake)
            return nothing
        for start in found.starts:
            self._steps.launch(start.job)
        self._tell_change()
        return nothing

    def _pass(self) -> Schedule:
        """Start what EASY says now."""
        self._pass_is_due = False
        if self._pool is not None:
            return self._fold(self._pool)
        now = self._clock()
        waiting = [job for job in self._in_order() if job.state is BatchState.PENDING]
        active = [job for job in self._jobs.values() if job.state.holds_processors]
        plan = plan_starts([job for job in waiting if job.may_begin(now)], active, self.nodes, now)
        starts: Sequence[tuple[Job, Shares]] = plan.starts
        if kept := [job for job in waiting if job.begin_s > now]:
            starts = beside(starts, kept, active, self.nodes.all_free, now)
        if self._closing or not starts:
            return plan
        for _, shares in starts:
            self.nodes.retake(shares)
        try:  # stored before the start: a server killed in between knows what it was about to do
            self._change(
                [
                    (job, {"state": BatchState.RUNNING, "start_s": now, "end_s": now + job.walltime_s, "nodes": shares})
                    for job, shares in starts
                ]
            )
        except sqlite3.Error as error:
            log.error(
                "the start of jobs cannot be stored; trying again", jobs=[job.id for job, _ in starts], error=str(error)
            )
            for _, shares in starts:
                self.nodes.give_back(shares)
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake)
            return plan
        for job, _ in starts:
            self._steps.launch(job)
        self._tell_change()
        return plan

    def _end(self, job: Job, end: End) -> None:
        if not job.state.ended:
            self.nodes.give_back(job.held)
        if end.end_s is None:
            end = replace(end, end_s=self._clock())  # now, however often it has to be stored
        job.state, job.exit_code, job.reason, job.end_s = end.state, end.exit_code, end.reason, end.end_s
        try:
            self._file.save([job])
        except sqlite3.Error as error:
            log.error("the end of a job cannot be stored; trying again", job=job.id, error=str(error))
            asyncio.get_running_loop().call_later(_RETRY_S, self._end, job, end)
        else:
            self._steps.forget(job.id)
        self._note_idle()
        self._tell_change()
        self._wake()

    def _note_idle(self) -> None:
        if not any(job.state.holds_processors for job in self._jobs.values()):
            self._idle.set()
