"""FCFS-malleable in the simulated world: one cluster without EASY, where jobs are folded in place and unfolded."""

from __future__ import annotations

import heapq
import math
import time
from typing import Any

import numpy as np

from ejbd.core.malleable.folding import begin, half, spare, unfolded
from ejbd.core.malleable.parameters import MalleableParameters
from ejbd.core.malleable.stretching import paces
from ejbd.core.progress import round_up
from ejbd.sim import progress
from ejbd.sim.metrics import Outcome
from ejbd.sim.workload import Workload
from ejbd.sim.world import FloatArray

LONG_S, WIDE_LONG = 8 * 3600.0, 64  # the paper's long jobs: wider, and longer
_TOLD_EVERY = 1000  # events


def drawn(workload: Workload, parameters: MalleableParameters) -> tuple[FloatArray, FloatArray]:
    """Processor use (0 to 1) and overhead (0 to 1) of each job.

    The use is the log's (field 6 over the run time) where it has one. Else it is drawn evenly about the mean of
    `parameters`, as far to either side as the nearer end of 0 and 1.
    """
    jobs = workload.jobs
    dice = np.random.default_rng(parameters.draw)
    long = (jobs.processors > WIDE_LONG) & (jobs.run > LONG_S)
    mean = np.where(long, parameters.use_long, parameters.use)
    use = mean + np.minimum(mean, 1.0 - mean) * dice.uniform(-1.0, 1.0, len(workload))
    overhead: FloatArray = dice.uniform(0.0, 1.0, len(workload))
    if workload.cpu_s is not None:
        use = np.where(workload.cpu_s > 0, np.clip(workload.cpu_s / jobs.run, 0.01, 1.0), use)
    return use, overhead


def run_malleable(
    workload: Workload,
    parameters: MalleableParameters,
    *,
    candidates: Any = None,
    fixed_s: float = 0.0,
    checking: bool = False,
) -> Outcome:
    """Simulate every job to its end; `candidates` flags the jobs that may be folded (without: all).

    `fixed_s`: each job has its processors for so long beside its work, folded or not, as for its start and its end.
    Events of one time are taken together: ends first, then submissions, then the policy. Ends are rounded up to whole
    seconds. `moves` counts folding and unfolding, `elastic` flags jobs that ran folded.
    """
    started = time.perf_counter()
    game = _Game(workload, parameters, candidates, fixed_s)
    game.play(checking)
    return game.outcome(time.perf_counter() - started)


