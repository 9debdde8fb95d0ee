"""Logs played with walltimes that are learned on the way: what times out is submitted again with the next."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.parameters import simulated
from ejbd.sim import progress
from ejbd.sim.cluster import EASY, EJB, end_rigid, schedule, start_rigid
from ejbd.sim.elastic import application_event
from ejbd.sim.engine import PAPER_TIES, next_event, next_time, react
from ejbd.sim.metrics import BOUND_S
from ejbd.sim.run import refuse_fault
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    DONE,
    ELASTIC,
    FAULT,
    HEAPED,
    NEXT,
    RIGID,
    STAYS_RIGID,
    FloatArray,
    Jobs,
    World,
    kernel_rules,
    new_world,
)
from ejbd.studies.speculative.learning import Asked, Way

MOST_ATTEMPTS = 4  # on average, for which there is room
MIN_PROCESSORS = 8
_TOLD_EVERY = 2000


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a log.

    `wasted_h`: processor-hours beyond the jobs' own work; `overhead`: the same over the work of jobs that may become
    elastic; `killed`: the share of runs that timed out, of all that were started; `requested_h`: processor-hours that
    were asked for.
    """

    turnaround_s: float
    bounded_slowdown: float
    utilisation: float
    wasted_h: float
    overhead: float
    killed: float
    attempts: int
    requested_h: float

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def figures(jobs: Jobs, processors: int, world: World, killed: int, attempts: int, asked: float) -> Played:
    """Of a log in which no job is elastic. `asked`: processor-seconds of all attempts, `killed` of which were."""
    ends, used = np.asarray(world.end, dtype=np.float64), float(np.sum(np.asarray(world.used)))
    turnaround = ends - jobs.submit
    own = float((jobs.processors * jobs.run).sum())
    span = float(ends.max() - jobs.submit.min())
    return Played(
        float(turnaround.mean()),
        float(np.maximum(1.0, turnaround / np.maximum(jobs.run, BOUND_S)).mean()),
        own / (processors * span),
        (used - own) / 3600.0,
        (used - own) / own,
        killed / attempts,
        attempts,
        asked / 3600.0,
    )


@dataclass(slots=True)
class _Life:
    """A job of the log: its walltimes, which of them is asked for, and the work that is saved."""

    walltimes: tuple[float, ...] = ()
    at: int = 0
    saved_s: float = 0.0
    used: float = 0.0
    end_s: float = -1.0


