"""What the limits of accounts leave for a further subjob: part of the room, as processors and nodes are.

A subjob must not stand in any job's way. Where its limit leaves too little for J0, the batch system plans no start for
J0 at all, and lets others onto the processors that it would have had. So what J0 needs of each limit that it shares
with the subjob is kept free from now on, and so is what any other job needs that has a planned start. Beyond that, a
limit is a resource: its level falls at planned starts and rises at planned ends, as free processors do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ejbd.core.room.windows import Windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, ClusterView, Counted

_OF_ONE_JOB = (Counted.OF_A_JOB, Counted.WALLTIME_S)


@dataclass(frozen=True, slots=True)
class Charged:
    """A job that is to be asked for, as limits see it: what it is charged to, its processors and seconds."""

    account: str
    qos: str
    queue: str
    processors: int = 0
    walltime_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """What one limit leaves: `least[i]` is there throughout the first `until_s[i]` seconds, the longest first.

    `kept` of `free` is what the widest of those that wait needs. `waiting`: ids of the jobs that this counts.
    """

    limit: AccountLimit
    free: float
    kept: float
    until_s: tuple[float, ...]
    least: tuple[float, ...]
    waiting: frozenset[str]

    def for_another(self, for_s: float, j0_id: str, j0_needs: float) -> float:
        """What a further job may take for `for_s` seconds beside J0, and beside all others that count."""
        could_be_met = j0_needs <= self.limit.most
        kept = max(self.kept, j0_needs) if could_be_met else self.kept
        least = next((left for until_s, left in zip(reversed(self.until_s), reversed(self.least), strict=True)
                      if until_s >= for_s), self.least[0])  # fmt: skip
        if could_be_met and j0_id not in self.waiting:
            least -= j0_needs
        return max(0.0, min(self.free - kept, least))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What limits leave of a queue's windows: at most so many further subjobs. `by`: names of the limits that cut."""

    windows: Windows
    jobs: float = math.inf
    by: tuple[str, ...] = ()


