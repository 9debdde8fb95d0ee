"""Backfill windows: what can be used right now, and for how long, without delaying any start that is planned.

The result is a staircase of slots (Liu & Weissman, SC'15, section 2.3, Table 1): few processors for long, more for a
shorter time. Under EASY it has two steps at most, type I (no end) and type II (until the shadow time); a batch system
that reserves for every waiting job gives more. What the site has reserved (maintenance, say) ends windows as a planned
start does, and a start that is planned behind it is no shadow time before it.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ejbd.core.easy import shadow_of
from ejbd.core.progress import ROUNDING_SLACK_S, whole_units
from ejbd.core.room.slots import in_whole_units
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, Offer, QueueView, Reservations


@dataclass(frozen=True, slots=True)
class Windows:
    """The staircase of slots that start at `now_s`: processors strictly grow while durations strictly shrink.

    Every slot contains the ones before it: its processors are all that can be used for its duration.
    """

    now_s: float
    steps: tuple[BackfillSlot, ...]
    processor_quantum: int = 1

    def slots(self) -> tuple[BackfillSlot, ...]:
        """The longest slot first: a type-I slot, if there is one, then those of type II.

        In a queue with a walltime limit nothing is unlimited: there the type-I slot lasts exactly as long as the limit,
        which for a job of that queue is as good as no end.
        """
        return self.steps

    def available(self, duration_s: float) -> int:
        """How many processors can be used from now on for `duration_s` seconds."""
        index = bisect_right(self.steps, -duration_s, key=_shortness)
        return self.steps[index - 1].processors if index else 0

    def take(self, processors: int, duration_s: float) -> Self:
        """What is left once a job of that shape has started now.

        Processors are rounded up to whole units. The job is taken to get those processors that are of the least use to
        others, that is, those with the first end of their own after the job's. Raises ValueError where the job does not
        fit.
        """
        units = whole_units(processors, self.processor_quantum)
        left_at_end = self.available(duration_s) - units
        if processors < 0 or left_at_end < 0:
            raise ValueError(
                f"{processors} processors for {duration_s:g} s do not fit: {left_at_end + units} are free for that long"
            )
        kept: list[BackfillSlot] = []
        last = 0
        for step in self.steps:
            # Shorter than the job: it is in the way. Longer: only if what is left at its end does not reach up to them.
            ends_before = step.duration_s <= duration_s
            left = step.processors - units if ends_before else min(step.processors, left_at_end)
            if left > last:
                kept.append(step if left == step.processors else BackfillSlot(left, step.duration_s))
                last = left
        return type(self)(self.now_s, tuple(kept), self.processor_quantum)


def windows(view: ClusterView, queue: str, now: float) -> Windows:
    """The slots of one queue at `now`, from one view of the cluster. A queue that is down or unknown has none.

    Neither has any queue where the jobs of others are hidden: nothing is to count on such a window.
    """
    found = view.queue(queue)
    if found is None or not found.up or view.blind:
        return Windows(now, ())
    nodes = {node.name: node for node in view.usable_nodes(queue)}
    waiting = [job for job in view.jobs if job.state is BatchState.PENDING]
    pending = [job for job in waiting if job.planned_start_s is not None or not job.blocked]
    if not view.keeps_order and any(job.foreign for job in pending):
        return Windows(now, ())  # a waiting job could be pushed back by anything that starts
    # Where jobs wait and none has a plan, the batch system has not looked at them yet: its nodes are not known then.
    unplanned = bool(pending) and all(job.planned_start_s is None for job in pending)
    kept = _kept(view, nodes, now)
    if view.reservations is Reservations.NODES and not unplanned:
        stairs = _by_nodes(nodes, pending, kept, found.processor_quantum, now)
    else:
        stairs = _by_processors(view, found, nodes, pending, kept, now)
        if kept:  # what is free now on their nodes goes, whatever comes free elsewhere
            stairs = _both(stairs, _by_nodes(nodes, [], kept, 1, now))
    if view.offers is not None:
        stairs = _both(stairs, _offered(view.offers, now))
    return Windows(now, _staircase(stairs, found, view.walltime_quantum_s), found.processor_quantum)


def free_ahead(view: ClusterView, queue: str, now: float) -> tuple[int, list[tuple[float, int]]] | None:
    """How many processors of a queue are free now, and how many more (or fewer) from each time on (absolute seconds).

    By planned ends, planned starts and what the site keeps: what a profile of widths is fitted into. None where nothing
    is known of it.
    """
    found = view.queue(queue)
    if found is None or not found.up or view.blind:
        return None
    nodes = {node.name: node for node in view.usable_nodes(queue)}
    waiting = [job for job in view.jobs if job.state is BatchState.PENDING]
    pending = [job for job in waiting if job.planned_start_s is not None or not job.blocked]
    free, changes = _changes(view, found, nodes, pending, _kept(view, nodes, now), now)
    return free, sorted(changes.items())


def _offered(offers: Iterable[Offer], now: float) -> list[Stair]:
    """What the scheduler itself offers, the longest first."""
    ends = [(UNLIMITED if offer.end_s is None else offer.end_s - now, offer.processors) for offer in offers]
    return sorted(ends, key=lambda stair: (-stair[0], stair[1]))


def _shortness(slot: BackfillSlot) -> float:
    return -slot.duration_s


Stair = tuple[float, int]  # (seconds from now, processors that can be used for that long)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a reservation of the site takes of a queue: from `from_s` to `until_s`, so many processors of each node."""

    from_s: float
    until_s: float
    of_nodes: dict[str, int]


