"""Slow, plain simulators to compare the engine with: lists, one pass a time over everything, no shared vector."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ejbd.core.bundling.handlers import plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.core.bundling.plan import next_shrink
from ejbd.core.decision import DecisionKind
from ejbd.core.delta import rate_with
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs

Row = tuple[float, int, float, float]  # submit, processors, walltime, run


def workload(rows: list[Row], processors: int) -> Workload:
    """A workload of these jobs."""
    table = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.float64).reshape(len(rows), 4)
    jobs = Jobs(
        table[:, 0].copy(),
        table[:, 3].copy(),
        table[:, 2].copy(),
        table[:, 1].astype(np.int64),
        np.arange(1, len(rows) + 1),
    )
    return Workload("made", processors, jobs)


@dataclass
class SlowJob:
    number: int
    submit: float
    processors: int
    walltime: float
    run: float
    start: float = -1.0
    end: float = -1.0


def slow_jobs(load: Workload) -> list[SlowJob]:
    jobs = load.jobs
    return [
        SlowJob(i, *row)
        for i, row in enumerate(
            zip(jobs.submit.tolist(), jobs.processors.tolist(), jobs.walltime.tolist(), jobs.run.tolist(), strict=True)
        )
    ]


class SlowEasy:
    """EASY written out: the shadow time is found by looking at every planned end, one after the other."""

    def __init__(self, load: Workload, ties: str) -> None:
        self.total = load.processors
        self.jobs = slow_jobs(load)
        self.ties = ties
        self.queue: list[SlowJob] = []
        self.running: list[SlowJob] = []

    def free_at(self, time: float, now: float) -> int:
        """Processors free at `time` by the planned ends; what is planned to have ended by then has."""
        return self.total - sum(j.processors for j in self.running if j.start + j.walltime > max(time, now))

    def schedule(self, now: float) -> None:
        while self.queue and self.queue[0].processors <= self.free_at(now, now):
            self.begin(self.queue[0], now)
        if not self.queue:
            return
        head = self.queue[0]
        ends = sorted({j.start + j.walltime for j in self.running if j.start + j.walltime > now})
        shadow = next(end for end in ends if self.free_at(end, now) >= head.processors)
        for job in self.queue[1:]:
            if job.processors > self.free_at(now, now):
                continue
            left_at_shadow = self.free_at(shadow, now) - head.processors
            if now + job.walltime <= shadow or job.processors <= left_at_shadow:
                self.begin(job, now)

    def begin(self, job: SlowJob, now: float) -> None:
        self.queue.remove(job)
        job.start = now
        self.running.append(job)

    def finish(self, job: SlowJob, now: float) -> None:
        self.running.remove(job)
        job.end = now

    def run(self) -> list[SlowJob]:
        waiting = list(self.jobs)
        while waiting or self.running:
            ends = [j.start + j.run for j in self.running]
            now = min([*ends, *[j.submit for j in waiting[:1]]])
            ended = [j for j in self.running if j.start + j.run == now]
            comes = waiting[:1] if waiting and waiting[0].submit == now else []
            if self.ties == "batch":
                for job in ended:
                    self.finish(job, now)
                while waiting and waiting[0].submit == now:
                    self.queue.append(waiting.pop(0))
            elif comes and (self.ties == "pyss" or not ended):
                self.queue.append(waiting.pop(0))
            else:
                self.finish(ended[0], now)
            self.schedule(now)
        return self.jobs


@dataclass
class SlowElastic:
    """The truth about one elastic job."""

    job: SlowJob
    work: float = 0.0
    as_of: float = 0.0
    stalled: float = 0.0
    subjobs: dict[str, HeldSubjob] = field(default_factory=dict)
    on_placeholder: bool = False
    leaving: tuple[str, ...] = ()
    leave_at: float = math.inf
    made: int = 0
    moves: int = 0
    event: tuple[float, int, int] = (math.inf, 0, 0)

    def state(self, now: float) -> ElasticState:
        held = tuple(self.subjobs.values())
        stalled = self.stalled if self.stalled > now else None
        j = self.job
        return ElasticState(str(j.number), j.processors, j.walltime, self.work, held, stalled, self.on_placeholder)


class SlowEjb(SlowEasy):
    """EJB by the explained policies of `ejbd.core.bundling`, which the engine never calls; paper's ties."""

    def __init__(self, load: Workload, params: BundlingParameters, narrowest: int) -> None:
        super().__init__(load, "paper")
        self.params = params
        self.narrowest = narrowest
        self.elastic: dict[int, SlowElastic] = {}
        self.holds: dict[str, tuple[int, float]] = {}  # what holds processors: how many, planned end
        self.pushed = 0

    def free_at(self, time: float, now: float) -> int:
        return self.total - sum(p for p, end in self.holds.values() if end > max(time, now))

    def begin(self, job: SlowJob, now: float) -> None:
        self.queue.remove(job)
        self.started.append(job)
        self.holds[str(job.number)] = (job.processors, now + job.walltime)

    def schedule(self, now: float) -> None:
        self.started: list[SlowJob] = []
        while self.queue and self.queue[0].processors <= self.free_at(now, now):
            self.begin(self.queue[0], now)
        if not self.queue:
            return
        shadow = self.shadow(now)
        for job in list(self.queue[1:]):
            if job.processors > self.free_at(now, now):
                continue
            left = self.free_at(shadow, now) - self.queue[0].processors
            if now + job.walltime <= shadow or job.processors <= left:
                self.begin(job, now)

    def shadow(self, now: float) -> float:
        ends = sorted({end for _, end in self.holds.values() if end > now})
        return next(end for end in ends if self.free_at(end, now) >= self.queue[0].processors)

    def slots(self, now: float) -> tuple[BackfillSlot, ...]:
        free = self.free_at(now, now)
        if not self.queue:
            return (BackfillSlot(free, UNLIMITED),) if free else ()
        shadow = self.shadow(now)
        extra = min(free, self.free_at(shadow, now) - self.queue[0].processors)
        found = [BackfillSlot(extra, UNLIMITED)] if extra > 0 else []
        return tuple(found + ([BackfillSlot(free, shadow - now)] if free > extra else []))

    def speed(self, e: SlowElastic) -> float:
        return rate_with(e.job.processors, sum(s.processors for s in e.subjobs.values()), self.params.delta)

    def advance(self, e: SlowElastic, now: float) -> None:
        e.work += max(0.0, now - max(e.as_of, e.stalled)) * self.speed(e)
        e.as_of = max(e.as_of, now)

    def plan(self, e: SlowElastic, now: float) -> None:
        """The next thing to happen to a running application: completion, a move's end, or a shrink."""
        if not e.subjobs:
            e.event = (math.inf, 0, 0)
            return
        shrink = next_shrink(e.state(now), now, self.params)
        found: list[tuple[float, int]] = [
            (math.ceil(max(now, e.stalled) + (e.job.run - e.work) / self.speed(e) - 1e-6), 0)
        ]
        if e.stalled > now:
            found.append((e.stalled, 2))
        if e.leaving:
            found.append((e.leave_at, 2))
        elif shrink is not None:
            found.append((max(now, shrink.begin_s), 3))
        self.pushed += 1
        e.event = (*min(found), self.pushed)

    def happen(self, e: SlowElastic, now: float) -> None:
        self.advance(e, now)
        rank = e.event[1]
        if rank == 0:
            e.job.end = now
            for id in e.subjobs:
                del self.holds[id]
            self.queue = [j for j in self.queue if j is not e.job]
            del self.elastic[e.job.number]
            return
        if e.leaving and e.leave_at <= now:
            for id in e.leaving:
                del self.holds[id], e.subjobs[id]
            e.leaving = ()
        elif rank == 3:
            shrink = next_shrink(e.state(now), now, self.params)
            if shrink is not None:
                e.leaving, e.leave_at = shrink.leaves, shrink.end_s
                e.moves += shrink.end_s > e.stalled
                e.stalled = max(e.stalled, shrink.end_s)
        self.plan(e, now)

    def placeholder(self, e: SlowElastic, now: float) -> bool:
        self.advance(e, now)
        decision = plan_placeholder_start(e.state(now), now, self.params)
        if decision.kind is DecisionKind.KEEP_SUBJOBS:
            del self.holds[str(e.job.number)]
            return True
        freed = bool(e.subjobs)
        for id in e.subjobs:
            del self.holds[id]
        e.subjobs = {str(e.job.number): HeldSubjob(str(e.job.number), e.job.processors, now + e.job.walltime)}
        e.on_placeholder, e.leaving = True, ()
        e.made += 1
        if decision.kind is DecisionKind.MOVE_TO_PLACEHOLDER:
            e.stalled = now + self.params.lambda_s
            e.moves += 1
        else:
            e.stalled, e.work = now, 0.0
        e.job.start = now if e.job.start < 0 else e.job.start
        self.plan(e, now)
        return freed

    def visits(self) -> list[SlowElastic]:
        def key(e: SlowElastic) -> tuple[bool, float, int]:
            left = e.job.processors * max(0.0, e.job.walltime - e.work)
            return (bool(e.subjobs), left, e.job.number)

        jobs = sorted(self.elastic.values(), key=lambda e: e.job.number)
        return sorted(jobs, key=key) if self.params.order is Order.LEAST_WORK else jobs

    def offer(self, now: float) -> bool:
        took = False
        if not self.slots(now):
            return False
        for e in self.elastic.values():
            self.advance(e, now)
        for e in self.visits():
            slots = self.slots(now)
            if e.on_placeholder or not slots:
                continue
            decide = plan_running if e.subjobs else plan_wait
            decision = decide(e.state(now), slots, now, self.params)
            if not decision.requests:
                continue
            took = True
            if decision.kind is DecisionKind.EXPAND:
                e.stalled = now + self.params.lambda_s
                e.leaving = ()
                e.moves += 1
            else:
                e.as_of = now
                e.stalled = now + self.params.lambda_s if e.work > 0 else now
                e.job.start = now if e.job.start < 0 else e.job.start
            for request in decision.requests:
                e.made += 1
                id = f"{e.job.number}/{e.made}"
                self.holds[id] = (request.processors, now + request.length_s)
                e.subjobs[id] = HeldSubjob(id, request.processors, now + request.length_s)
            self.plan(e, now)
        return took

    def react(self, now: float, fresh: list[SlowJob]) -> None:
        again = True
        while again:
            again = False
            self.schedule(now)
            started = self.started
            for job in started:
                if job.number not in self.elastic:
                    job.start = now
                    self.running.append(job)
            for job in started:
                if job.number in self.elastic:
                    again = self.placeholder(self.elastic[job.number], now) or again
            for job in fresh:
                if job.start < 0 and job.processors >= self.narrowest:
                    self.elastic[job.number] = SlowElastic(job, as_of=now)
            fresh = []
            again = again or self.offer(now)

    def run(self) -> list[SlowJob]:
        waiting = list(self.jobs)
        while waiting or self.running or self.elastic:
            events: list[tuple[float, int, int, Any]] = [(j.start + j.run, 1, 0, j) for j in self.running]
            events += [(*e.event, e) for e in self.elastic.values()]
            events.sort(key=lambda event: event[:3])
            fresh: list[SlowJob] = []
            if not events or (waiting and waiting[0].submit < events[0][0]):
                now = waiting[0].submit
                fresh = [waiting.pop(0)]
                self.queue += fresh
            else:
                now, _, _, what = events[0]
                if isinstance(what, SlowJob):
                    self.running.remove(what)
                    what.end = now
                    del self.holds[str(what.number)]
                else:
                    self.happen(what, now)
            self.react(now, fresh)
        return self.jobs
