"""Pools: nodes that the same queues use, and what waits for them. What one pool's jobs give back serves that pool."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ejbd.core.lending import Borrower, Lending, Waiting
from ejbd.core.progress import whole_units
from ejbd.core.shapes import UNLIMITED
from ejbd.core.view import BatchJobView, BatchState, ClusterView


@dataclass(frozen=True, slots=True)
class Pool:
    """`waiting`: jobs that wait for room on these nodes and for nothing else, in the order of the batch system.

    `nodes`: names, and the processors of each; `free` of them all can be given out now, in whole units (`quantum`).
    """

    queues: tuple[str, ...]
    nodes: dict[str, int]
    quantum: int
    free: int
    waiting: tuple[BatchJobView, ...]

    def held(self, job: BatchJobView) -> int:
        """How many processors of this pool a running job holds."""
        if not job.nodes:
            return job.processors if job.queue in self.queues else 0
        here = sum(1 for name in job.nodes if name in self.nodes)
        return job.processors * here // len(job.nodes)


def pools(view: ClusterView, now: float, most: int, without: Collection[str] = ()) -> list[Pool]:
    """Those for which a job waits, the longest wait first; at most so many of each.

    `without`: ids of jobs that wait for nothing of others', such as subjobs that were asked for on room that is free.
    """
    shapes: dict[tuple[frozenset[str], int], list[str]] = {}
    of_queue: dict[str, tuple[frozenset[str], int]] = {}
    for queue in view.queues:
        names = frozenset(node.name for node in view.usable_nodes(queue.name))
        if queue.up and names:
            of_queue[queue.name] = names, max(1, queue.processor_quantum)
            shapes.setdefault(of_queue[queue.name], []).append(queue.name)
    sizes = {node.name: node.processors for node in view.nodes}
    whole = {shape: sum(sizes[name] for name in shape[0]) for shape in shapes}
    empty = _Empty(view, now)
    waiting: dict[tuple[frozenset[str], int], list[BatchJobView]] = {}
    for job in view.jobs:
        if job.state is not BatchState.PENDING or job.blocked or job.id in without:
            continue
        shape = next((of_queue[name] for name in job.queue.split(",") if name in of_queue), None)
        if shape is None or len(waiting.get(shape, ())) >= most or not 0 < job.processors <= whole[shape]:
            continue
        if job.processors <= empty.processors(shape[0], UNLIMITED if job.walltime_s is None else job.walltime_s):
            waiting.setdefault(shape, []).append(job)
    return [_pool(view, shape, tuple(shapes[shape]), tuple(jobs), now) for shape, jobs in waiting.items()]


def _pool(
    view: ClusterView,
    shape: tuple[frozenset[str], int],
    queues: tuple[str, ...],
    waiting: tuple[BatchJobView, ...],
    now: float,
) -> Pool:
    names, quantum = shape
    nodes = [node for node in view.nodes if node.name in names]
    kept = _kept(view, now, 0.0)
    free = sum(max(0, min(node.free, node.processors - kept.get(node.name, 0))) // quantum for node in nodes)
    return Pool(queues, {node.name: node.processors for node in nodes}, quantum, free * quantum, waiting)


def _kept(view: ClusterView, now: float, for_s: float) -> dict[str, int]:
    """What the site's reservations keep of each node within so many seconds."""
    sizes = {node.name: node for node in view.nodes}
    kept: dict[str, int] = {}
    for one in view.site_reservations:
        from_s = one.ends_windows_s(now)
        if from_s is not None and from_s <= now + for_s:
            for name in one.nodes:
                if name in sizes:
                    kept[name] = max(kept.get(name, 0), one.of_node(sizes[name]))
    return kept


class _Empty:
    """What a job could have if no other were there: less where a maintenance is in its way.

    Of all jobs that wait only as many answers differ as there are reservations: each is worked out once.
    """

    def __init__(self, view: ClusterView, now: float) -> None:
        self._view = view
        self._now = now
        starts = (one.ends_windows_s(now) for one in view.site_reservations)
        self._starts_s = sorted(start for start in starts if start is not None)
        self._found: dict[tuple[frozenset[str], int], int] = {}

    def processors(self, names: frozenset[str], for_s: float) -> int:
        """Of these nodes, for a job of so many seconds that would start now."""
        in_its_way = bisect_right(self._starts_s, self._now + for_s)
        key = names, in_its_way
        if key not in self._found:
            kept = _kept(self._view, self._now, for_s)
            nodes = (node for node in self._view.nodes if node.name in names)
            self._found[key] = sum(max(0, node.processors - kept.get(node.name, 0)) for node in nodes)
        return self._found[key]


@dataclass(frozen=True, slots=True)
class PlaceHolder:
    """The job that a batch job is the J0 of, and whether that job runs elsewhere."""

    job: str
    served: bool


def lending(
    pool: Pool,
    placeholders: dict[str, PlaceHolder],
    in_vain: Collection[str],
    borrowers: Iterable[tuple[Borrower, Sequence[BatchJobView]]],
    leaving: Iterable[BatchJobView],
    asked: int = 0,
    promised: int = 0,
) -> Lending:
    """What waits for a pool and what borrows of it.

    `placeholders` by the ids of batch jobs. `borrowers`: each with the running subjobs that it holds; `leaving`:
    subjobs that are being given back; `asked`: processors that subjobs will take which have not started. `promised`:
    processors that were given back and are free, and the job that they are for has not started yet.
    """
    waiting = []
    for job in pool.waiting:
        holder = placeholders.get(job.id)
        waiting.append(
            Waiting(
                job.id,
                job.user,
                whole_units(job.processors, pool.quantum),
                UNLIMITED if job.walltime_s is None else job.walltime_s,
                holder.job if holder is not None else "",
                holder is not None and holder.served,
                job.id in in_vain,
            )
        )
    may = []
    for one, subjobs in borrowers:
        held = sum(map(pool.held, subjobs))
        if held:
            may.append(replace(one, held=held))
    coming = sum(map(pool.held, leaving))
    available = max(0, pool.free - asked) + coming
    return Lending(tuple(waiting), available, min(available, coming + promised), tuple(may))