def needs(limit: AccountLimit, processors: int, walltime_s: float | None, per_node: int) -> float:
    """How much of a limit a job takes. Nodes are counted as if it got whole ones, of `per_node` processors."""
    match limit.counted:
        case Counted.JOBS | Counted.SUBMITTED:
            return 1.0
        case Counted.NODES:
            return float(-(-processors // max(1, per_node)))
        case Counted.PROCESSOR_SECONDS:
            return processors * (walltime_s or 0.0)
    return float(processors)


def nodes_width(view: ClusterView, queue: str) -> int:
    """Processors of a queue's widest node."""
    return max((node.processors for node in view.nodes if queue in node.queues), default=1)


def left_of(view: ClusterView, limit: AccountLimit, per_node: int) -> Left:
    """What a limit leaves from the view's time on, as far as starts and ends are planned."""
    free = limit.most - limit.used
    changes: dict[float, float] = {}
    kept, waiting, at_once = 0.0, set(), 0.0
    for job in view.jobs:
        if not limit.counts(job.account, job.qos, job.queue, job.foreign):
            continue
        need = needs(limit, job.processors, job.walltime_s, per_node)
        if job.state.holds_processors:
            if job.end_s is not None and limit.counted is not Counted.PROCESSOR_SECONDS:
                end_s = max(0.0, job.end_s - view.time_s)
                changes[end_s] = changes.get(end_s, 0.0) + need
        elif job.state is BatchState.PENDING and need <= limit.most and limit.counted is not Counted.SUBMITTED:
            if job.planned_start_s is not None:
                starts_s = max(0.0, job.planned_start_s - view.time_s)
                changes[starts_s] = changes.get(starts_s, 0.0) - need
                if job.walltime_s is not None and limit.counted is not Counted.PROCESSOR_SECONDS:
                    changes[starts_s + job.walltime_s] = changes.get(starts_s + job.walltime_s, 0.0) + need
            elif job.limited and limit.holds_for(job.account, job.qos, job.queue):
                at_once += need
            else:
                continue
            kept = max(kept, need)
            waiting.add(job.id)
    level = least = free - at_once
    falls: list[tuple[float, float]] = []
    for time_s in sorted(changes):
        level += changes[time_s]
        if level < least:
            falls.append((time_s, least))
            least = level
    falls.append((UNLIMITED, least))
    falls.reverse()
    return Left(
        limit, free, kept, tuple(time for time, _ in falls), tuple(left for _, left in falls), frozenset(waiting)
    )


def within_limits(
    found: Windows,
    limits: Iterable[Left],
    charged: Charged,
    j0: BatchJobView | None,
    coming: Sequence[Charged],
    per_node: int,
) -> Allowed:
    """Windows, in processors, as far as the limits on a job that is `charged` so let it use them.

    `j0`: the batch job that holds its place. `coming`: subjobs that were asked for and are not counted as used yet.
    """
    jobs, by = math.inf, []
    for left in limits:
        limit = left.limit
        if not limit.holds_for(charged.account, charged.qos, charged.queue):
            continue
        if limit.counted in _OF_ONE_JOB:
            cut = _of_one_job(found, limit)
        else:
            shares = j0 is not None and limit.holds_for(j0.account, j0.qos, j0.queue)
            # Jobs that wait are counted as submitted already, J0 among them.
            place = j0 if shares and limit.counted is not Counted.SUBMITTED else None
            j0_needs = 0.0 if place is None else needs(limit, place.processors, place.walltime_s, per_node)
            taken = sum(
                needs(limit, one.processors, one.walltime_s, per_node)
                for one in coming
                if limit.counts(one.account, one.qos, one.queue)
            )
            id = "" if place is None else place.id
            if limit.counted in (Counted.JOBS, Counted.SUBMITTED):
                cut, most = _counted_in_jobs(found, left, id, j0_needs, taken)
                jobs = min(jobs, most)
            else:
                cut = _cut(found, left, id, j0_needs, taken, per_node)
        if cut.steps != found.steps:
            by.append(limit.name)
        found = cut
    return Allowed(found, jobs, tuple(dict.fromkeys(by)))


def _of_one_job(found: Windows, limit: AccountLimit) -> Windows:
    if limit.counted is Counted.OF_A_JOB:
        most = int(limit.most)
        return _staircase(found, [(min(step.processors, most), step.duration_s) for step in found.steps])
    return _staircase(found, [(step.processors, min(step.duration_s, limit.most)) for step in found.steps])


def _counted_in_jobs(found: Windows, left: Left, j0: str, j0_needs: float, taken: float) -> tuple[Windows, float]:
    """A window lasts for as long as there is a slot for another job; how many there are at most."""
    lasts_s = next((t for t in left.until_s if left.for_another(t, j0, j0_needs) >= taken + 1.0), None)
    if lasts_s is None:
        return replace(found, steps=()), 0.0
    steps = [(step.processors, min(step.duration_s, lasts_s)) for step in found.steps]
    return _staircase(found, steps), math.floor(left.for_another(lasts_s, j0, j0_needs) - taken)


def _cut(found: Windows, left: Left, j0: str, j0_needs: float, taken: float, per_node: int) -> Windows:
    """Windows that are no wider than a limit on processors, nodes or processor seconds leaves them."""
    if left.limit.counted is Counted.PROCESSOR_SECONDS:
        seconds = left.for_another(0.0, j0, j0_needs) - taken
        return _staircase(
            found,
            [(step.processors, min(step.duration_s, max(0.0, seconds) / step.processors)) for step in found.steps],
        )
    unit = per_node if left.limit.counted is Counted.NODES else 1

    def wide(for_s: float) -> int:
        return max(0, math.floor(left.for_another(for_s, j0, j0_needs) - taken)) * unit

    lasts = {step.duration_s for step in found.steps} | set(left.until_s)
    ends = sorted((one for one in lasts if one <= found.steps[0].duration_s), reverse=True) if found.steps else []
    return _staircase(found, [(min(found.available(end), wide(end)), end) for end in ends])


def _staircase(found: Windows, steps: Iterable[tuple[int, float]]) -> Windows:
    """Whole units, strictly wider and strictly shorter from step to step."""
    kept: list[BackfillSlot] = []
    unit = max(1, found.processor_quantum)
    for processors, duration_s in steps:
        wide = processors // unit * unit
        if duration_s <= 0.0 or wide <= (kept[-1].processors if kept else 0):
            continue
        if kept and kept[-1].duration_s <= duration_s:
            kept.pop()  # as long, and wider
        kept.append(BackfillSlot(wide, duration_s))
    return replace(found, steps=tuple(kept))