def _kept(view: ClusterView, nodes: dict[str, NodeView], now: float) -> list[_Kept]:
    """The site's reservations on these nodes, the earliest first."""
    found = []
    for one in view.site_reservations:
        from_s = one.ends_windows_s(now)
        hit = {name: one.of_node(nodes[name]) for name in one.nodes if name in nodes}
        if from_s is not None and hit:
            found.append(_Kept(from_s, math.inf if one.admits and from_s == one.end_s else one.end_s, hit))
    return sorted(found, key=lambda one: one.from_s)


def _by_nodes(
    nodes: dict[str, NodeView], pending: list[BatchJobView], kept: list[_Kept], quantum: int, now: float
) -> list[Stair]:
    """Free processors by what comes first on their node: a planned start, or a reservation of the site.

    A planned start without nodes reserves nothing.
    """
    free = {name: node.free for name, node in nodes.items() if node.free >= quantum}
    if not free:
        return [(UNLIMITED, 0)]  # whatever starts, and wherever
    ends: dict[float, int] = {}
    taken: list[tuple[float, dict[str, int]]] = [(one.from_s, one.of_nodes) for one in kept]
    for job in pending:
        if job.planned_start_s is not None:
            taken.append((job.planned_start_s, dict.fromkeys(job.planned_nodes, sys.maxsize)))
    for start, names in sorted(taken, key=lambda one: one[0]):
        if not free:
            break
        for name in free.keys() & names.keys():
            # Rounded as a whole, lest what is left of a node and what is taken both lose a part of a unit.
            left = max(0, free[name] - names[name]) // quantum * quantum
            ends[start - now] = ends.get(start - now, 0) + free[name] // quantum * quantum - left
            free[name] = left
            if not left:
                del free[name]
    ends[UNLIMITED] = sum(count // quantum for count in free.values()) * quantum
    stairs: list[Stair] = []
    usable = 0
    for end in sorted(ends, reverse=True):
        usable += ends[end]
        stairs.append((end, usable))
    return stairs


def _both(one: list[Stair], other: list[Stair]) -> list[Stair]:
    """The most that both allow. Each begins with what lasts longest."""

    def available(stairs: list[Stair], seconds: float) -> int:
        return next((count for end, count in reversed(stairs) if end >= seconds), 0)

    ends = sorted({end for end, _ in (*one, *other)}, reverse=True)
    return [(end, min(available(one, end), available(other, end))) for end in ends]


def _by_processors(
    view: ClusterView,
    queue: QueueView,
    nodes: dict[str, NodeView],
    pending: list[BatchJobView],
    kept: list[_Kept],
    now: float,
) -> list[Stair]:
    """Running minimum of the processors free over time, by planned ends and planned starts on the queue's nodes.

    Where no pending job has a planned start, the first that does not fit gets its shadow time by EASY's own rule. A
    batch system that reserves nodes reserves whole ones there, too.
    """
    free, changes = _changes(view, queue, nodes, pending, kept, now)
    level = least = free
    falls: list[Stair] = []
    for time in sorted(changes):
        level += changes[time]
        if level < least:
            falls.append((time - now, least))
            least = level
    falls.append((UNLIMITED, least))
    falls.reverse()
    return falls


def _changes(
    view: ClusterView,
    queue: QueueView,
    nodes: dict[str, NodeView],
    pending: list[BatchJobView],
    kept: list[_Kept],
    now: float,
) -> tuple[int, dict[float, int]]:
    """How many processors are free now, and how many more (or fewer) from each time on."""
    unit = view.reserved_unit(queue, nodes.values())
    neighbours = {name for node in nodes.values() for name in node.queues} | {queue.name}
    free = sum(node.free for node in nodes.values())
    holding = [
        job for job in view.jobs if job.state.holds_processors and job.end_s is not None and job.queue in neighbours
    ]
    releases = sorted((max(job.end_s or now, now), _share(job, nodes)) for job in holding)
    waiting = [job for job in pending if job.queue in neighbours]
    starts = [(job.planned_start_s, job) for job in waiting if job.planned_start_s is not None]
    if not starts:
        head = next((job for job in waiting if job.processors > free), None)
        reservation = shadow_of(head.processors, releases, free, now) if head is not None else None
        if head is not None and reservation is not None:
            starts = [(_behind(reservation[0], head, nodes, kept), head)]

    changes: dict[float, int] = {}
    for end, processors in releases:
        changes[end] = changes.get(end, 0) + processors
    for planned, job in starts:
        start = max(planned, now)
        reserved = whole_units(job.processors, unit)
        changes[start] = changes.get(start, 0) - reserved
        if job.walltime_s is not None:
            changes[start + job.walltime_s] = changes.get(start + job.walltime_s, 0) + reserved
    for one in _each_once(kept):
        _take_kept(changes, one, nodes, holding, now)
    return free, changes


def _behind(start: float, head: BatchJobView, nodes: dict[str, NodeView], kept: list[_Kept]) -> float:
    """When a job can start that the site's reservations may be in the way of: not until the last one that is."""
    for one in kept:
        ends = math.inf if head.walltime_s is None else start + head.walltime_s
        left = sum(node.processors for node in nodes.values()) - sum(one.of_nodes.values())
        if one.from_s < ends and start < one.until_s < math.inf and left < head.processors:
            start = one.until_s
    return start


def _each_once(kept: list[_Kept]) -> list[_Kept]:
    """The same with no node kept twice at a time, where reservations overlap."""
    of_nodes: dict[str, list[tuple[float, float, int]]] = {}
    for one in kept:  # the earliest first
        for name, count in one.of_nodes.items():
            spans = of_nodes.setdefault(name, [])
            if spans and one.from_s < spans[-1][1]:
                from_s, until_s, before = spans.pop()
                spans.append((from_s, max(until_s, one.until_s), max(before, count)))
            else:
                spans.append((one.from_s, one.until_s, count))
    together: dict[tuple[float, float], dict[str, int]] = {}
    for name, spans in of_nodes.items():
        for from_s, until_s, count in spans:
            together.setdefault((from_s, until_s), {})[name] = count
    return [_Kept(from_s, until_s, names) for (from_s, until_s), names in sorted(together.items())]


def _take_kept(
    changes: dict[float, int], one: _Kept, nodes: dict[str, NodeView], holding: list[BatchJobView], now: float
) -> None:
    """What a reservation takes of the processors that are free by its start, and of those that come free during it."""
    held = sum(min(nodes[name].free, count) for name, count in one.of_nodes.items())
    begin = max(one.from_s, now)
    there = {name: nodes[name] for name in one.of_nodes}
    whole = sum(node.processors for node in there.values())
    part = sum(one.of_nodes.values()) / whole if whole else 0.0
    for job in holding:
        share = math.ceil(_share(job, there) * part) if job.nodes else 0
        end = max(job.end_s or now, now)
        if not share or end >= one.until_s:
            continue
        if end <= begin:
            held += share
        else:
            changes[end] = changes.get(end, 0) - share
            changes[one.until_s] = changes.get(one.until_s, 0) + share
    changes[begin] = changes.get(begin, 0) - held
    changes[one.until_s] = changes.get(one.until_s, 0) + held


def why_they_end(view: ClusterView, queue: str, slots: Iterable[BackfillSlot]) -> list[str]:
    """For each slot of a queue what its end is, in some words; "" for one without an end, or where it is not known.

    `slots` as of the view, or what others have left of them: their durations are those of the view.
    """
    found, now = view.queue(queue), view.time_s
    if found is None:
        return ["" for _ in slots]
    nodes = {node.name for node in view.usable_nodes(queue)}
    ends: list[tuple[float, str]] = []
    for one in view.site_reservations:
        from_s = one.ends_windows_s(now)
        if from_s is not None and nodes.intersection(one.nodes):
            ends.append((from_s, f"{one.what} {one.name}"))
    for job in view.jobs:
        planned = job.planned_start_s
        on_them = not job.planned_nodes or nodes.intersection(job.planned_nodes)
        if job.state is BatchState.PENDING and planned is not None and on_them:
            ends.append((planned, f"planned start of job {job.id}"))
    quantum = view.walltime_quantum_s
    told = []
    for slot in slots:
        if slot.duration_s == found.max_walltime_s:
            told.append(f"walltime limit of queue {queue}")
            continue
        near = [why for at, why in ends if 0.0 <= at - now - slot.duration_s + ROUNDING_SLACK_S < quantum]
        told.append(", ".join(dict.fromkeys(near)))
    return told


def _share(job: BatchJobView, nodes: dict[str, NodeView]) -> int:
    """The job's processors on these nodes; without a list of its nodes, all of them. Rounded down: it is what frees."""
    if not job.nodes:
        return job.processors
    here = sum(1 for name in job.nodes if name in nodes)
    return job.processors * here // len(job.nodes)


def _staircase(stairs: Iterable[Stair], queue: QueueView, walltime_quantum_s: float) -> tuple[BackfillSlot, ...]:
    """Whole units of processors and of walltime, cut at the queue's walltime limit. `stairs`: the longest first."""
    found = list(stairs)
    durations, processors = [seconds for seconds, _ in found], [count for _, count in found]
    limit_s = UNLIMITED if queue.max_walltime_s is None else queue.max_walltime_s
    count = in_whole_units(processors, durations, len(found), queue.processor_quantum, walltime_quantum_s, limit_s)
    return tuple(BackfillSlot(processors[index], durations[index]) for index in range(count))
