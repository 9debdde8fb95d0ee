"""The virtual nodes: which job has which processors, and how a job wants them to lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

Shares = tuple[tuple[str, int], ...]  # virtual node and how many of its processors


@dataclass(frozen=True, slots=True)
class Layout:
    """How the processors of a job are to lie on the nodes; where nothing is said, anywhere.

    `threads` of them lie together on a node, for each task. `nodes`: on so many (0: on as few as there is room), with
    at most `most_a_node` on each (0: as many as it has). `whole`: on nodes that no other job uses, of which it has all
    processors then. `only`: nodes that it has to have; `never`: nodes that it must not have.
    """

    threads: int = 1
    nodes: int = 0
    most_a_node: int = 0
    whole: bool = False
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**found)

    def to_json(self) -> dict[str, Any]:
        return {} if self == ANYWHERE else asdict(self)

    @property
    def is_anywhere(self) -> bool:
        """Whether any processors will do."""
        return self == ANYWHERE

    def sized(self, processors: int, size: int) -> tuple[int, Self]:
        """The processors that a job of so many holds on nodes of `size`, and the layout by which it does."""
        count = max(self.nodes, len(self.only))
        if not self.whole:
            return max(processors, count * self.threads), self
        each = max(1, min(self.most_a_node or size, size) // self.threads * self.threads)
        count = max(count, -(-processors // each))
        return count * size, replace(self, nodes=count)


ANYWHERE = Layout()


class Nodes:
    """`count` virtual nodes n1, n2, ... of `processors` each, or those of these `names`."""

    def __init__(self, count: int, processors: int, names: Sequence[str] = ()) -> None:
        self.processors = processors
        self.free = dict.fromkeys(names or [f"n{number}" for number in range(1, count + 1)], processors)

    @property
    def all_free(self) -> int:
        return sum(self.free.values())

    @property
    def total(self) -> int:
        return self.processors * len(self.free)

    def copy(self) -> Nodes:
        """The same nodes, to try something on."""
        found = Nodes(0, self.processors, list(self.free))
        found.free.update(self.free)
        return found

    def emptied(self) -> Nodes:
        """The same nodes as they are while no job runs."""
        return Nodes(0, self.processors, list(self.free))

    def take(self, processors: int) -> Shares:
        """Processors for a job, on as few nodes as possible: the emptiest node first, the rest where it fits tightest.

        ValueError where there are not enough.
        """
        if processors > self.all_free:
            raise ValueError(f"{processors} processors are wanted, {self.all_free} are free")
        shares: list[tuple[str, int]] = []
        left = processors
        while left:
            fitting = [name for name, free in self.free.items() if free >= left]
            if fitting:
                name = min(fitting, key=lambda name: self.free[name])
            else:
                name = max(self.free, key=lambda name: self.free[name])
            taken = min(left, self.free[name])
            self.free[name] -= taken
            left -= taken
            shares.append((name, taken))
        return tuple(shares)

    def place(self, processors: int, layout: Layout) -> Shares | None:
        """Processors for a job as it wants them to lie, in the order of the nodes; None where none do now."""
        if processors > self.all_free:
            return None
        shares = self.take(processors) if layout.is_anywhere else self._laid_out(processors, layout)
        if shares is None:
            return None
        if not layout.is_anywhere:
            self.retake(shares)
        order = {name: place for place, name in enumerate(self.free)}
        return tuple(sorted(shares, key=lambda share: order[share[0]]))

    def _laid_out(self, processors: int, layout: Layout) -> Shares | None:
        room = {name: self._room(name, layout) for name in self.free}
        most = max(room.values())
        if not most or any(not room.get(name) for name in layout.only):
            return None
        count = max(layout.nodes, len(layout.only))
        if layout.nodes == 0 and not layout.whole:
            count = max(count, -(-processors // most))
        others = sorted((name for name in room if room[name] and name not in layout.only), key=lambda name: -room[name])
        if count == 1:  # the tightest fit, which breaks no other node
            fitting = [name for name in others if room[name] >= processors or layout.whole]
            others = sorted(fitting, key=self.free.__getitem__)
        chosen = [*layout.only, *others[: count - len(layout.only)]]
        if len(chosen) < count:
            return None
        if layout.whole:
            return tuple((name, self.processors) for name in chosen)
        more = iter(others[count - len(layout.only) :])
        while sum(room[name] for name in chosen) < processors:
            name = next(more, None)
            if name is None or layout.nodes:
                return None
            chosen.append(name)
        shares, left = [], processors
        for place, name in enumerate(chosen):
            taken = min(room[name], left - layout.threads * (len(chosen) - 1 - place))
            shares.append((name, taken))
            left -= taken
        return tuple(shares)

    def _room(self, name: str, layout: Layout) -> int:
        """What a job with this layout may have of a node, in whole tasks."""
        if name in layout.never or (layout.whole and self.free[name] < self.processors):
            return 0
        free = min(self.free[name], layout.most_a_node or self.processors)
        return free // layout.threads * layout.threads

    def retake(self, shares: Shares) -> None:
        """Processors of a job that runs already; of nodes that a pool had before it has none."""
        for name, taken in shares:
            if name in self.free:
                self.free[name] -= taken

    def give_back(self, shares: Shares) -> None:
        for name, taken in shares:
            if name in self.free:
                self.free[name] += taken
