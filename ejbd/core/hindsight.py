"""A past stretch of time as EASY would have played it: with the batch jobs that came, and with each elastic job rigid.

Two replays are compared job by job. In the first the batch system has what it really had. In the second the batch jobs
of each elastic job are gone, and the one rigid job that its user asked for is there. What another job starts later in
the second than in the first, it has gained. Both replays err in the same ways, so that what they share cancels out:
no memory or named nodes, one pool of processors. What waits stands in the order of its priorities where those are
known, and in that of arrival otherwise. A job that a limit holds is passed by, as batch systems do. How far the first
replay is off the real starts is told beside it (`error_s`): below it a difference says little.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ejbd.core.easy import easy_schedule
from ejbd.core.sitelimits import Take

WAITED_S = 60.0  # a job that waits for so long has been seen to wait
DEPTH = 1000  # waiting jobs that a pass looks at, as the schedulers of large sites do


class Kept(NamedTuple):
    """Processors that a site keeps for others for a time; no job may run into it on these."""

    start_s: float
    end_s: float
    processors: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What else than processors there is too little of: limits, by their numbers, and times that are kept."""

    most: tuple[float, ...] = ()
    kept: tuple[Kept, ...] = ()


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Submitted:
    """A batch job of a replay; seconds on the caller's clock.

    `submit_s`: since when it waits for nothing but room. `walltime_s` is what passes plan by, `run_s` how long it
    really ran. `began_s`: it was running when the replay begins, and is no matter of a plan. `leaves_s`: it is taken
    back then, whether it waits or runs. `priority`: with which it waited last; None: not known. `takes`: of limits.
    """

    id: str
    processors: int
    walltime_s: float
    submit_s: float
    run_s: float
    began_s: float | None = None
    leaves_s: float = math.inf
    priority: int | None = None
    takes: tuple[Take, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """When another job really started, and when it does in the two replays."""

    id: str
    real_s: float
    as_came_s: float
    all_rigid_s: float

    @property
    def gained_s(self) -> float:
        """By how much elastic jobs let it start earlier by EASY's plan; negative: later."""
        return self.all_rigid_s - self.as_came_s

    @property
    def error_s(self) -> float:
        """How far the replay of what came is off the real start."""
        return abs(self.as_came_s - self.real_s)

    @property
    def before_real_s(self) -> float:
        """By how much it really started before EASY's plan without elastic jobs; negative: behind it."""
        return self.all_rigid_s - self.real_s


def compare(
    real: Sequence[tuple[Submitted, float]],
    elastic: Iterable[Submitted],
    rigid: Iterable[Submitted],
    processors: int,
    begin_s: float,
    bounds: Bounds = NO_BOUNDS,
) -> list[Compared]:
    """Other jobs with their real starts; `elastic`: the batch jobs of elastic jobs; `rigid`: what stands for them.

    A job that began before the replays do is compared with nothing, and so is one that never fits.
    """
    others, elastic, rigid = [job for job, _ in real], list(elastic), list(rigid)
    ranked = ranks(real, rigid)
    as_came = replay([*others, *elastic], processors, begin_s, ranked, bounds)
    all_rigid = as_came if elastic == rigid else replay([*others, *rigid], processors, begin_s, ranked, bounds)
    return [
        Compared(job.id, real_s, as_came[job.id], all_rigid[job.id])
        for job, real_s in real
        if job.began_s is None and job.id in as_came and job.id in all_rigid
    ]


def ranks(real: Iterable[tuple[Submitted, float]], rigid: Iterable[Submitted]) -> bool:
    """Whether so many priorities are known that they say the order: of all that waited, and of all that are to wait."""
    waited = (job for job, start_s in real if job.began_s is None and start_s - job.submit_s > WAITED_S)
    return all(job.priority is not None for job in (*waited, *(job for job in rigid if job.began_s is None)))


def replay(
    jobs: Iterable[Submitted], processors: int, begin_s: float, ranked: bool = False, bounds: Bounds = NO_BOUNDS
) -> dict[str, float]:
    """The start of every job that starts, from `begin_s` on until none is left. Those that run then have theirs.

    `ranked`: by priority, those without one last; among equals by arrival.
    """
    return _Replay(jobs, processors, begin_s, ranked, bounds).starts()


class _Replay:
    """What waits and what runs are kept as the kernel wants them, in order: a pass copies what runs, and no more."""

    def __init__(
        self, jobs: Iterable[Submitted], processors: int, begin_s: float, ranked: bool, bounds: Bounds
    ) -> None:
        self._ranked = ranked
        self._most, self._used = bounds.most, [0.0] * len(bounds.most)
        self._kept = tuple(one._replace(processors=min(one.processors, processors)) for one in bounds.kept)
        self._into = [0] * len(self._kept)  # processors of what runs, and may run into them
        self._bound = bool(self._most or self._kept)
        self._ranks: list[float] = []  # of what waits, least first: its priority, the other way round
        self._capacity = self._free = processors
        self._begin_s = begin_s
        self._starts: dict[str, float] = {}
        self._running: list[tuple[float, str, float, int, tuple[Take, ...]]] = []
        """A heap of real ends, each with its planned one."""
        self._ends: list[float] = []  # planned ends of what runs, in order, and what each gives back
        self._freed: list[int] = []
        self._queue: list[Submitted] = []
        self._processors: list[int] = []  # of what waits
        self._walltimes: list[float] = []
        waiting = []
        for job in jobs:
            if job.began_s is None:
                if job.processors <= processors:
                    waiting.append(job)
            elif min(job.began_s + job.run_s, job.leaves_s) > begin_s:
                self._run(job, job.began_s)
        self._arrivals = sorted(waiting, key=lambda job: (job.submit_s, job.id), reverse=True)
        leaving = [(job.leaves_s, job.id) for job in waiting if job.leaves_s < math.inf]
        self._leaving = sorted(leaving, reverse=True)

    def starts(self) -> dict[str, float]:
        now = self._begin_s
        while True:
            self._turn_to(now)
            self._pass(now)
            coming = [self._running[0][0]] if self._running else []
            if self._arrivals:
                coming.append(self._arrivals[-1].submit_s)
            if self._leaving and self._queue:
                coming.append(self._leaving[-1][0])
            if self._queue:
                coming += [one.end_s for one in self._kept if now < one.end_s < math.inf]
            if not coming:
                return self._starts
            now = max(now, min(coming))

    def _turn_to(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            _, _, planned_s, processors, takes = heapq.heappop(self._running)
            self._use(takes, processors, planned_s, -1)
            at = bisect_left(self._ends, planned_s)
            while self._freed[at] != processors:
                at += 1
            del self._ends[at], self._freed[at]
            self._free += processors
        while self._arrivals and self._arrivals[-1].submit_s <= now:
            job = self._arrivals.pop()
            rank = -float(job.priority) if self._ranked and job.priority is not None else 0.0
            at = bisect_right(self._ranks, rank)
            self._ranks.insert(at, rank)
            self._queue.insert(at, job)
            self._processors.insert(at, job.processors)
            self._walltimes.insert(at, job.walltime_s)
        gone = set()
        while self._leaving and self._leaving[-1][0] <= now:
            gone.add(self._leaving.pop()[1])
        if gone:
            self._take([at for at, job in enumerate(self._queue) if job.id in gone])

    def _pass(self, now: float) -> None:
        """What starts may leave too little of a limit for what was to start behind it: then the rest is looked at anew.

        What a limit holds has no place in the plan, and others pass it by.
        """
        if not self._queue or self._free < min(self._processors[:DEPTH] if not self._bound else self._processors):
            return
        while able := self._able(now):
            run: list[int] = []
            for index in (able[at] for at in self._started(able, now)):
                if run and not self._may_start(self._queue[index], now):
                    break
                self._run(self._queue[index], now)
                run.append(index)
            else:
                self._take(run)
                return
            self._take(run)

    def _able(self, now: float) -> Sequence[int]:
        """The first of what waits that nothing but room keeps from starting."""
        if not self._bound:
            return range(min(DEPTH, len(self._queue)))
        may: dict[tuple[Take, ...], bool] = {}  # by what jobs take of limits: of many jobs there are few kinds
        able = []
        for index, job in enumerate(self._queue):
            if (held := may.get(job.takes)) is None:
                held = may[job.takes] = self._within(job.takes)
            if held and self._clear(job, now):
                able.append(index)
                if len(able) == DEPTH:
                    break
        return able

    def _may_start(self, job: Submitted, now: float) -> bool:
        return self._within(job.takes) and self._clear(job, now)

    def _within(self, takes: tuple[Take, ...]) -> bool:
        """What exceeds a limit alone has started all the same: the limit was another one then."""
        return all(
            not one.held or one.amount > (most := self._most[one.limit]) or self._used[one.limit] + one.amount <= most
            for one in takes
        )

    def _clear(self, job: Submitted, now: float) -> bool:
        """Whether it runs into no time that the site keeps."""
        return all(
            now >= one.end_s
            or now + job.walltime_s <= one.start_s
            or self._into[at] + job.processors <= self._capacity - one.processors
            for at, one in enumerate(self._kept)
        )

    def _use(self, takes: tuple[Take, ...], processors: int, planned_s: float, sign: int) -> None:
        for one in takes:
            self._used[one.limit] += sign * one.amount
        for at, kept in enumerate(self._kept):
            if planned_s > kept.start_s:
                self._into[at] += sign * processors

    def _started(self, able: Sequence[int], now: float) -> list[int]:
        """What of it starts now by EASY, in that order."""
        count, due = len(able), len(self._ends)
        overdue = bisect_left(self._ends, now)  # due at any moment
        ends = [now] * overdue + self._ends[overdue:] + [0.0] * count
        freed = self._freed + [0] * count
        started = [0] * count
        processors, walltimes = self._processors, self._walltimes
        if self._bound:
            processors, walltimes = [processors[at] for at in able], [walltimes[at] for at in able]
        starts, *_ = easy_schedule(
            *(processors, walltimes, count, ends, freed, due, self._free, self._capacity, now, started)
        )
        return started[:starts]

    def _take(self, indices: list[int]) -> None:
        """Out of the queue."""
        for at in sorted(indices, reverse=True):
            del self._ranks[at], self._queue[at], self._processors[at], self._walltimes[at]

    def _run(self, job: Submitted, start_s: float) -> None:
        self._starts[job.id] = start_s
        self._free -= job.processors
        planned_s = start_s + job.walltime_s
        at = bisect_right(self._ends, planned_s)
        self._ends.insert(at, planned_s)
        self._freed.insert(at, job.processors)
        end_s = min(start_s + job.run_s, job.leaves_s)
        heapq.heappush(self._running, (end_s, job.id, planned_s, job.processors, job.takes))
        self._use(job.takes, job.processors, planned_s, 1)
