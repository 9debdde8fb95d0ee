"""Which jobs are sent into windows that are shorter than their requests: the rule of `gaps`, for both worlds.

Always the user's request is asked for, and the job keeps its place in the queue. Where it fits the window before the
head's reservation, and runs like it were over by then often enough, it runs there with the window as its limit, and
goes back to its place if that was not enough. Work that is done twice harms all on a machine that is nearly full. So a
run that would be lost needs better odds than one that keeps its work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_CHANCE = 0.8  # that a run is over in the window, if its work would be lost otherwise
LEAST_CHANCE_KEPT = 0.5  # the same where a checkpoint keeps the work
TRIES = 3  # of one job
LONGER = 2.0  # each window is more than so many times the last
FEWEST_RUNS = 10  # of a class that may be gone by
NEWEST = 200  # runs of a class that count


@dataclass(frozen=True, slots=True)
class Known:
    """Runs of one class that a job belongs to, in growing order, in units of `unit_s` seconds (shares of its request
    where that is the unit). `what`: the class in words, as `explain` tells it."""

    what: str
    runs: Sequence[float]
    unit_s: float = 1.0

    def upto(self, seconds: float) -> int:
        """How many of the runs were over by then."""
        return bisect_right(self.runs, seconds / self.unit_s)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job that waits for room, behind the head of its queue, and may be run again.

    `known`: its classes, the nearest first. `tried_s`: the last window that was not enough, of `tries`. `keeps`: what
    it has done by the end of a window is kept.
    """

    job: str
    processors: int
    request_s: float
    known: Sequence[Known]
    tried_s: float = 0.0
    tries: int = 0
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """The job that goes into a window of so many seconds, and how likely it is to be enough, by which class of runs."""

    job: str
    processors: int
    window_s: float
    chance: float
    by: Known

    @property
    def reason(self) -> str:
        """`8 of 10 runs alike were over within 600 s`."""
        return f"{self.chance:.0%} of {len(self.by.runs)} {self.by.what} were over within {self.window_s:.0f} s"


def chance_of(waiter: Waiter, window_s: float) -> tuple[float, Known | None]:
    """How likely the run is to be over within a window, given that it was not in the last one, and by which class: the
    nearest that has ten runs. 0 where nothing is known, or no run of the class was as long as this one is already."""
    for known in waiter.known:
        count = len(known.runs)
        if count < FEWEST_RUNS:
            continue
        before = known.upto(waiter.tried_s) if waiter.tried_s > 0.0 else 0
        if before == count:
            return 0.0, known
        return (known.upto(window_s) - before) / (count - before), known
    return 0.0, None


def sent(waiters: Iterable[Waiter], windows: Iterable[tuple[int, float]]) -> list[Sent]:
    """Which of those that wait are sent, in the order of the queue, each into the longest window that has room for it.

    `windows`: (processors, seconds), side by side as slots are: more processors, for less long, as one goes on; those
    of a longer one are among those of a shorter one. A job that would end by its request is not sent: it is the batch
    system's to start.
    """
    room = [list(window) for window in windows]
    found = []
    for waiter in waiters:
        at = next((at for at, (processors, _) in enumerate(room) if processors >= waiter.processors), None)
        if at is None:
            continue
        window_s = room[at][1]
        if not may_try(waiter, window_s):
            continue
        chance, by = chance_of(waiter, window_s)
        if by is None or chance < least_chance(waiter):
            continue
        found.append(Sent(waiter.job, waiter.processors, window_s, chance, by))
        for shorter in room:
            shorter[0] -= waiter.processors
    return found


def least_chance(waiter: Waiter) -> float:
    """How likely its run has to be over in a window."""
    return LEAST_CHANCE_KEPT if waiter.keeps else LEAST_CHANCE


def may_try(waiter: Waiter, window_s: float) -> bool:
    """Whether a window is one for this job at all: shorter than its request, and long enough after those before."""
    return waiter.tries < TRIES and LONGER * waiter.tried_s < window_s < waiter.request_s
