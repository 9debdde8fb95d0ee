"""Ranks in other places of the node while they run: without a checkpoint, by the affinity of each of their threads.

Threads and children inherit the affinity of the thread that makes them. So all that a rank consists of is looked at
again until a look finds every thread where it belongs: what is started meanwhile is found by the next look.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from . import linux
from .files import replace

LOOKS = 50
"""Before it is given up: a rank that starts processes faster than they are found would be looked at for ever."""


class ResizeError(Exception):
    """One sentence. `cpus`: what was read back of each rank where some were moved already."""

    def __init__(self, message: str, cpus: Optional[Dict[str, List[int]]] = None) -> None:
        super().__init__(message)
        self.cpus = cpus or {}


def wanted(payload: Mapping[str, Any], here: Sequence[int], processors: int) -> Dict[int, List[int]]:
    """The processors that each rank is to have, the first of them its own. Raises ResizeError for what cannot be."""
    found: Dict[int, List[int]] = {}
    for entry in payload["ranks"]:
        rank = int(entry["rank"])
        places = [int(one) for one in entry.get("processors") or [entry["processor"]]]
        if rank not in here:
            raise ResizeError("rank %d does not run on this worker" % rank)
        if not all(0 <= one < processors for one in places):
            raise ResizeError("rank %d cannot have processor %d of %d" % (rank, max(places), processors))
        found[rank] = places
    return found


def members(pid: int, ranks: FrozenSet[int] = frozenset()) -> List[int]:
    """A rank's process and all that it has started: its descendants, and orphans that kept its process group.

    `ranks`: processes that are ranks, and so no orphans.
    """
    mine = (one for one in _children(os.getpid()) if one != pid and one not in ranks)
    orphans = [one for one in mine if linux.process_group(one) == pid]
    found, look = [], [pid, *orphans]
    while look:
        one = look.pop()
        found.append(one)
        look += _children(one)
    return found


def _children(pid: int) -> List[int]:
    """Of all threads of a process; none where it is gone."""
    found: List[int] = []
    for thread in threads(pid):
        try:
            with open("/proc/%d/task/%d/children" % (pid, thread), encoding="ascii") as children:
                found += [int(word) for word in children.read().split()]
        except OSError:
            pass  # it has ended meanwhile
    return found


def threads(pid: int) -> List[int]:
    """Of a process; none where it is gone."""
    try:
        return [int(name) for name in os.listdir("/proc/%d/task" % pid)]
    except OSError:
        return []


def bind(pid: int, cpus: Sequence[int], look: Callable[[int], List[int]] = members) -> int:
    """Bind every thread of a process, and of all that it has started, to these CPUs: how many threads there are.

    Raises ResizeError where they are not all bound after so many looks, or the system refuses.
    """
    target = frozenset(cpus)
    for _ in range(LOOKS):
        count, strayed = 0, 0
        for process in look(pid):
            for thread in threads(process):
                there = _affinity(thread)
                if there is None:
                    continue
                count += 1
                if there != target:
                    strayed += 1
                    _move(thread, target)
        if not strayed:
            return count
    raise ResizeError("process %d starts others faster than they can be bound" % pid)


def read_back(pid: int) -> List[int]:
    """The CPUs that any thread of a process and of what it has started may use."""
    found: FrozenSet[int] = frozenset()
    for process in members(pid):
        for thread in threads(process):
            found |= _affinity(thread) or frozenset()
    return sorted(found)


def _affinity(thread: int) -> Optional[FrozenSet[int]]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return None  # it has ended


def _move(thread: int, cpus: FrozenSet[int]) -> None:
    try:
        os.sched_setaffinity(thread, cpus)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise ResizeError("thread %d cannot be bound: %s" % (thread, error.strerror)) from None


def move(
    pids: Mapping[int, int], places: Mapping[int, Sequence[int]], cpus: Optional[Sequence[int]]
) -> Tuple[Dict[str, List[int]], int]:
    """Bind ranks (by their processes) to processors: what was read back of each, and how many threads there are.

    `cpus`: the CPU of each processor; None where nothing is bound, and then nothing is read back.
    """
    if cpus is None:
        return {str(rank): [] for rank in sorted(places)}, 0
    count = 0
    told: Dict[str, List[int]] = {}
    ranks = frozenset(pids.values())
    for rank in sorted(places):
        to = sorted(cpus[one] for one in places[rank])
        try:
            count += bind(pids[rank], to, lambda pid: members(pid, ranks))
        except ResizeError as error:
            told[str(rank)] = read_back(pids[rank])
            raise ResizeError("rank %d: %s" % (rank, error), told) from None
        told[str(rank)] = to  # as the last look has read it of every thread
    return told, count


def tell(path: str, processor: str) -> None:
    """Write down which processor a rank has, for programs that read it again. Raises OSError."""
    replace(path, (processor + "\n").encode("utf-8"))


def in_order(cpus: Sequence[int], root: str = "/") -> List[int]:
    """CPUs in the order of sockets, cores and threads: neighbours are near each other, so that ranks that are folded
    onto a neighbour stay in their socket. Those of which nothing is known are last, by their numbers."""

    def place(cpu: int) -> Tuple[int, int, int, int]:
        folder = os.path.join(root, "sys/devices/system/cpu/cpu%d/topology" % cpu)
        try:
            return 0, _number(folder, "physical_package_id"), _number(folder, "core_id"), cpu
        except (OSError, ValueError):
            return 1, 0, 0, cpu

    return sorted(cpus, key=place)


def _number(folder: str, name: str) -> int:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return int(file.read())
