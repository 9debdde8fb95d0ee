"""Logs played under EASY with jobs that are sent into windows shorter than their request, as `gaps` does it live."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ejbd.core.room.slots import easy_slots
from ejbd.core.speculation.sending import NEWEST, Known, Sent, Waiter, may_try, sent
from ejbd.sim import progress
from ejbd.sim.cluster import EASY, JOB_ENDS, dequeue, end_rigid, enqueue, give_back, hold, schedule, start_rigid
from ejbd.sim.engine import PAPER_TIES, next_event, next_time
from ejbd.sim.heap import set_event
from ejbd.sim.run import refuse_fault
from ejbd.sim.workload import Workload
from ejbd.sim.world import DUE, FAULT, FREE, NOW, QUEUED, RIGID, World, new_world
from ejbd.studies.speculative.learning import QUANTUM_S
from ejbd.studies.speculative.traces import Played, figures

LAMBDA_S = 120.0  # a checkpoint, and a restart from it
_TOLD_EVERY = 2000


@dataclass(slots=True)
class _Class:
    """The newest runs of a class, in their order and by their length."""

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    ordered: list[float] = field(default_factory=list)

    def add(self, run: float) -> None:
        if len(self.newest) == NEWEST:
            del self.ordered[bisect_left(self.ordered, self.newest[0])]
        self.newest.append(run)
        insort(self.ordered, run)


@dataclass(slots=True)
class _Trial:
    """What was tried of a job: the last window, how many, and the work that was kept."""

    window_s: float = 0.0
    tries: int = 0
    saved_s: float = 0.0


class GapPlay:
    """One log under EASY. `keeps`: what a run has done by the end of its window is checkpointed, and kept."""

    def __init__(self, workload: Workload, *, keeps: bool = False) -> None:
        self._jobs, self._keeps = workload.jobs, keeps
        self._processors, self._name = workload.processors, workload.name
        users = workload.users if workload.users is not None else np.full(len(workload), -1)
        self._users = users.tolist()
        self._requests = [float(one) for one in workload.jobs.walltime]
        self._runs = [float(one) for one in workload.jobs.run]
        self._classes: dict[tuple[float, ...], _Class] = {}
        self._trials: dict[int, _Trial] = {}
        self._away: dict[int, float] = {}  # jobs that run in a window, and until when that lasts
        self._killed = self._attempts = 0
        self._asked = 0.0
        none = np.zeros(len(workload), dtype=np.int64)
        self._world = new_world(workload.jobs, workload.processors, none, elastic_rows=0, width=4, plain=True)
        self._slots: tuple[list[int], list[float]] = ([0, 0], [0.0, 0.0])

    def play(self) -> Played:
        """To the end of all jobs. Raises SimulationError."""
        w = self._world
        while next_time(w) < math.inf:
            job, _ = next_event(w, PAPER_TIES)
            if job in self._away:
                self._window_over(job)
            elif job >= 0:
                before = w.used[job]
                end_rigid(w, job)
                w.used[job] += before
                self._learn(job)
                if job % _TOLD_EVERY == 0:
                    progress.tell(self._name, job / len(self._runs))
            for index in range(schedule(w, EASY)):
                start_rigid(w, w.started[index])
                self._count(w.walltime[w.started[index]], w.started[index])
            for one in self._to_send():
                self._send(int(one.job), one.window_s)
            if w.count[FAULT]:
                refuse_fault(w)
        return self._figures()

    def _count(self, asked_s: float, job: int) -> None:
        self._attempts += 1
        self._asked += asked_s * self._world.processors[job]

    def _groups(self, job: int) -> Iterator[tuple[str, tuple[float, ...], float]]:
        """The classes of a job, the nearest first: in words, by which they are kept, and the unit of their runs."""
        user, request_s = self._users[job], self._requests[job]
        yield "runs alike", (0, user, self._world.processors[job], request_s), 1.0
        yield "runs of the user with this request", (1, user, request_s), 1.0
        yield "runs of the user, by their requests", (2, user), request_s
        yield "runs, by their requests", (3,), request_s

    def _learn(self, job: int) -> None:
        for _, group, unit_s in self._groups(job):
            self._classes.setdefault(group, _Class()).add(self._runs[job] / unit_s)

    def _known(self, job: int) -> list[Known]:
        found = []
        for what, group, unit_s in self._groups(job):
            runs = self._classes.get(group)
            if runs is not None:
                found.append(Known(what, runs.ordered, unit_s))
        return found

    def _to_send(self) -> list[Sent]:
        w = self._world
        free = w.count[FREE]
        if w.count[QUEUED] < 2 or free <= 0:
            return []
        processors, durations = self._slots
        slots = easy_slots(
            w.queue_processors[0], w.ends, w.freed, w.count[DUE], free, w.clock[NOW], processors, durations
        )
        if slots == 0 or math.isinf(durations[slots - 1]):
            return []
        window_s = durations[slots - 1] // QUANTUM_S * QUANTUM_S
        waiters = []
        for at in range(1, w.count[QUEUED]):
            job = w.queue[at]
            if w.queue_processors[at] > free:
                continue
            trial = self._trials.get(job, _NONE)
            one = Waiter(
                str(job), w.queue_processors[at], self._requests[job], (), trial.window_s, trial.tries, self._keeps
            )
            if may_try(one, window_s):
                waiters.append(
                    Waiter(one.job, one.processors, one.request_s, self._known(job), one.tried_s, one.tries, one.keeps)
                )
        return sent(waiters, [(processors[slots - 1], window_s)])

    def _send(self, job: int, window_s: float) -> None:
        w = self._world
        now = w.clock[NOW]
        dequeue(w, job)
        hold(w, w.processors[job], now + window_s)
        w.mode[job], w.start[job] = RIGID, now
        self._away[job] = now + window_s
        trial = self._trials.setdefault(job, _Trial())
        trial.window_s, trial.tries = window_s, trial.tries + 1
        set_event(w, job, now + min(w.run[job], window_s), JOB_ENDS)
        self._count(window_s, job)

    def _window_over(self, job: int) -> None:
        """A run in a window is done, or goes back to its place in the queue."""
        w = self._world
        now, until_s = w.clock[NOW], self._away.pop(job)
        took_s = now - w.start[job]
        w.used[job] += w.processors[job] * took_s
        give_back(w, w.processors[job], until_s, now)
        if took_s >= w.run[job]:
            w.end[job] = now
            self._learn(job)
            return
        self._killed += 1
        if self._keeps:
            trial = self._trials[job]
            resumed_s = LAMBDA_S if trial.saved_s > 0.0 else 0.0
            trial.saved_s += max(0.0, took_s - LAMBDA_S - resumed_s)
            if trial.saved_s > 0.0:
                w.run[job] = self._runs[job] - trial.saved_s + LAMBDA_S
                w.walltime[job] = self._requests[job] - trial.saved_s + LAMBDA_S
        enqueue_in_place(w, job)

    def _figures(self) -> Played:
        return figures(self._jobs, self._processors, self._world, self._killed, self._attempts, self._asked)


_NONE = _Trial()


def enqueue_in_place(w: World, job: int) -> None:
    """Back into the queue, where it would be by its submission."""
    enqueue(w, job)
    at = w.count[QUEUED] - 1
    queues: tuple[Any, ...] = (w.queue, w.queue_processors, w.queue_walltime, w.queue_reserved)
    while at > 0 and w.queue[at - 1] > job:
        for one in queues:
            one[at - 1], one[at] = one[at], one[at - 1]
        at -= 1