class LearningPlay:
    """One log, one way to ask, under EASY or EJB.

    Under EASY a run that times out has been for nothing. Under EJB the walltimes of jobs that may become elastic are
    learned: they are saved before their walltime is over, and resumed, which takes lambda; others keep their request.
    """

    def __init__(self, workload: Workload, way: Way, *, elastic: bool) -> None:
        self._jobs, self._way, self._elastic = workload.jobs, way, elastic
        self._processors, self._name = workload.processors, workload.name
        self._users = workload.users if workload.users is not None else np.full(len(workload), -1)
        parameters = simulated(BundlingParameters)
        self._rules = kernel_rules(parameters, arrays=False)
        self._lambda_s = parameters.lambda_s
        self._lives = [_Life() for _ in range(len(workload))]
        self._of: list[int] = []  # an attempt's job
        self._again: list[tuple[float, int]] = []  # when, which job
        self._next = 0
        self._world = self._empty()

    def _empty(self) -> World:
        """A world for attempts that come one by one: its vectors have room for more than there are jobs."""
        room = MOST_ATTEMPTS * len(self._lives) + 1000
        zeros, none = np.zeros(room), np.zeros(room, dtype=np.int64)
        world = new_world(
            Jobs(zeros, zeros, zeros, none, none), self._processors, none, elastic_rows=4096 if self._elastic else 0,
            width=64, plain=True,
        )  # fmt: skip
        del world.submit[:]  # type: ignore[attr-defined]
        return world

    def _asked(self, job: int) -> Asked:
        jobs = self._jobs
        return Asked(int(self._users[job]), int(jobs.processors[job]), float(jobs.walltime[job]))

    def _coming(self) -> None:
        """Show the world when the next attempt is submitted."""
        w = self._world
        del w.submit[w.count[NEXT] :]  # type: ignore[attr-defined]
        again = self._again[0][0] if self._again else np.inf
        fresh = float(self._jobs.submit[self._next]) if self._next < len(self._lives) else np.inf
        if min(again, fresh) < np.inf:
            w.submit.append(min(again, fresh))  # type: ignore[attr-defined]

    def _submit(self) -> None:
        """Work out what the next attempt asks for, by what is known now."""
        w = self._world
        at, attempt = w.submit[-1], w.count[NEXT]
        if self._again and self._again[0][0] == at:
            job = heapq.heappop(self._again)[1]
        else:
            job = self._next
            self._next += 1
            asked = self._asked(job)
            learns = not self._elastic or asked.processors >= MIN_PROCESSORS
            self._lives[job].walltimes = self._way.walltimes(asked) if learns else (asked.requested_s,)
            if job % _TOLD_EVERY == 0:
                progress.tell(self._name, job / len(self._lives))
        life = self._lives[job]
        self._of.append(job)
        may_move = self._elastic and self._jobs.processors[job] >= MIN_PROCESSORS
        resumed_s = self._lambda_s if life.saved_s > 0.0 else 0.0
        left_s = float(self._jobs.run[job]) - life.saved_s
        limit_s = life.walltimes[life.at] - life.saved_s
        w.run[attempt] = min(left_s, limit_s) + resumed_s
        w.walltime[attempt] = w.planned[attempt] = limit_s + resumed_s
        w.processors[attempt] = int(self._jobs.processors[job])
        w.candidate[attempt] = ELASTIC if may_move else STAYS_RIGID

    def _ended(self, attempt: int) -> None:
        w = self._world
        job, now = self._of[attempt], w.end[attempt]
        life, run_s = self._lives[job], float(self._jobs.run[job])
        life.used += w.used[attempt]
        walltime_s = life.walltimes[life.at]
        if run_s > walltime_s:
            if w.candidate[attempt] != STAYS_RIGID:
                life.saved_s = walltime_s
            life.at += 1
            heapq.heappush(self._again, (now, job))
            return
        life.end_s = now
        self._way.ended(self._asked(job), run_s)

    def play(self) -> Played:
        """To the end of all jobs. Raises SimulationError."""
        w = self._world
        policy = EJB if self._elastic else EASY
        while True:
            self._coming()
            time = next_time(w)
            if time == np.inf:
                break
            due = w.count[HEAPED] > 0 and w.heap_time[0] <= time
            if not due:
                self._submit()
            job, rank = next_event(w, PAPER_TIES)
            if job >= 0:
                if w.mode[job] == RIGID:
                    end_rigid(w, job)
                    self._ended(job)
                else:
                    application_event(w, job, rank, self._rules)
                    if w.mode[job] == DONE:
                        self._ended(job)
            self._coming()
            if self._elastic:
                react(w, policy, self._rules)
            else:
                for index in range(schedule(w, policy)):
                    start_rigid(w, w.started[index])
            if w.count[FAULT]:
                refuse_fault(w)
        return self._figures()

    def _figures(self) -> Played:
        jobs = self._jobs
        ends = np.array([life.end_s for life in self._lives])
        used = sum(life.used for life in self._lives)
        own = float((jobs.processors * jobs.run).sum())
        turnaround: FloatArray = ends - jobs.submit
        span = float(ends.max() - jobs.submit.min())
        attempts = len(self._of)
        asked = sum(self._world.walltime[at] * self._world.processors[at] for at in range(attempts))
        return Played(
            float(turnaround.mean()),
            float(np.maximum(1.0, turnaround / np.maximum(jobs.run, BOUND_S)).mean()),
            own / (self._processors * span),
            (used - own) / 3600.0,
            self._overhead(),
            (attempts - len(self._lives)) / attempts,
            attempts,
            asked / 3600.0,
        )

    def _overhead(self) -> float:
        jobs = self._jobs
        wide = jobs.processors >= MIN_PROCESSORS
        own = float((jobs.processors * jobs.run)[wide].sum())
        used = sum(life.used for life, counts in zip(self._lives, wide.tolist(), strict=True) if counts)
        return (used - own) / own if own else 0.0
