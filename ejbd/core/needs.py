"""What each rank of a job takes of a node, on which nodes it may run, and the cluster seen by that.

A policy counts *places*: what one rank takes at full width. For most jobs that is a processor. A rank of several
threads takes as many processors of one node; one with a known memory takes that, too, for as many ranks as a place may
come to hold; and a job that wants nodes to itself, or nodes of a kind, finds places on those only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ejbd.core.memory import each_of
from ejbd.core.view import BatchJobView, ClusterView, NodeView, QueueView


@dataclass(frozen=True, slots=True)
class Needs:
    """A place: `processors` of one node, and `memory_mb` of it (0: not counted), enough for `omax` ranks (None: as many
    as the policy likes).

    `whole_nodes`: nodes that no other job uses, `per_node` places on each. `only` and `never` are names of nodes
    (`only` empty: any), `features` words of which a node has `all_features` or one. `gres`: of each node, name and
    number. `whole_mb`: what all ranks need together, however many they are (0: each needs as much at any width).
    """

    processors: int = 1
    memory_mb: int = 0
    whole_mb: int = 0
    omax: int | None = None
    whole_nodes: bool = False
    per_node: int | None = None
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    features: tuple[str, ...] = ()
    all_features: bool = True
    gres: tuple[tuple[str, int], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether a place is a processor of any node."""
        return self == _PLAIN or replace(self, omax=None) == _PLAIN

    def allows(self, node: NodeView) -> bool:
        """Whether ranks may run on a node at all."""
        if (self.only and node.name not in self.only) or node.name in self.never:
            return False
        if not self.features:
            return True
        has = [feature in node.features for feature in self.features]
        return all(has) if self.all_features else any(has)

    def most(self, node: NodeView) -> int:
        """How many places a node has while no job uses it."""
        return self._places(node, node.processors, node.memory_mb, {name: count for name, count, _ in node.gres})

    def free(self, node: NodeView) -> int:
        """How many places of a node are free now."""
        if self.whole_nodes and node.free < node.processors:
            return 0
        return self._places(node, node.free, node.free_memory_mb, {name: free for name, _, free in node.gres})

    def _places(self, node: NodeView, processors: int, memory_mb: int, gres: dict[str, int]) -> int:
        if not self.allows(node) or any(gres.get(name, 0) < count for name, count in self.gres):
            return 0
        found = processors // self.processors
        if self.memory_mb and node.memory_mb:
            found = min(found, memory_mb // self.memory_mb)
        if self.per_node is not None:
            found = min(found, self.per_node) if not self.whole_nodes or found >= self.per_node else 0
        return found

    def at(self, width: int) -> Needs:
        """The same of a rank where there are so many."""
        return replace(self, memory_mb=each_of(self.whole_mb, width)) if self.whole_mb else self

    def room_of_whole(self, nodes: Iterable[NodeView], places: int, width_on: Callable[[int], int], unit: int) -> int:
        """Of so many places (in units) as many as have the memory of all ranks together now, were there no others.

        `width_on`: how many ranks run on so many places.
        """
        free = Counter(
            (replace(self, memory_mb=0).free(node), node.free_memory_mb if node.memory_mb else None) for node in nodes
        )
        for fewer in range(places, 0, -max(1, unit)):
            width = width_on(fewer)
            if width < 1:
                break
            each = each_of(self.whole_mb, width)
            if sum(self._with(each, *of) * count for of, count in free.items()) >= fewer:
                return fewer
        return 0

    def _with(self, each_mb: int, places: int, memory_mb: int | None) -> int:
        """How many of a node's free places its free memory holds (None: not told)."""
        found = places if memory_mb is None else min(places, memory_mb // each_mb)
        return found if found == places or not self.whole_nodes else 0

    def places(self, processors: int) -> int:
        """How many places so many processors are that were given to a subjob."""
        return max(1, processors // self.processors)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, of what is not as for most jobs; :meth:`from_json` is its inverse."""
        said = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != getattr(_PLAIN, name)}
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in said.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Needs:
        if not data:
            return PLAIN
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        found |= {name: frozenset(found[name]) for name in ("only", "never") if name in found}
        if "gres" in found:
            found["gres"] = tuple((str(name), int(count)) for name, count in found["gres"])
        return cls(**found)


_PLAIN = Needs()
PLAIN = _PLAIN


def seen_by(view: ClusterView, needs: Needs) -> ClusterView:
    """The cluster as a job with these needs sees it: its numbers of processors are numbers of places.

    Others' jobs count as many places as their processors would make, more rather than less while they wait, less rather
    than more when they end.
    """
    if needs.plain:
        return view
    each = needs.processors
    nodes = tuple(
        replace(node, processors=needs.most(node), free=needs.free(node), usable=node.usable and needs.allows(node))
        for node in view.nodes
    )
    queues = tuple(
        replace(
            one,
            processor_quantum=quantum(view, one, needs),
            total_processors=sum(node.processors for node in nodes if one.name in node.queues),
        )
        for one in view.queues
    )
    return replace(view, nodes=nodes, queues=queues, jobs=tuple(_in_places(view.jobs, each)))


def _in_places(jobs: Iterable[BatchJobView], each: int) -> Iterable[BatchJobView]:
    for job in jobs:
        if each == 1 or job.state.ended:
            yield job
        else:
            places = job.processors // each if job.state.holds_processors else -(-job.processors // each)
            yield replace(job, processors=places)


def quantum(view: ClusterView, queue: QueueView, needs: Needs) -> int:
    """A queue's, in places: whole nodes where they are given out whole, else as many as a core has."""
    if needs.plain:
        return queue.processor_quantum
    widest = max((node.processors for node in view.nodes if queue.name in node.queues), default=1)
    if needs.whole_nodes or queue.processor_quantum >= widest > 1:
        return max(1, needs.per_node or widest // needs.processors)
    return max(1, queue.processor_quantum // needs.processors)


_FEATURE = re.compile(r"[A-Za-z0-9_.=-]+", re.ASCII)


def features_of(expression: str) -> tuple[tuple[str, ...], bool] | None:
    """The features of a `--constraint` and whether a node needs all of them; None: it says more than that."""
    text = expression.strip()
    if "&" in text and "|" in text:
        return None
    words = re.split(r"[&|]", text)
    if not all(_FEATURE.fullmatch(word) for word in words):
        return None
    return tuple(words), "|" not in text
