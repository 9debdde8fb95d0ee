"""The free space of a cluster as a value that profiles are fitted into, and what comes of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ejbd.core.evolving.fitting import compact_steps, fit_steps
from ejbd.core.evolving.profiles import Profile, Step, held_profile
from ejbd.core.freespace import occupy

UNLIMITED = math.inf


@dataclass(frozen=True, slots=True)
class Fitted:
    """Where a profile goes: when each step begins. `held`: the same profile with its steps held as long as planned.

    Seconds by the clock of the space.
    """

    starts_s: tuple[float, ...]
    completion_s: float
    held: Profile

    @property
    def start_s(self) -> float:
        return self.starts_s[0]


@dataclass(slots=True)
class FreeSpace:
    """How many processors are free from when on, as `ejbd.core.freespace` keeps it.

    Processors that are free at `times[i]` stay so until the next entry. Changed in place by :meth:`take`.
    """

    times: list[float]
    levels: list[int]
    steps: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.steps < 0:
            self.steps = len(self.times)

    @classmethod
    def empty(cls, processors: int, begin_s: float = 0.0) -> FreeSpace:
        """All of a cluster, from `begin_s` on."""
        return cls([begin_s], [processors])

    @classmethod
    def beside(cls, occupation: Sequence[Step], processors: int, begin_s: float = 0.0) -> FreeSpace:
        """What an occupation leaves of a cluster. Raises ValueError where it takes more than there is."""
        space, at = cls.empty(processors, begin_s), begin_s
        for number, step in enumerate(occupation, 1):
            if step.processors > processors:
                raise ValueError(f"step {number} of the occupation takes {step.processors} of {processors} nodes")
            space.take(at, at + step.duration_s, step.processors)
            at += step.duration_s
        return space

    @classmethod
    def of_releases(cls, free: int, now_s: float, changes: Iterable[tuple[float, int]]) -> FreeSpace:
        """`free` processors from now on, and so many more (or fewer) from each time on; times go up to whole
        seconds."""
        begin = math.ceil(now_s)
        space = cls([float(begin)], [free])
        for time, processors in sorted(changes):
            at = float(max(begin, math.ceil(time)))
            if at > space.times[-1]:
                space.times.append(at)
                space.levels.append(space.levels[-1])
            space.levels[-1] += processors
        space.steps = len(space.times)
        return space

    def free_at(self, time_s: float) -> int:
        """How many processors are free then; 0 before the space begins."""
        level = 0
        for at in range(self.steps):
            if self.times[at] > time_s:
                break
            level = self.levels[at]
        return level

    def take(self, begin_s: float, end_s: float, processors: int) -> None:
        """Take processors (negative: give them back) for a while."""
        short = self.steps + 2 - len(self.times)
        if short > 0:
            self.times.extend([0.0] * (short + 64))
            self.levels.extend([0] * (short + 64))
        self.steps = occupy(self.times, self.levels, self.steps, begin_s, end_s, processors)

    def take_fitted(self, fitted: Fitted) -> None:
        """Take what a fit has found."""
        ends = [*fitted.starts_s[1:], fitted.completion_s]
        for begin, end, step in zip(fitted.starts_s, ends, fitted.held.steps, strict=True):
            self.take(begin, end, step.processors)

    def fit(
        self, profile: Profile, *, limit: float = 1.0, compact: bool = False, begin_s: float | None = None
    ) -> Fitted | None:
        """Where a profile completes earliest, without taking it; None where it never fits.

        `limit`: how many times its duration a step may be held open until the next one can begin (1: never, noX of the
        paper; 2: 2X; infinite: infX). `compact`: of all that complete then, what begins late and holds least. No step
        begins before `begin_s`. Raises ValueError for a limit below 1.
        """
        if not limit >= 1:
            raise ValueError(f"a step can be held for 1 time its duration at least, not {limit:g}")
        count = len(profile.steps)
        durations = [step.duration_s for step in profile.steps]
        widths = [step.processors for step in profile.steps]
        starts, bounds = [0.0] * count, [0.0] * count
        begin = self.times[0] if begin_s is None else max(begin_s, self.times[0])
        completion = fit_steps(
            self.times, self.levels, self.steps, durations, widths, 0, count, begin, limit, starts, bounds
        )
        if completion == math.inf:
            return None
        late = [0.0] * count
        if compact and compact_steps(
            self.times, self.levels, self.steps, durations, widths, 0, count, limit, starts, late, bounds
        ):
            starts = late
        return Fitted(tuple(starts), completion, held_profile(profile.steps, starts, completion))
