"""Two jobs that a batch system has started on the same processors: each keeps to a half of every node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ejbd.core.malleable.folding import half
from ejbd.core.view import BatchJobView, BatchState, ClusterView

Numbers = Mapping[str, tuple[int, ...]]  # by node: the numbers of the processors


def halves(view: ClusterView, ours: Collection[str]) -> Mapping[str, Numbers]:
    """What each of these batch jobs (ids) has of its nodes, where it is in a queue that lets jobs share processors.

    Only jobs of whole nodes: two of them were given the same processors. The older one keeps to the first half, the
    other to the rest; a job that is alone on a node has all of it. Of nodes with more than two nothing is said.
    """
    shared = {queue.name for queue in view.queues if queue.jobs_a_processor > 1}
    if not shared:
        return {}
    sizes = {node.name: node.processors for node in view.nodes}
    there: dict[str, list[BatchJobView]] = {}
    for job in view.jobs:
        if job.state is BatchState.RUNNING and job.id in ours and job.queue in shared and _of_whole_nodes(job, sizes):
            for name in job.nodes:
                there.setdefault(name, []).append(job)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, jobs in there.items():
        numbers = tuple(range(sizes[name]))
        jobs.sort(key=lambda job: (job.start_s or 0.0, job.id))
        if len(jobs) == 1:
            found.setdefault(jobs[0].id, {})[name] = numbers
        elif len(jobs) == 2 and len(numbers) > 1:
            first = half(len(numbers))
            found.setdefault(jobs[0].id, {})[name] = numbers[:first]
            found.setdefault(jobs[1].id, {})[name] = numbers[first:]
    return found


def _of_whole_nodes(job: BatchJobView, sizes: Mapping[str, int]) -> bool:
    return bool(job.nodes) and job.processors == sum(sizes.get(name, -job.processors) for name in job.nodes)
