"""Spreading ranks over processors, over-subscribed where there are fewer processors than ranks (section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Host:
    """A worker that ranks may be put on: its id and the number of processors that its subjob was given there."""

    worker: str
    processors: int


class Seat(NamedTuple):
    """One rank's place: a worker, by its id, and the index of one of its processors."""

    rank: int
    worker: str
    processor: int


def place_wide(
    size: int, hosts: Sequence[Host], wide: int, *, even: bool = False, dealt: int = 0
) -> tuple[tuple[Seat, ...], dict[int, tuple[int, ...]]]:
    """As :func:`place`, of ranks that want `wide` processors each: every rank's first, and all that it has there.

    A rank has processors of one host only, fewer where that host has no more. `even`: with processors to spare each
    host has some ranks, and not the first ones all. `dealt`: the hosts take so many ranks each in turn, while they have
    places (0: neighbours stay together).
    """
    parts = place(size * wide, _shared_out(size, hosts, wide, max(1, dealt)) if even else hosts)
    seats = tuple(Seat(rank, *parts[rank * wide][1:]) for rank in range(size))
    mine: dict[int, tuple[int, ...]] = {}
    for seat in seats:
        own = parts[seat.rank * wide : (seat.rank + 1) * wide]
        mine[seat.rank] = tuple(sorted({part.processor for part in own if part.worker == seat.worker}))
    if not dealt:
        return seats, mine
    order = _deal([seat.worker for seat in seats], dealt)
    return tuple(Seat(rank, *seats[old][1:]) for rank, old in enumerate(order)), {
        rank: mine[old] for rank, old in enumerate(order)
    }


def _shared_out(size: int, hosts: Sequence[Host], wide: int, dealt: int) -> Sequence[Host]:
    """The hosts with as many processors as their ranks need, `dealt` ranks in turn; as they are where that is all."""
    room = [host.processors // wide for host in hosts]
    if sum(room) < size:
        return hosts
    counts = [0] * len(hosts)
    left = size
    while left:
        for number, most in enumerate(room):
            taken = min(dealt, most - counts[number], left)
            counts[number] += taken
            left -= taken
    return [Host(host.worker, count * wide) for host, count in zip(hosts, counts, strict=True) if count]


def _deal(workers: Sequence[str], dealt: int) -> list[int]:
    """Indices of `workers`: `dealt` of each worker's in turn, until none is left."""
    places: dict[str, list[int]] = {}
    for at, worker in enumerate(workers):
        places.setdefault(worker, []).append(at)
    found: list[int] = []
    while len(found) < len(workers):
        for own in places.values():
            found += own[:dealt]
            del own[:dealt]
    return found


def place(size: int, hosts: Sequence[Host]) -> tuple[Seat, ...]:
    """Put `size` ranks on the processors of `hosts`, in their order.

    Neighbouring ranks stay together, and no processor gets more than ceil(size / processors) ranks: the degree of
    over-subscription of Eq. 2. With processors to spare the first ones are used, one rank each.

    Raises ValueError where there is nothing to place or nowhere to put it.
    """
    processors = [(host.worker, index) for host in hosts for index in range(host.processors)]
    if size < 1 or not processors:
        raise ValueError(f"cannot place {size} ranks on {len(processors)} processors")
    used = min(size, len(processors))
    return tuple(Seat(rank, *processors[rank * used // size]) for rank in range(size))
