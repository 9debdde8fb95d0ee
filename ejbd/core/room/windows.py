"""Backfill windows: what can be used right now, and for how long, without delaying any start that is planned.

The result is a staircase of slots (Liu & Weissman, SC'15, section 2.3, Table 1): few processors for long, more for a
shorter time. Under EASY it has two steps at most, type I (no end) and type II (until the shadow time); a batch system
that reserves for every waiting job gives more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ejbd.core.easy import shadow_of
from ejbd.core.progress import whole_units
from ejbd.core.room.slots import in_whole_units
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations


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
        others, that is, whose own end comes first after the job's. Raises ValueError where the job does not fit.
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
    """The slots of one queue at `now`, from one view of the cluster. A queue that is down or unknown has none."""
    found = view.queue(queue)
    if found is None or not found.up:
        return Windows(now, ())
    nodes = {node.name: node for node in view.usable_nodes(queue)}
    waiting = [job for job in view.jobs if job.state is BatchState.PENDING]
    pending = [job for job in waiting if job.planned_start_s is not None or not job.blocked]
    # Where jobs wait and none has a plan, the batch system has not looked at them yet: its nodes are not known then.
    unplanned = bool(pending) and all(job.planned_start_s is None for job in pending)
    if view.reservations is Reservations.NODES and not unplanned:
        stairs = _by_nodes(nodes, pending, found.processor_quantum, now)
    else:
        stairs = _by_processors(view, found, nodes, pending, now)
    return Windows(now, _staircase(stairs, found, view.walltime_quantum_s), found.processor_quantum)


def _shortness(slot: BackfillSlot) -> float:
    return -slot.duration_s


Stair = tuple[float, int]  # (seconds from now, processors that can be used for that long)


def _by_nodes(nodes: dict[str, NodeView], pending: list[BatchJobView], quantum: int, now: float) -> list[Stair]:
    """Free processors by the earliest planned start on their node. A planned start without nodes reserves nothing."""
    open_nodes = {name for name, node in nodes.items() if node.free >= quantum}
    ends: dict[float, int] = {}
    planned = [(job.planned_start_s, job.planned_nodes) for job in pending if job.planned_start_s is not None]
    for start, names in sorted(planned):
        if not open_nodes:
            break
        if open_nodes.isdisjoint(names):
            continue
        hit = open_nodes.intersection(names)
        open_nodes -= hit
        left = start - now
        ends[left] = ends.get(left, 0) + sum(nodes[name].free // quantum for name in hit) * quantum
    ends[UNLIMITED] = sum(nodes[name].free // quantum for name in open_nodes) * quantum
    stairs: list[Stair] = []
    usable = 0
    for end in sorted(ends, reverse=True):
        usable += ends[end]
        stairs.append((end, usable))
    return stairs


def _by_processors(
    view: ClusterView, queue: QueueView, nodes: dict[str, NodeView], pending: list[BatchJobView], now: float
) -> list[Stair]:
    """Running minimum of the processors free over time, by planned ends and planned starts on the queue's nodes.

    Where no pending job has a planned start, the first that does not fit gets its shadow time by EASY's own rule. A
    batch system that reserves nodes reserves whole ones there, too.
    """
    by_nodes = view.reservations is Reservations.NODES
    unit = max((node.processors for node in nodes.values()), default=1) if by_nodes else queue.processor_quantum
    neighbours = {name for node in nodes.values() for name in node.queues} | {queue.name}
    free = sum(node.free for node in nodes.values())
    releases: list[tuple[float, int]] = []
    for job in view.jobs:
        if job.state.holds_processors and job.end_s is not None and job.queue in neighbours:
            releases.append((max(job.end_s, now), _share(job, nodes)))
    releases.sort()
    waiting = [job for job in pending if job.queue in neighbours]
    starts = [(job.planned_start_s, job) for job in waiting if job.planned_start_s is not None]
    if not starts:
        head = next((job for job in waiting if job.processors > free), None)
        reservation = shadow_of(head.processors, releases, free, now) if head is not None else None
        if head is not None and reservation is not None:
            starts = [(reservation[0], head)]

    changes: dict[float, int] = {}
    for end, processors in releases:
        changes[end] = changes.get(end, 0) + processors
    for planned, job in starts:
        start = max(planned, now)
        reserved = whole_units(job.processors, unit)
        changes[start] = changes.get(start, 0) - reserved
        if job.walltime_s is not None:
            changes[start + job.walltime_s] = changes.get(start + job.walltime_s, 0) + reserved
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
