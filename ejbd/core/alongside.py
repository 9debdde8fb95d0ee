"""The shadow of a queue as polls see it: plain EASY (:mod:`ejbd.core.shadow`) over jobs that come and go, by names.

A job takes its place in the shadow by the order of the batch system when it comes. What has ended between two polls has
ended by the later one. A shadow that is made anew takes what runs as begun when it did, and what waits as waiting: no
turn that had come before is known to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ejbd.core.easy import add_release
from ejbd.core.shadow import (
    DUE,
    FREE,
    QUEUED,
    RUNNING,
    TOTAL,
    UNIT,
    Shadow,
    new_shadow,
    shadow_joins,
    shadow_learns,
    shadow_leaves,
    shadow_passes,
    shadow_steps,
)

JOBS_AT_ONCE = 2000  # that are gone through between two chances for others
NONE: Mapping[str, int] = {}


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
    """One cluster of so many processors; reservations are of whole `unit`. Times are seconds that never go back."""

    def __init__(self, processors: int, unit: int = 1) -> None:
        self._shadow = new_shadow(0, processors, unit, _ints, _floats)
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._spare: list[int] = []
        self._over: set[str] = set()  # those that have ended in reality, and not here
        self._new = True

    @property
    def processors(self) -> int:
        return self._shadow.counts[TOTAL]

    @property
    def unit(self) -> int:
        return self._shadow.counts[UNIT]

    @property
    def names(self) -> set[str]:
        """The jobs that have not ended in reality, as far as was told."""
        return self._numbers.keys() - self._over

    def turn_s(self, name: str) -> float:
        """When a job has started; infinite: its turn has not come. So is that of one that is not known."""
        number = self._numbers.get(name)
        return math.inf if number is None else self._shadow.start[number]

    def turns_s(self, names: Iterable[str]) -> list[float]:
        """When those of these have started that have; in no order."""
        of, start = self._numbers.get, self._shadow.start
        begun = (start[number] for name in names if (number := of(name)) is not None)
        return [turn_s for turn_s in begun if turn_s < math.inf]

    def look(
        self, now: float, listed: Sequence[Listed], ended: Mapping[str, float | None], places: Mapping[str, int] = NONE
    ) -> Iterator[None]:
        """Bring it up to now, some milliseconds each time.

        `listed` has those at least that are not known, and `places` where the others are in the batch system's queue.
        `ended`: how long each ran at full width (None: it never began).
        """
        s = self._shadow
        for name, run_s in ended.items():
            number = self._numbers.get(name)
            if number is None or name in self._over:
                continue
            self._over.add(name)
            if run_s is None:
                shadow_leaves(s, number, now)
            else:
                shadow_learns(s, number, run_s, now)
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
            yield from self._joins({**places, **{job.name: job.place for job in listed if job.place >= 0}}, come)
            shadow_passes(s, now)
            yield

    def _joins(self, places: Mapping[str, int], come: list[Listed]) -> Iterator[None]:
        """Each ahead of what the batch system lists behind it; what does not wait in reality is ahead of none."""
        s = self._shadow
        come.sort(key=lambda job: job.place if job.place >= 0 else math.inf)
        waiting = [places.get(self._names[s.queue[at]], -1) for at in range(s.counts[QUEUED])]
        last = max(waiting, default=-1)
        for done, job in enumerate(come, 1):
            at = len(waiting)
            if 0 <= job.place < last:
                at = next(index for index, place in enumerate(waiting) if place > job.place)
            number = self._number(job.name)
            shadow_joins(s, number, job.processors, job.walltime_s, at)
            waiting.insert(at, job.place)
            last = max(last, job.place)
            if done % JOBS_AT_ONCE == 0:
                yield

    def _begins(self, job: Listed) -> None:
        """It runs already, where there is room for it."""
        s = self._shadow
        assert job.begun_s is not None
        if job.processors > s.counts[FREE]:
            return
        number = self._number(job.name)
        planned_s, place = job.begun_s + job.walltime_s, s.counts[RUNNING]
        s.counts[DUE] = add_release(s.ends, s.freed, s.counts[DUE], planned_s, job.processors)
        s.counts[FREE] -= job.processors
        s.start[number], s.running[place], s.held[place], s.planned[place] = (
            job.begun_s, number, job.processors, planned_s,
        )  # fmt: skip
        s.counts[RUNNING] = place + 1

    def _number(self, name: str) -> int:
        s = self._shadow
        if self._spare:
            number = self._spare.pop()
            s.start[number] = s.end[number] = math.inf
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
            _grow(s)
        self._numbers[name] = number
        return number

    def _forget(self, now: float, left: set[str]) -> None:
        """Those that are over both here and in reality."""
        s = self._shadow
        for name in list(self._over):
            number = self._numbers[name]
            if name in left or (s.start[number] < math.inf and s.end[number] <= now):
                self._over.remove(name)
                del self._numbers[name]
                self._spare.append(number)


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
