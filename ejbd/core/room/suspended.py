"""Room that suspended jobs need to run on: it is idle for the moment, and no other job's."""

from __future__ import annotations

from dataclasses import replace

from ejbd.core.view import BatchJobView, BatchState, ClusterView


def kept_for_suspended(view: ClusterView) -> ClusterView:
    """The view with no processor free that a suspended job had, so that it can run on when it may.

    The batch system counts those as idle. Where a job's processors are on several nodes and it does not say how many on
    which, each node is taken to have as many of them.
    """
    suspended = [job for job in view.jobs if job.state is BatchState.SUSPENDED and job.nodes]
    if not suspended:
        return view
    hit = {name for job in suspended for name in job.nodes}
    held = dict.fromkeys(hit, 0)
    for job in view.jobs:
        if job.state.holds_processors:
            for name in hit.intersection(job.nodes):
                held[name] += _share(job)
    nodes = tuple(
        replace(node, free=max(0, min(node.free, node.processors - held[node.name]))) if node.name in hit else node
        for node in view.nodes
    )
    return replace(view, nodes=nodes)


def _share(job: BatchJobView) -> int:
    return -(-job.processors // len(job.nodes))
