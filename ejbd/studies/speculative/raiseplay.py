"""Logs played under EASY with limits that begin at what a run is thought to take, and are raised where it takes longer.

That needs the right of an operator on the batch system. No job is killed; starts that were promised may be missed.
"""

from __future__ import annotations

import math

import numpy as np

from ejbd.sim import progress
from ejbd.sim.cluster import EASY, JOB_ENDS, SHRINKS, end_rigid, give_back, hold, schedule, start_rigid
from ejbd.sim.engine import PAPER_TIES, next_event, next_time
from ejbd.sim.heap import set_event
from ejbd.sim.run import refuse_fault
from ejbd.sim.workload import Workload
from ejbd.sim.world import FAULT, NEXT, NOW, QUEUED, new_world
from ejbd.studies.speculative.learning import Asked, mean_of_two
from ejbd.studies.speculative.traces import Played, figures

BEFORE_S = 0.5  # the limit is raised so long before it would end the run
_TOLD_EVERY = 2000


class RaisePlay:
    """One log under EASY: planned by the mean of the user's last two runs, raised straight to the request."""

    def __init__(self, workload: Workload) -> None:
        self._jobs, self._processors, self._name = workload.jobs, workload.processors, workload.name
        users = workload.users if workload.users is not None else np.full(len(workload), -1)
        self._asked = [
            Asked(int(user), int(processors), float(walltime))
            for user, processors, walltime in zip(users, workload.jobs.processors, workload.jobs.walltime, strict=True)
        ]
        self._way = mean_of_two()
        none = np.zeros(len(workload), dtype=np.int64)
        self._world = new_world(workload.jobs, workload.processors, none, elastic_rows=0, width=4, plain=True)

    def play(self) -> Played:
        """To the end of all jobs. Raises SimulationError."""
        w = self._world
        while next_time(w) < math.inf:
            coming = w.count[NEXT]
            job, rank = next_event(w, PAPER_TIES)
            if job < 0:
                self._plan(coming)
            elif rank == SHRINKS:
                self._raise(job)
                continue
            else:
                end_rigid(w, job)
                self._way.ended(self._asked[job], float(w.run[job]))
            for index in range(schedule(w, EASY)):
                self._start(w.started[index])
            if w.count[FAULT]:
                refuse_fault(w)
        return self._figures()

    def _plan(self, job: int) -> None:
        """The job is at the end of the queue: by what is known now it is planned for less than it asks for."""
        w = self._world
        if job % _TOLD_EVERY == 0:
            progress.tell(self._name, job / len(self._asked))
        w.walltime[job] = self._way.walltimes(self._asked[job])[0]
        w.queue_walltime[w.count[QUEUED] - 1] = w.walltime[job]

    def _start(self, job: int) -> None:
        w = self._world
        start_rigid(w, job)
        if w.run[job] > w.walltime[job]:
            set_event(w, job, w.clock[NOW] + w.walltime[job] - BEFORE_S, SHRINKS)

    def _raise(self, job: int) -> None:
        w = self._world
        give_back(w, w.processors[job], w.start[job] + w.walltime[job], w.clock[NOW])
        w.walltime[job] = self._asked[job].requested_s
        hold(w, w.processors[job], w.start[job] + w.walltime[job])
        set_event(w, job, w.start[job] + w.run[job], JOB_ENDS)

    def _figures(self) -> Played:
        asked = sum(one.requested_s * one.processors for one in self._asked)
        return figures(self._jobs, self._processors, self._world, 0, len(self._asked), asked)
