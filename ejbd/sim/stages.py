"""Workflows of stages among the jobs of a log, under EASY: a stage is asked for when its mode says so.

The log's jobs are rigid. A workflow's allocations come one after the other, each with a width of its own: what is asked
for, and when, depends on what has started and ended, which the compiled engine does not do.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass
from ejbd.sim.workload import Workload


class Way(StrEnum):
    """How a workflow is run."""

    ONE = "one"
    """One allocation of the greatest width, for all of its life."""
    CHAINED = "chained"
    """A job a stage; each is queued when the one before has ended, and nothing is checkpointed."""
    DEFAULT = "default"
    """The same, and each is come to by a move (E-HPC's default mode)."""
    FAST = "fast"
    """The next one is queued while the present one runs; it holds its processors idle for so long at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """One allocation: processors, and seconds of work."""

    width: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Flow:
    """A workflow that arrives at `arrive_s`."""

    arrive_s: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """`move_s`: a checkpoint and the restart from it. `over`: walltimes asked for, as a multiple of what is needed.

    FAST: the next step is queued `ahead_s` before the present one is expected to end, and lingers for `linger_s` at
    most. It is expected to end when its walltime does, or (`learned`) when it will.
    """

    way: Way
    move_s: float = 6.0
    over: float = 2.0
    ahead_s: float = 600.0
    linger_s: float = 60.0
    learned: bool = False


def steps_as(flow: Flow, way: Way) -> tuple[Step, ...]:
    """The allocations that a workflow asks for in this way."""
    if way is not Way.ONE:
        return flow.steps
    return (Step(max(step.width for step in flow.steps), sum(step.run_s for step in flow.steps)),)


def step_needs_s(step: Step, at: int, rules: Rules) -> float:
    """Seconds that an allocation is needed for; all but the first are come to by a move, where there are moves."""
    return step.run_s + (rules.move_s if at and rules.way in (Way.DEFAULT, Way.FAST) else 0.0)


@dataclass(slots=True)
class Fate:
    """What became of a workflow; seconds and core-seconds. `waits_s`: q_i of each of its allocations."""

    arrive_s: float
    held: float = 0.0
    idle: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    @property
    def turnaround_s(self) -> float:
        return self.end_s - self.arrive_s

    @property
    def wait_s(self) -> float:
        return sum(self.waits_s)


@dataclass(frozen=True, slots=True)
class Played:
    """The fate of each workflow, and the mean turnaround of the log's own jobs (seconds)."""

    fates: list[Fate]
    others_s: float


@dataclass(eq=False, slots=True)
class _Job:
    queued: QueuedJob
    run_s: float = 0.0
    submit_s: float = 0.0
    flow: _Playing | None = None
    step: int = 0


@dataclass(eq=False, slots=True)
class _Playing:
    steps: tuple[Step, ...]
    fate: Fate
    at: int = -1  # the step that runs, or ran last
    running: bool = False
    asked: int = 0  # steps that are, or were, in the queue
    holder: _Job | None = None  # of the next step, idle
    held_since_s: float = 0.0


END, LINGERED, ASK, SUBMIT = range(4)  # in this order at one time


class Staged:
    """One simulation."""

    def __init__(self, workload: Workload, flows: Sequence[Flow], rules: Rules) -> None:
        self._rules = rules
        self._free = self._processors = workload.processors
        self._heap: list[tuple[float, int, int, _Job | _Playing]] = []
        self._order = itertools.count()
        self._queue: list[_Job] = []
        self._active: dict[_Job, ActiveJob] = {}
        self._began: dict[_Job, float] = {}
        self._others_s = 0.0
        self.now = 0.0
        self._count = len(workload)
        jobs = workload.jobs
        for at in range(len(workload)):
            queued = QueuedJob(str(at), int(jobs.processors[at]), float(jobs.walltime[at]))
            self._push(float(jobs.submit[at]), SUBMIT, _Job(queued, float(jobs.run[at]), float(jobs.submit[at])))
        self.fates = [Fate(flow.arrive_s) for flow in flows]
        for flow, fate in zip(flows, self.fates, strict=True):
            self._push(flow.arrive_s, ASK, _Playing(steps_as(flow, rules.way), fate))

    def play(self) -> Played:
        while self._heap:
            self.now = self._heap[0][0]
            look = False
            while self._heap and self._heap[0][0] == self.now:
                _, kind, _, what = heapq.heappop(self._heap)
                look |= self._take(kind, what)
            if look:
                self._schedule()
        return Played(self.fates, self._others_s / max(1, self._count))

    def _push(self, at_s: float, kind: int, what: _Job | _Playing) -> None:
        heapq.heappush(self._heap, (at_s, kind, next(self._order), what))

    def _take(self, kind: int, what: _Job | _Playing) -> bool:
        """Whether something may start by it."""
        if isinstance(what, _Playing):
            return self._ask(what, what.at + 1)
        if kind == SUBMIT:
            return self._submit(what)
        if kind == LINGERED:
            flow = what.flow
            if flow is None or flow.holder is not what:
                return False
            self._give_back(what)
            flow.holder = None
            flow.fate.idle += (self.now - flow.held_since_s) * what.queued.processors
            flow.asked = flow.at + 1  # asked for anew once the present step has ended
            return True
        self._give_back(what)
        if what.flow is not None:
            self._ended(what.flow)
        else:
            self._others_s += self.now - what.submit_s
        return True

    def _submit(self, job: _Job) -> bool:
        self._queue.append(job)
        return len(self._queue) == 1 or job.queued.processors <= self._free

    def _give_back(self, job: _Job) -> None:
        del self._active[job]
        self._free += job.queued.processors
        began_s = self._began.pop(job)
        if job.flow is not None:
            job.flow.fate.held += (self.now - began_s) * job.queued.processors

    def _schedule(self) -> None:
        found = easy_pass([job.queued for job in self._queue], self._active.values(), self._free, self.now)
        if not found.starts:
            return
        starts = set(found.starts)
        started = [job for job in self._queue if job.queued.id in starts]
        self._queue = [job for job in self._queue if job.queued.id not in starts]
        for job in started:
            self._free -= job.queued.processors
            assert self._free >= 0
            end_s = self.now + job.queued.walltime_s
            self._active[job] = ActiveJob(job.queued.id, job.queued.processors, end_s)
            self._began[job] = self.now
            if job.flow is None:
                self._push(self.now + job.run_s, END, job)
            else:
                self._started(job, job.flow)

    # -- workflows ----------------------------------------------------------------------------------------------------

    def _ask(self, flow: _Playing, step: int) -> bool:
        if step >= len(flow.steps) or flow.asked > step:
            return False
        flow.asked = step + 1
        one = flow.steps[step]
        needed = step_needs_s(one, step, self._rules)
        walltime = self._rules.over * needed + (self._rules.linger_s if self._rules.way is Way.FAST and step else 0.0)
        id = f"flow-{next(self._order)}"
        return self._submit(_Job(QueuedJob(id, one.width, walltime), needed, self.now, flow, step))

    def _started(self, job: _Job, flow: _Playing) -> None:
        if flow.running:  # the step before it is still at work
            flow.holder, flow.held_since_s = job, self.now
            self._push(self.now + self._rules.linger_s, LINGERED, job)
        else:
            self._begin(job, flow)

    def _begin(self, job: _Job, flow: _Playing) -> None:
        before_s = flow.fate.end_s if job.step else flow.fate.arrive_s
        flow.fate.waits_s.append(self.now - before_s)
        flow.at, flow.running = job.step, True
        end_s = self.now + job.run_s
        self._push(end_s, END, job)
        if self._rules.way is Way.FAST and job.step + 1 < len(flow.steps):
            expected_s = end_s if self._rules.learned else self._active[job].end_s
            ask_s = max(self.now, expected_s - self._rules.ahead_s)
            if ask_s < end_s:
                self._push(ask_s, ASK, flow)

    def _ended(self, flow: _Playing) -> None:
        flow.running = False
        flow.fate.end_s = self.now
        if flow.holder is not None:
            job, flow.holder = flow.holder, None
            flow.fate.idle += (self.now - flow.held_since_s) * job.queued.processors
            self._begin(job, flow)
        else:
            self._ask(flow, flow.at + 1)
