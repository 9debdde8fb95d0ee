"""What it would cost to bound what users lose: nothing is elastic while one of them has lost too much.

Plain EASY was played before, so that when each job ends under it is known to the second; no live rule knows that much.
Of each user the turnarounds of its jobs are summed up in both: of those that have ended, and of those that wait or run
though EASY had ended them. While a user of ten jobs and more is above 1.4 times its mean under EASY and eight minutes
above it, no job is made elastic and none is started early. What runs goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ejbd.sim.metrics import Outcome
from ejbd.sim.workload import Workload
from ejbd.sim.world import NEXT, NOW, STOPPED_S, WATCHES, World

FEW_JOBS = 10  # of a user: those with fewer do not count
TIMES, MORE_S = 1.4, 480.0  # so many times EASY's mean and so much above it: before it has lost much (1.5, 600 s)


class Stopping:
    """Shown a world every few events, it stops elasticity or lets it go on. `only_waiting`: while such a user has a job
    that is not over though EASY had ended it."""

    def __init__(self, workload: Workload, easy: Outcome, *, only_waiting: bool = False) -> None:
        assert workload.users is not None
        self._users = np.unique(workload.users, return_inverse=True)[1]
        self._submit, self._easy_end = workload.jobs.submit, easy.end
        self._known = workload.users >= 0
        self._only_waiting = only_waiting
        self._open = np.zeros(0, dtype=np.int64)  # submitted, and not over when last looked at
        self._seen = 0
        self._sums: Any = np.zeros((3, int(self._users.max(initial=0)) + 1))  # jobs, seconds here, seconds under EASY
        self._last_s = self._stopped_s = 0.0
        self._stops = False

    @property
    def stopped(self) -> float:
        """For which share of the time nothing was elastic."""
        return self._stopped_s / self._last_s if self._last_s > 0.0 else 0.0

    def __call__(self, world: World) -> None:
        now, come = float(world.clock[NOW]), int(world.count[NEXT])
        self._stopped_s += (now - self._last_s) * self._stops
        self._last_s = now
        self._open = np.concatenate([self._open, np.arange(self._seen, come)])
        self._seen = come
        ends = np.asarray(world.end)[self._open]
        over = self._open[ends >= 0.0]
        self._sums += self._of(over, np.asarray(world.end)[over], self._easy_end[over])
        self._open = self._open[ends < 0.0]
        late = self._open[self._easy_end[self._open] < now]
        late_sums = self._of(late, np.full(late.size, now), self._easy_end[late])
        jobs, here_s, easy_s = self._sums + late_sums
        lose = (jobs >= FEW_JOBS) & (here_s > TIMES * easy_s) & (here_s > easy_s + MORE_S * jobs)
        if self._only_waiting:
            lose &= late_sums[0] > 0
        self._stops = bool(lose.any())
        world.count[WATCHES] = int(self._stops)
        world.clock[STOPPED_S] = np.inf if self._stops else 0.0

    def _of(self, jobs: Any, ends: Any, easy_ends: Any) -> Any:
        jobs, ends, easy_ends = (one[self._known[jobs]] for one in (jobs, ends, easy_ends))
        users, size = self._users[jobs], self._sums.shape[1]
        here_s, easy_s = ends - self._submit[jobs], easy_ends - self._submit[jobs]
        return np.stack([np.bincount(users, weights, size) for weights in (np.ones(jobs.size), here_s, easy_s)])
