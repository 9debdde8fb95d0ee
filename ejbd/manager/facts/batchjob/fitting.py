"""From what a job wants of its nodes to what each of its ranks needs, by the nodes and the rules of the site."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from ClusterShell.NodeSet import NodeSet

from ejbd.core.memory import NONE_FITS, Memory, narrowest, ranks_by_memory
from ejbd.core.needs import Needs, features_of
from ejbd.core.view import ClusterView, QueueView
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.hostlists import hosts
from ejbd.wire.hostlists import folded


@dataclass(frozen=True, slots=True)
class Fitted:
    """The job with its `needs`, or why it cannot be elastic (`obstacle`). `said` is for its user."""

    spec: JobSpec
    obstacle: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """Of some nodes: processors of the largest, memory (megabytes) of the smallest, of the smallest that tells it (0:
    none does), and of the largest."""

    processors: int
    smallest_mb: int
    least_told_mb: int
    largest_mb: int


class _SizesOfView:
    """What was found out of one view: thousands of jobs may be admitted by it, on a site of thousands of nodes."""

    MOST_KEPT = 256

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._found: dict[tuple[str, Needs], NodeSizes | None] = {}
        self._named: dict[str, frozenset[str]] = {}

    @functools.cached_property
    def _all(self) -> NodeSet:
        return folded(node.name for node in self.view.nodes if _PLAIN.fullmatch(node.name))

    def named(self, expression: str) -> frozenset[str]:
        """Those of the named nodes that there are. A list may name many thousands that there are not."""
        if expression not in self._named:
            if len(self._named) >= self.MOST_KEPT:
                self._named = {}
            self._named[expression] = frozenset(hosts(expression, "") & self._all)
        return self._named[expression]

    def of(self, queue: str, where: Needs) -> NodeSizes | None:
        """The sizes of a queue's nodes on which a rank may be; None: there is no such node."""
        key = queue, where
        try:
            return self._found[key]
        except KeyError:
            sizes = self._look(queue, where)
            if len(self._found) >= self.MOST_KEPT:
                self._found = {}
            self._found[key] = sizes
            return sizes

    def _look(self, queue: str, where: Needs) -> NodeSizes | None:
        nodes = [node for node in self.view.nodes if queue in node.queues and where.allows(node)]
        if not nodes:
            return None
        sizes = [node.memory_mb for node in nodes]
        told = min(filter(None, sizes), default=0)
        return NodeSizes(max(node.processors for node in nodes), min(sizes), told, max(sizes))


_PLAIN = re.compile(r"[\w.-]+", re.ASCII)  # a vnode of PBS may be called `n1[0]`, which no list of Slurm's can name
_latest: _SizesOfView | None = None


def _of_view(view: ClusterView) -> _SizesOfView:
    global _latest
    latest = _latest
    if latest is None or latest.view is not view:
        latest = _latest = _SizesOfView(view)
    return latest


