"""Two jobs that a batch system has started on the same processors: each keeps to a part of every node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ejbd.core.malleable.folding import half
from ejbd.core.view import BatchJobView, BatchState, ClusterView

Numbers = Mapping[str, tuple[int, ...]]  # by node: the numbers of the processors


def halves(view: ClusterView, ours: Collection[str]) -> Mapping[str, Numbers]:
    """What each of these batch jobs (ids) has of its nodes, where it is in a queue that lets jobs share processors.

    The older of two keeps to the first part, the other to the rest: halves where both were given the whole node, else
    parts by what each was given (:func:`parts`). A job that is alone on a node has all that it was given. Nothing is
    said of more than two jobs, of two that fit beside each other, and of parts beside jobs that are not ours, or of
    several nodes.
    """
    shared = {queue.name for queue in view.queues if queue.jobs_a_processor > 1}
    if not shared:
        return {}
    sizes = {node.name: node.processors for node in view.nodes}
    there: dict[str, list[BatchJobView]] = {}
    others: set[str] = set()  # nodes with jobs of which it is not known which processors they use
    for job in view.jobs:
        if not job.state.holds_processors:
            continue
        mine = job.state is BatchState.RUNNING and job.id in ours and job.queue in shared
        if mine and (_of_whole_nodes(job, sizes) or len(job.nodes) == 1):
            for name in job.nodes:
                there.setdefault(name, []).append(job)
        else:
            others.update(job.nodes)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, jobs in there.items():
        if name not in sizes or len(jobs) > 2:
            continue
        numbers = tuple(range(sizes[name]))
        jobs.sort(key=lambda job: (job.start_s or 0.0, job.id))
        given = [len(numbers) if len(job.nodes) > 1 else min(job.processors, len(numbers)) for job in jobs]
        if name in others and min(given) < len(numbers):
            continue
        if len(jobs) == 1:
            found.setdefault(jobs[0].id, {})[name] = numbers[: given[0]]
        elif 1 < len(numbers) < sum(given):
            first = part(len(numbers), given[0], given[1])
            found.setdefault(jobs[0].id, {})[name] = numbers[:first]
            found.setdefault(jobs[1].id, {})[name] = numbers[first:]
    return found


def part(size: int, first: int, second: int) -> int:
    """What the first of two jobs keeps to, which were given so many of a node's `size` processors, and more together.

    Each gives in proportion, and both have one at least, and no more than they were given.
    """
    return min(max(-(-size * first // (first + second)), size - second, half(first)), first, size - 1)


def _of_whole_nodes(job: BatchJobView, sizes: Mapping[str, int]) -> bool:
    return bool(job.nodes) and job.processors == sum(sizes.get(name, -job.processors) for name in job.nodes)
