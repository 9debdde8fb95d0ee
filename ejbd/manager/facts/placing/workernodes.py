"""On which nodes the workers of a subjob can be: those that the batch system shows for its batch job."""

from __future__ import annotations

from collections.abc import Collection

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Subjob


def is_one_of(node: str, nodes: Collection[str]) -> bool:
    """Whether a node is among these, by its name up to the first dot: some batch systems tell no domains."""
    return node.partition(".")[0] in {one.partition(".")[0] for one in nodes}


def reason_not_believed(world: JobWorld, subjob: Subjob, node: str) -> str:
    """Why a worker that says that it is on this node is not believed now, or "".

    What the latest poll shows counts, with one worker a node. Where it shows no nodes yet, there may be as many workers
    as the subjob has processors.
    """
    view = world.ctx.view
    shown = next((job.nodes for job in view.jobs if job.id == subjob.batch_id), ()) if view is not None else ()
    if shown:
        there = sum(is_one_of(worker.node, shown) for worker in world.workers_of(subjob.id))
        has_it = is_one_of(node, shown) and there < len(set(shown))
        return "" if has_it else f"batch job {subjob.batch_id} has not got node {node}, or has a worker there"
    if len(world.workers_of(subjob.id)) >= subjob.processors:
        return f"batch job {subjob.batch_id} has asked for {subjob.processors} processors, and has as many workers"
    return ""