def fitted(spec: JobSpec, view: ClusterView | None, queue: str, omax: int) -> Fitted:
    """What the ranks of a job need in a queue where up to `omax` may share a processor."""
    found = view.queue(queue) if view is not None else None
    if view is None or found is None:
        return Fitted(spec)
    wants = spec.wants
    where = Needs(
        only=_names(wants.nodelist, view) or frozenset(filter(None, (wants.nodelist,))),
        never=_names(wants.exclude, view),
        **_features(wants.constraint),
    )
    sizes = _of_view(view).of(queue, where)
    if sizes is None:
        return Fitted(spec, "no node of the queue is one of those that it asks for")
    size = sizes.processors
    whole = wants.whole_nodes or found.processor_quantum >= size > 1
    spec = _sized(spec, size) if whole else spec
    place = _place(spec, found, size, whole)
    if place > size:
        return Fitted(spec, f"a rank of {place} processors fits on no node of queue {queue} (at most {size})")
    needs = replace(where, processors=place, whole_nodes=wants.whole_nodes)
    if whole:
        needs = replace(needs, per_node=size // place)
    if wants.shape:
        each = spec.processors_per_node or (-(-spec.processes // spec.nodes) if spec.nodes else None)
        return Fitted(replace(spec, needs=replace(needs, omax=1, per_node=each, gres=wants.devices)))
    return _with_memory(spec, needs, sizes, view, omax)


def ranks_a_node(needs: Needs, view: ClusterView | None, queue: str) -> int:
    """How many ranks the largest node of a queue holds where no other job uses it; 0: not known."""
    sizes = _of_view(view).of(queue, needs) if view is not None else None
    return 0 if sizes is None else needs.per_node or max(1, sizes.processors // needs.processors)


def _names(expression: str, view: ClusterView) -> frozenset[str]:
    """Those of the named nodes that there are."""
    if not expression or "/" in expression:
        return frozenset()
    return _of_view(view).named(expression)


def _features(expression: str) -> dict[str, Any]:
    found = features_of(expression) if expression else None
    return {} if found is None else {"features": found[0], "all_features": found[1]}


def _sized(spec: JobSpec, size: int) -> JobSpec:
    """`-N 2` of whole nodes alone: as many ranks as they have processors may be launched."""
    if not spec.wants.unsized or spec.nodes is None:
        return spec
    return replace(spec, processes=spec.nodes * max(1, size // spec.threads))


def _place(spec: JobSpec, queue: QueueView, size: int, whole: bool) -> int:
    """Processors that one rank takes of a node at full width."""
    quantum, threads = queue.processor_quantum, spec.threads
    if whole:
        each = size // threads
        if spec.tasks_asked:
            each = spec.processors_per_node or (-(-spec.processes // spec.nodes) if spec.nodes else each)
        return size // min(max(1, each), size) if size >= threads else threads
    if quantum > 1 and threads > 1:  # whole cores
        return -(-threads // quantum) * quantum
    return threads


def _with_memory(spec: JobSpec, needs: Needs, sizes: NodeSizes, view: ClusterView, omax: int) -> Fitted:
    """How many ranks a place may hold by what its share of a node's memory is, and how much it has to ask for."""
    rank_mb = _of_rank(spec, needs, sizes, view)
    least = sizes.least_told_mb
    if not rank_mb or not least:
        return Fitted(replace(spec, needs=needs))
    share_mb = least * needs.processors // sizes.processors
    if view.memory.most_mb_per_processor:
        share_mb = min(share_mb, view.memory.most_mb_per_processor * needs.processors)
    most = ranks_by_memory(rank_mb, share_mb, least, omax)
    if most == NONE_FITS:
        return Fitted(spec, f"a rank needs {rank_mb} MB, more than a node has ({least} MB)")
    if _keeps_whole(spec):
        each = replace(needs, memory_mb=rank_mb, whole_mb=rank_mb * spec.processes)
        return Fitted(replace(spec, needs=each))
    asked = rank_mb * most
    said = f"at most {most} ranks a processor, by their memory of {rank_mb} MB each" if most < omax else ""
    return Fitted(replace(spec, needs=replace(needs, memory_mb=asked, omax=most if most < omax else None)), said=said)


def _keeps_whole(spec: JobSpec) -> bool:
    """Whether what the job asks for is, of all its ranks together, what it needs at each width.

    That is so only of what it asks for itself: a site's default is no need.
    """
    asks = spec.wants.memory_per_processor_mb or spec.wants.memory_per_node_mb
    return bool(spec.widths and asks) and (spec.profile or {}).get("memory") == Memory.WHOLE


def least_by_memory(needs: Needs, view: ClusterView | None, queue: str) -> int:
    """The narrowest width of which a rank's memory is what a node of the queue can have; 1: any, as far as is known."""
    sizes = _of_view(view).of(queue, needs) if view is not None and needs.whole_mb else None
    if view is None or sizes is None:
        return 1
    bounds = [sizes.largest_mb // (needs.per_node or 1), (view.memory.most_mb_per_processor or 0) * needs.processors]
    return narrowest(needs.whole_mb, min(filter(None, bounds), default=0))


def _of_rank(spec: JobSpec, needs: Needs, sizes: NodeSizes, view: ClusterView) -> int:
    """Megabytes that a rank may use at full width, rounded up; 0: not said, and not counted.

    What is asked for of a node is shared by the ranks that it would have. These are as many as -N or --ntasks-per-node
    say, else as many as it has room for.
    """
    wants, rules = spec.wants, view.memory
    of_processor, of_node = wants.memory_per_processor_mb, wants.memory_per_node_mb
    if of_processor is None and of_node is None:
        if not rules.counted:
            return 0
        of_processor, of_node = rules.default_mb_per_processor, rules.default_mb_per_node
        if of_processor is None and of_node is None:
            of_node = 0  # without a rule a job is given all of a node's memory
    if of_processor:
        return of_processor * spec.threads
    if not of_node:
        of_node = sizes.smallest_mb
    room = max(1, sizes.processors // needs.processors)
    each = spec.processors_per_node or (-(-spec.processes // spec.nodes) if spec.nodes else min(room, spec.processes))
    return -(-of_node // max(1, each))


@dataclass(frozen=True, slots=True)
class Asked:
    """How a subjob is asked for: tasks of so many processors, their layout, nodes that it must not have, and further
    words of sbatch."""

    tasks: int
    threads: int
    nodes: int | None
    tasks_per_node: int | None
    words: tuple[str, ...]
    exclude: tuple[str, ...] = ()


def request_of(
    spec: JobSpec, processors: int, view: ClusterView | None, queue: str, *, first: bool, width: int | None = None
) -> Asked:
    """Of a subjob of so many processors, or (`first`) of J0: the job as its user asked for it.

    `width`: how many ranks run there once the job has no other subjob (None: one a place).
    """
    wants = spec.wants
    needs = spec.needs.at(width or spec.needs.places(processors))
    words = [f"--constraint={wants.constraint}"] if wants.constraint else []
    if wants.whole_nodes:
        words.append("--exclusive")
    if first or wants.shape:
        words += [f"--nodelist={wants.nodelist}"] if wants.nodelist else []
        if wants.memory_per_processor_mb is not None:
            words.append(f"--mem-per-cpu={wants.memory_per_processor_mb}M")
        if wants.memory_per_node_mb is not None:
            words.append(f"--mem={wants.memory_per_node_mb}M")
        words += wants.shape
        words += wants.first if first else ()
        return Asked(
            spec.processes, spec.threads, spec.nodes, spec.processors_per_node, tuple(words), tuple(sorted(needs.never))
        )
    tasks = needs.places(processors)
    threads = needs.processors if needs.per_node is None else spec.threads
    if needs.memory_mb and needs.per_node is None:
        words.append(f"--mem-per-cpu={-(-needs.memory_mb // needs.processors)}M")
    elif needs.memory_mb and needs.per_node is not None:
        words.append(f"--mem={needs.memory_mb * needs.per_node}M")
    # A part of the user's nodes will do for a subjob, where -w would ask for all of them.
    others = [node.name for node in (view.nodes if view and needs.only else ()) if queue in node.queues]
    without = needs.never.union(name for name in others if name not in needs.only)
    return Asked(tasks, threads, None, needs.per_node, tuple(words), tuple(sorted(without)))
