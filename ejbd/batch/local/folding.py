"""The embedded cluster as a pool: jobs start in the order of their arrival, and running ones are folded for the next.

The rules are those of `ejbd.core.malleable.folding`. What they leave open is the nodes: a job is folded on each node
that it has, and unfolded there alone, since it is not moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ejbd.batch.local.jobs import Job
from ejbd.batch.local.nodes import Nodes, Shares
from ejbd.core.malleable.folding import begin, half


@dataclass(frozen=True, slots=True)
class Pool:
    """When a pool ends (epoch seconds): within `drain_s` before it nothing starts that does not end by then."""

    until_s: float = math.inf
    drain_s: float = 0.0

    def may_start(self, job: Job, now: float) -> bool:
        """Whether it ends in time, or saves its work where it does not."""
        return now + job.walltime_s <= self.until_s or (job.moves and now < self.until_s - self.drain_s)


class Start(NamedTuple):
    """A job starts on `holds`, which is the half of `nodes` where it is folded."""

    job: Job
    nodes: Shares
    holds: Shares  # none: all


class Turn(NamedTuple):
    """What a look at the queue comes to: jobs with other processors than before (none: all they have), and starts."""

    shares: tuple[tuple[Job, Shares], ...] = ()
    starts: tuple[Start, ...] = ()


def halved(nodes: Shares) -> Shares:
    """What a job has of each of its nodes while it is folded."""
    return tuple((name, half(count)) for name, count in nodes)


def turn(waiting: Sequence[Job], running: Iterable[Job], nodes: Nodes) -> Turn:
    """Start from the front of the queue what fits, folding for it, and unfold where none waits. `nodes` is changed.

    No job passes the head, and none is folded in vain.
    """
    shares: dict[int, tuple[Job, Shares]] = {}
    starts: list[Start] = []
    whole = [job for job in sorted(running, key=_age) if job.folds and not job.holds]
    for job in waiting:
        spares = [_spare(other.nodes) for other in whole]
        found = begin(job.processors, nodes.all_free, spares, job.folds)
        if found is None:
            return Turn(tuple(shares.values()), tuple(starts))
        for other in whole[: found.folded]:
            shares[other.id] = (other, halved(other.nodes))
            nodes.give_back(_less(other.nodes, halved(other.nodes)))
        del whole[: found.folded]
        holds = nodes.take(found.processors)
        if found.processors == job.processors:
            starts.append(Start(job, holds, ()))
        else:
            starts.append(Start(job, _doubled(holds, job.processors), holds))
    folded = [job for job in sorted(running, key=_age) if job.holds and job.id not in shares]
    if not waiting:
        _unfold(folded, nodes, lambda job: shares.update({job.id: (job, ())}))
    return Turn(tuple(shares.values()), tuple(starts))


def _unfold(folded: Sequence[Job], nodes: Nodes, note: Callable[[Job], None]) -> None:
    """Each in its turn, where its own nodes have what it gave."""
    for job in folded:
        more = _less(job.nodes, job.holds)
        if all(nodes.free[name] >= count for name, count in more):
            nodes.retake(more)
            note(job)


def _age(job: Job) -> tuple[float, int]:
    return job.start_s or 0.0, job.id


def _spare(nodes: Shares) -> int:
    return sum(count - half(count) for _, count in nodes)


def _less(nodes: Shares, holds: Shares) -> Shares:
    left = dict(holds)
    return tuple((name, count - left.get(name, 0)) for name, count in nodes)


def _doubled(holds: Shares, width: int) -> Shares:
    """The processors of a job that starts folded, once it is unfolded: twice as many on each node, `width` in all."""
    found, left = [], width
    for place, (name, count) in enumerate(holds):
        mine = min(2 * count, left - (len(holds) - 1 - place))
        found.append((name, mine))
        left -= mine
    return tuple(found)
