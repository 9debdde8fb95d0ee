"""The virtual nodes: which job has which processors."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.batch.local.jobs import Shares


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

    def retake(self, shares: Shares) -> None:
        """Processors of a job that runs already; of nodes that a pool had before it has none."""
        for name, taken in shares:
            if name in self.free:
                self.free[name] -= taken

    def give_back(self, shares: Shares) -> None:
        for name, taken in shares:
            if name in self.free:
                self.free[name] += taken