class _Game:
    """The jobs that run are in the order of their starts, which is that of their submissions."""

    def __init__(
        self, workload: Workload, parameters: MalleableParameters, candidates: Any, fixed_s: float = 0.0
    ) -> None:
        jobs, n = workload.jobs, len(workload)
        use, overhead = drawn(workload, parameters)
        self.name = f"{workload.name}, fcfs-malleable"
        self.parameters = parameters
        self.total = self.free = workload.processors
        self.submit, self.run, self.width = jobs.submit.tolist(), jobs.run.tolist(), jobs.processors.tolist()
        self.walltime, self.use = jobs.walltime.tolist(), use.tolist()
        flags = np.full(n, True) if candidates is None else np.asarray(candidates, dtype=bool)
        self.folds = (flags & (jobs.processors > 1) & (parameters.mpl > 1)).tolist()
        self.paces = [
            paces(parameters.model, use=u, overhead=o, stretch=parameters.stretch, delta=parameters.delta)
            for u, o in zip(self.use, overhead.tolist(), strict=True)
        ]
        self.start, self.end, self.used = [-1.0] * n, [-1.0] * n, [0.0] * n
        self.held, self.left, self.since = [0] * n, list(self.run), [0.0] * n
        self.fixed = [fixed_s] * n  # that are to pass yet, once the work is done
        self.moves, self.ever = [0] * n, [0] * n
        self.whole: dict[int, None] = {}  # that run in their own shape, and may be folded
        self.folded: dict[int, None] = {}
        self.heap: list[tuple[float, int]] = []
        self.due = [math.inf] * n
        self.head = self.arrived = 0  # jobs from the one to before the other wait
        self.now = self.submit[0] if n else 0.0
        self.idle_s = self.queued_s = 0.0
        self.events = 0

    def play(self, checking: bool) -> None:
        n = len(self.submit)
        while True:
            while self.heap and self.heap[0][0] != self.due[self.heap[0][1]]:
                heapq.heappop(self.heap)  # what was planned before the job was folded or unfolded
            then = self.heap[0][0] if self.heap else math.inf
            if self.arrived < n:
                then = min(then, self.submit[self.arrived])
            if then == math.inf:
                return
            if self.head < self.arrived:
                self.idle_s += (then - self.now) * self.free
                self.queued_s += then - self.now
            self.now = then
            blocked = self.head < self.arrived
            ended = self._end_those_due()
            while self.arrived < n and self.submit[self.arrived] <= then:
                self.arrived += 1
            self.events += 1
            if ended or not blocked:
                self._react()
            if checking:
                self._check()
            if self.events % _TOLD_EVERY == 0:
                progress.tell(self.name, self.arrived / max(1, n))

    def _end_those_due(self) -> bool:
        ended = False
        while self.heap and self.heap[0][0] <= self.now:
            at, job = heapq.heappop(self.heap)
            if at != self.due[job]:
                continue
            ended = True
            self._advance(job)
            self.free += self.held[job]
            self.held[job], self.due[job], self.end[job] = 0, math.inf, self.now
            self.whole.pop(job, None)
            self.folded.pop(job, None)
        return ended

    def _react(self) -> None:
        """The policy (:mod:`ejbd.core.malleable.folding`): heads of the queue start; without one, jobs are unfolded."""
        while self.head < self.arrived:
            job = self.head
            width = self.width[job]
            ordered = self._in_order(self.whole) if self.free < width else []
            found = begin(width, self.free, (spare(self.width[one]) for one in ordered), self.folds[job])
            if found is None:
                return
            for one in ordered[: found.folded]:
                self._resize(one, half(self.width[one]))
            self.start[job] = self.since[job] = self.now
            self.head += 1
            self._resize(job, found.processors)
        ordered = self._in_order(self.folded) if self.free > 0 else []
        for place in unfolded(self.free, [spare(self.width[one]) for one in ordered]):
            self._resize(ordered[place], self.width[ordered[place]])

    def _in_order(self, jobs: dict[int, None]) -> list[int]:
        first = self.parameters.first
        return sorted(jobs, key=lambda job: first.key(job, self.use[job], self.walltime[job]))

    def _resize(self, job: int, processors: int) -> None:
        """A job begins, is folded or unfolded: from now on it runs on so many processors."""
        self._advance(job)
        if self.held[job]:
            self.moves[job] += 1
        self.free += self.held[job] - processors
        self.held[job] = processors
        short = processors < self.width[job]
        self.ever[job] |= short
        self.whole.pop(job, None)
        self.folded.pop(job, None)
        if short:
            self.folded[job] = None
        elif self.folds[job]:
            self.whole[job] = None
        self.due[job] = max(
            self.now, round_up(self.now + self.left[job] * self.paces[job][short] + self.fixed[job], 1.0)
        )
        heapq.heappush(self.heap, (self.due[job], job))

    def _advance(self, job: int) -> None:
        passed = self.now - self.since[job]
        self.since[job] = self.now
        if self.held[job] and passed > 0:
            self.used[job] += self.held[job] * passed
            pace = self.paces[job][self.held[job] < self.width[job]]
            self.fixed[job] = max(0.0, self.fixed[job] - max(0.0, passed - self.left[job] * pace))
            self.left[job] = max(0.0, self.left[job] - passed / pace)

    def _check(self) -> None:
        assert self.free >= 0 and self.free + sum(self.held) == self.total, "processors are lost"
        assert all(self.held[job] == half(self.width[job]) for job in self.folded)
        assert self.head == self.arrived or self.free < self.width[self.head], "the head waits in vain"

    def outcome(self, elapsed_s: float) -> Outcome:
        def floats(values: list[float]) -> FloatArray:
            return np.array(values, dtype=np.float64)

        n = len(self.submit)
        return Outcome(
            floats(self.start), floats(self.end), floats(self.used), np.zeros(n), np.ones(n, dtype=np.int64),
            np.array(self.moves, dtype=np.int64), np.array(self.ever, dtype=np.int64),
            self.idle_s, self.queued_s, self.events, elapsed_s,
        )  # fmt: skip
