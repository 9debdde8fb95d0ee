"""The shadow of a queue as polls see it: plain EASY (:mod:`ejbd.core.shadow`) over jobs that come and go, by names.

A job takes its place in the shadow by the order of the batch system when it comes. What has ended between two polls has
ended by the later one. A shadow that is made anew takes what runs as begun when it did, and what waits as waiting: no
turn that had come before is known to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ejbd.core.easy import add_release
from ejbd.core.shadow import (
    DUE,
    FREE,
    QUEUED,
    RUNNING,
    Shadow,
    are_two,
    latest_turn,
    new_shadows,
    shadow_joins,
    shadow_learns,
    shadow_leaves,
    shadow_passes,
    shadow_steps,
    soonest_turn,
)

JOBS_AT_ONCE = 2000  # that are gone through between two chances for others


class Listed(NamedTuple):
    """A job that is not over, in its own shape. `place`: in the batch system's queue (-1: it waits no longer).

    `begun_s`: when it began, which counts where the shadow is made anew only.
    """

    name: str
    processors: int
    walltime_s: float
    place: int
    begun_s: float | None = None


class Alongside:
    """One cluster of so many processors; reservations are of whole `unit`: of nodes, or (`nodes` is False) of so many
    processors anywhere. Times are seconds that never go back."""

    def __init__(self, processors: int, unit: int = 1, nodes: bool = True) -> None:
        self.kind = (processors, unit, nodes)
        self._both = both = new_shadows(0, processors, unit, _ints, _floats, nodes)
        self._shadows = (both.loose, both.strict) if are_two(both) else (both.loose,)
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._spare: list[int] = []
        self._over: set[str] = set()  # those that have ended in reality, and not here
        self._new = True

    @property
    def processors(self) -> int:
        return self.kind[0]

    @property
    def names(self) -> set[str]:
        """The jobs that have not ended in reality, as far as was told."""
        return self._numbers.keys() - self._over

    def soonest_s(self, name: str) -> float:
        """When a job has started by either shadow; infinite: its turn has not come. So is that of one not known."""
        number = self._numbers.get(name)
        return math.inf if number is None else soonest_turn(self._both, number)

    def latest_s(self, name: str) -> float:
        """When a job has started by both shadows."""
        number = self._numbers.get(name)
        return math.inf if number is None else latest_turn(self._both, number)

    def begun(self) -> list[str]:
        """The jobs that have started by either shadow, also such that have ended in reality; as they came."""
        starts: list[Any] = [s.start for s in self._shadows]
        found = {number for start in starts for number, turn_s in enumerate(start) if turn_s < math.inf}
        return [self._names[number] for number in sorted(found)]

    def look(
        self,
        now: float,
        listed: Sequence[Listed],
        ended: Mapping[str, float | None],
        places: Callable[[], Mapping[str, int]] = dict,
    ) -> Iterator[None]:
        """Bring it up to now, some milliseconds each time.

        `listed` has those at least that are not known. `places` tells where the others are in the batch system's queue,
        and is asked where a job has come. `ended`: how long each ran at full width (None: it never began).
        """
        for name, run_s in ended.items():
            number = self._numbers.get(name)
            if number is None or name in self._over:
                continue
            self._over.add(name)
            for s in self._shadows:
                if run_s is None:
                    shadow_leaves(s, number, now)
                else:
                    shadow_learns(s, number, run_s, now)
        for s in self._shadows:
            while shadow_steps(s, now):
                yield
        self._forget(now, {name for name, run_s in ended.items() if run_s is None})
        come = [job for job in listed if job.name not in self._numbers and 0 < job.processors <= self.processors]
        if self._new:
            self._new = False
            running = sorted((job for job in come if job.begun_s is not None), key=lambda job: (job.begun_s, job.place))
            for job in running:
                self._begins(job)
            come = [job for job in come if job.name not in self._numbers]
        if come:
            come.sort(key=lambda job: job.place if job.place >= 0 else math.inf)
            for job in come:
                self._number(job.name)
            known = {**places(), **{job.name: job.place for job in listed if job.place >= 0}}
            for s in self._shadows:
                yield from self._join(s, known, come)
                shadow_passes(s, now)
                yield

    def _join(self, s: Shadow, places: Mapping[str, int], come: list[Listed]) -> Iterator[None]:
        """Each ahead of what the batch system lists behind it; what does not wait in reality is ahead of none."""
        waiting = [places.get(self._names[s.queue[at]], -1) for at in range(s.counts[QUEUED])]
        last = max(waiting, default=-1)
        for done, job in enumerate(come, 1):
            at = len(waiting)
            if 0 <= job.place < last:
                at = next(index for index, place in enumerate(waiting) if place > job.place)
            shadow_joins(s, self._numbers[job.name], job.processors, job.walltime_s, at)
            waiting.insert(at, job.place)
            last = max(last, job.place)
            if done % JOBS_AT_ONCE == 0:
                yield

    def _begins(self, job: Listed) -> None:
        """It runs already, where there is room for it."""
        assert job.begun_s is not None
        if job.processors > self._both.loose.counts[FREE]:
            return
        number = self._number(job.name)
        for s in self._shadows:
            planned_s, place = job.begun_s + job.walltime_s, s.counts[RUNNING]
            s.counts[DUE] = add_release(s.ends, s.freed, s.counts[DUE], planned_s, job.processors)
            s.counts[FREE] -= job.processors
            s.start[number], s.running[place], s.held[place], s.planned[place] = (
                job.begun_s, number, job.processors, planned_s,
            )  # fmt: skip
            s.counts[RUNNING] = place + 1

    def _number(self, name: str) -> int:
        if self._spare:
            number = self._spare.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
            for s in self._shadows:
                _grow(s)
        self._numbers[name] = number
        return number

    def _forget(self, now: float, left: set[str]) -> None:
        """Those that are over both here and in reality."""
        for name in list(self._over):
            number = self._numbers[name]
            if name in left or all(s.start[number] < math.inf and s.end[number] <= now for s in self._shadows):
                self._over.remove(name)
                del self._numbers[name]
                self._spare.append(number)
                for s in self._shadows:
                    s.start[number] = s.end[number] = math.inf


def _grow(s: Shadow) -> None:
    lists: Any = s
    for one in (lists.queue, lists.processors, lists.started):
        one.append(0)
    lists.walltimes.append(0.0)
    for one in (lists.start, lists.end):
        one.append(math.inf)


def _ints(count: int) -> list[int]:
    return [0] * count


def _floats(count: int, value: float = 0.0) -> list[float]:
    return [value] * count
