"""A queue in vectors closes up: those that leave it from places in between are gone, the others keep their order.

Kernels for both worlds.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from ejbd.core.kernel import Floats, Ints, kernel

N = TypeVar("N", int, float)


class Vector(Protocol[N]):
    """One thing about each entry of a queue."""

    def __getitem__(self, index: int, /) -> N: ...

    def __setitem__(self, index: int, value: N, /) -> None: ...


@kernel
def vector_closes(vector: Vector[N], places: Ints, gone: int, count: int) -> None:
    """The first `gone` of `places`, which are in order, are taken out of the first `count` entries."""
    kept = places[0]
    for index in range(gone):
        until = places[index + 1] if index + 1 < gone else count
        for at in range(places[index] + 1, until):
            vector[kept] = vector[at]
            kept += 1


@kernel
def queue_closes(queue: Ints, processors: Ints, walltimes: Floats, started: Ints, gone: int, count: int) -> int:
    """How many still wait. `started`, which was the places in the queue of those that leave it, becomes their jobs."""
    vector_closes(processors, started, gone, count)
    vector_closes(walltimes, started, gone, count)
    kept = started[0]
    for index in range(gone):
        until = started[index + 1] if index + 1 < gone else count
        job = queue[started[index]]
        for at in range(started[index] + 1, until):
            queue[kept] = queue[at]
            kept += 1
        started[index] = job  # its place is of no use any more
    return kept
