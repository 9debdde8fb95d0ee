"""What is read of PBS, as the view of the cluster has it, and the words for what cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.batch.pbs import states
from ejbd.batch.pbs.attributes import QueueRow, Site
from ejbd.batch.pbs.rows import NodeRow
from ejbd.batch.pbs.states import Dialect
from ejbd.core.view import BatchJobView, BatchState, NodeView
from ejbd.errors import BatchError


def order(dialect: Dialect, jobs: Sequence[BatchJobView]) -> tuple[bool, str]:
    """Whether the scheduler plans starts that no job pushes back, and in words which plan windows go by."""
    waiting = [job for job in jobs if waits(job)]
    if dialect is Dialect.OPENPBS and any(job.planned_start_s is not None for job in waiting):
        return True, "OpenPBS's own estimates (strict_ordering)"
    if not waiting:
        return True, "idle nodes: no job waits for room"
    if dialect is Dialect.OPENPBS:
        text = "no estimate is there for a waiting job, so that nothing is started while others wait"
        return False, f"none: {text} (OpenPBS gives them with strict_ordering and backfill_depth, after a cycle)"
    return False, "none: Torque's scheduler protects no waiting job, so that nothing is started while others wait"


def waits(job: BatchJobView) -> bool:
    return job.state is BatchState.PENDING and not job.blocked


def blindness(site: Site, jobs: Sequence[BatchJobView], own: str) -> str:
    """Why jobs of others cannot be seen, "" where they can: a manager or operator sees them whatever the setting is."""
    if site.settings.get("query_other_jobs", "True") == "True" or any(job.user != own for job in jobs):
        return ""
    return "query_other_jobs is off, which hides the jobs of others; `qmgr -c 'set server query_other_jobs = True'`"


def serves(node: NodeRow, queue: QueueRow, site: Site) -> bool:
    """Whether jobs of a queue may run on a node."""
    ends = site.behind(queue)
    if node.bound_to:
        return any(node.bound_to == end.name for end in ends)
    return any(not end.needs or end.needs in node.properties or end.needs == node.name for end in ends)


def node_view(node: NodeRow, site: Site) -> NodeView:
    queues = tuple(queue.name for queue in site.queues if serves(node, queue, site))
    return NodeView(
        node.name,
        node.processors,
        node.free,
        node.usable,
        queues,
        node.state,
        node.memory_mb,
        node.free_memory_mb,
        node.properties,
    )


def number(id: str) -> int:
    return int(states.number_of(id).partition("[")[0])


def unreadable(name: str, text: str) -> BatchError:
    return BatchError(f"{name} answered nothing that can be read ({text.strip()[:80]!r})", transient=True)
