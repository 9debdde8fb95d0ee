"""What a start and an end cost beside lambda, from what earlier ones have cost: start-up, giving back, pace.

*Start-up* is the time from the batch system's start of a subjob until ranks run on it. It has two parts: *ready*, until
every node has a worker that answers, which is the site's and so is kept by queue; and *launch*, from there until all
ranks run, which is the application's. Of a restart from a checkpoint the launch is a part of lambda
(:mod:`ejbd.core.cost`). *Giving back* is the time from when ranks need a subjob no more until the batch system has its
processors again. *Pace* is how many seconds the application takes at full width under EJB for one that the same command
takes as an ordinary batch job.

Each is the median of the newest few measurements of about the same size, as lambda is; before the first one there is a
prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from ejbd.core.cost import RECENT, Source, near_in_size

PRIOR_BACK_POLLS = 1.0  # polls from an application's end until its processors are seen to be free
PRIOR_LAUNCH_S = 0.0
MOST_PACE = 10.0  # no job is believed to be slower than that for EJB's sake


class Hop(StrEnum):
    """What is measured of a subjob."""

    READY = "ready"
    LAUNCH = "launch"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Took:
    """One measurement: a subjob of `processors` took `seconds`."""

    processors: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run that ended well, at full width throughout. `elastic`: EJB ran it; otherwise it was passed through."""

    work: str
    seconds: float
    elastic: bool


@dataclass(frozen=True, slots=True)
class Overhead:
    """A figure (seconds; of the pace a factor), where it comes from, and how many measurements are behind it."""

    value: float
    source: Source
    why: str
    samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "source": self.source.value}


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a job's next start and its end are expected to cost beside lambda."""

    ready: Overhead
    launch: Overhead
    giving_back: Overhead
    pace: Overhead

    @property
    def start_up_s(self) -> float:
        """From the start of a subjob until ranks run on it, where nothing is restarted."""
        return self.ready.value + self.launch.value

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `start_up_s` is the sum of its two parts."""
        parts = {name: getattr(self, name).to_json() for name in ("ready", "launch", "giving_back", "pace")}
        return {"start_up_s": self.start_up_s, **parts}


def expected(
    found: Sequence[Took],
    processors: int | None,
    prior_s: float,
    prior_why: str,
    prior: Source = Source.GUESSED,
) -> Overhead:
    """The median of the newest few of about so many processors (None: of any), which come newest first."""
    near = near_in_size(found, processors, lambda one: one.processors)
    if not near:
        return Overhead(prior_s, prior, prior_why)
    sizes = sorted({one.processors for one in near})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    times = "once" if len(near) == 1 else f"{len(near)} times"
    return Overhead(
        median(one.seconds for one in near), Source.MEASURED, f"measured {times} on {size} processors", len(near)
    )


def pace(runs: Sequence[WholeRun]) -> Overhead:
    """How much slower the application runs under EJB: the median over its newest runs that have others to be set
    beside, which did the same work as ordinary batch jobs; 1 at least. `runs` come newest first."""
    found = []
    for run in runs:
        beside = [other.seconds for other in runs if not other.elastic and other.work == run.work][:RECENT]
        if run.elastic and beside and median(beside) > 0:
            found.append(run.seconds / median(beside))
    found = found[:RECENT]
    if not found:
        return Overhead(1.0, Source.GUESSED, "taken for 1, no command has run both with and without EJB yet")
    middle = median(found)
    times = "once" if len(found) == 1 else f"{len(found)} times"
    why = f"measured {times} beside the same command as an ordinary job"
    if not 1.0 <= middle <= MOST_PACE:
        why += f"; {middle:.3g} is not believed"
    return Overhead(round(min(MOST_PACE, max(1.0, middle)), 3), Source.MEASURED, why, len(found))


def overheads(
    ready: Sequence[Took],
    launch: Sequence[Took],
    back: Sequence[Took],
    runs: Sequence[WholeRun],
    processors: int | None,
    *,
    ready_s: float,
    poll_s: float,
) -> Overheads:
    """All of them for a job that has `processors` or means to take as many. Measurements come newest first.

    `ready_s`: what the queue has for the time until workers answer; `poll_s` is the time between two looks at the batch
    system.
    """
    unmeasured = "nothing was measured yet"
    return Overheads(
        expected(ready, processors, ready_s, f"configured: {ready_s:.3g} s, {unmeasured}", Source.CONFIGURED),
        expected(launch, processors, PRIOR_LAUNCH_S, f"guessed: {PRIOR_LAUNCH_S:.3g} s, {unmeasured}"),
        expected(
            back,
            processors,
            PRIOR_BACK_POLLS * poll_s,
            f"guessed: a poll of {poll_s:.3g} s until processors are seen to be free, {unmeasured}",
        ),
        pace(runs),
    )
