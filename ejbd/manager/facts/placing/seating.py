"""Which processors each rank of a launch gets: places of the job, as many of them as the launch asks for a rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ejbd.core.placing import Host, Seat, place_wide
from ejbd.files.userfiles import within
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing.folded import processors_now
from ejbd.manager.facts.placing.mpi import LOOK_S, MOST_LAUNCH_BYTES
from ejbd.manager.hands.files import Reads
from ejbd.store.models import Launch, Worker


@dataclass(frozen=True, slots=True)
class Seating:
    """`seats` name each rank's first processor, `processors` (rank -> its numbers) all. `wide`: so many ranks run at
    full speed at once (Eq. 2)."""

    seats: tuple[Seat, ...]
    processors: dict[int, tuple[int, ...]]
    wide: int


def seated(world: JobWorld, launch: Launch, workers: Sequence[Worker], size: int) -> Seating:
    """Where the ranks of a launch, `size` of them, go on these workers, in their order."""
    each = world.needs.processors
    hosts = [Host(w.id, processors_now(world, w) // each) for w in workers]
    if not any(host.processors for host in hosts):  # narrower than a rank: it makes do with what there is
        hosts = [Host(w.id, 1) for w in workers]
    full = world.job.processes
    asked = _asked(launch, world.ctx.hands.read)
    wide = min(_places_asked(asked, launch, each, full), max(1, full // size))
    places, mine = place_wide(size, hosts, wide, even=bool(asked.get("even")), dealt=int(asked.get("dealt") or 0))
    used = len({(seat.worker, place) for seat in places for place in mine[seat.rank]})
    widths = {w.id: w.processors for w in workers}
    seats = tuple(Seat(seat.rank, seat.worker, seat.processor * each) for seat in places)
    processors = {
        seat.rank: tuple(
            number
            for place in mine[seat.rank]
            for number in range(place * each, min((place + 1) * each, widths[seat.worker]))
        )
        for seat in places
    }
    # A launch of more ranks than the job asked for (of its whole nodes) shares its places at full width, too.
    at_once = used * -(-size // full) if launch.size > full else used // wide
    return Seating(seats, processors, min(size, max(1, at_once)))


def _places_asked(asked: Mapping[str, Any], launch: Launch, each: int, full: int) -> int:
    """Places for each rank: by `srun -c`; with `srun -N` as many as there are for each."""
    return max(1, full // launch.size) if asked.get("spread") else max(1, -(-int(asked.get("threads") or 1) // each))


def _asked(launch: Launch, read: Reads) -> dict[str, Any]:
    """What a launch says of the places of its ranks; nothing where that cannot be read in time."""
    try:
        return within(lambda: _read(Path(launch.file), read), LOOK_S)
    except TimeoutError:
        return {}


def _read(file: Path, read: Reads) -> dict[str, Any]:
    try:
        launch = json.loads(read(file, MOST_LAUNCH_BYTES)[0])
        return {name: int(launch.get(name) or 0) for name in ("threads", "spread", "even", "dealt")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
