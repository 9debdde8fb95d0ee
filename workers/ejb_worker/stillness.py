"""Ranks that stand still after a restart where they got on before: they were restored, and hang.

A rank is still while its processes use no processor time and write nothing, and all of their threads sleep. For how
long it was so at most, before the checkpoint, is kept beside the checkpoint. A program that waits for minutes now and
then may do so after a restart, too.
"""

from __future__ import annotations

import os
from typing import Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

from .engines.dmtcp_obstacles import family, processes
from .files import read_json, write_json

LOOK_S = 10.0
SHORTEST_S = 60.0
"""A rank that stands still for less is not reported."""
TIMES = 4
"""Nor one that stands still for less than so many times what it did before."""
PREFIX = "stillness-"


class Signs(NamedTuple):
    """Of the life of a rank: processor time of its processes (clock ticks), bytes that it has written to its output.
    `awake`: whether a thread of it runs, waits for a disk, or is stopped.
    """

    ticks: int
    written: int
    awake: bool


class Stillness:
    """For how long each rank of an epoch stands still (seconds). `before`: at most, before the checkpoint that it was
    restarted from; ranks of which nothing is known are missing."""

    def __init__(self, before: Dict[int, float]) -> None:
        self._before = before
        self._last: Dict[int, Signs] = {}
        self._still_s: Dict[int, float] = {}
        self._at_s: Optional[float] = None
        self.longest: Dict[int, float] = dict(before)

    def look(self, now: float, found: Dict[int, Signs]) -> Optional[Tuple[int, float]]:
        """A rank that hangs, and since when (seconds), or None. `now`: of a clock that is never set."""
        # A worker that was stopped itself has not looked: that time is not counted.
        passed_s = 0.0 if self._at_s is None else min(now - self._at_s, 2 * LOOK_S)
        self._at_s = now
        hangs = None
        for rank, signs in sorted(found.items()):
            last = self._last.get(rank)
            self._last[rank] = signs
            if last is None:
                continue
            if signs.awake or signs[:2] != last[:2]:
                self.longest[rank] = max(self.longest.get(rank, 0.0), self._still_s.pop(rank, 0.0))
                continue
            still_s = self._still_s[rank] = self._still_s.get(rank, 0.0) + passed_s
            if rank in self.longest:  # a checkpoint may come in the middle of a long wait
                self.longest[rank] = max(self.longest[rank], still_s)
            before_s = self._before.get(rank)
            if hangs is None and before_s is not None and still_s >= max(SHORTEST_S, TIMES * before_s):
                hangs = (rank, still_s)
        return hangs


def signs_of(ranks: Mapping[int, Tuple[int, Iterable[str]]]) -> Dict[int, Signs]:
    """By rank; of each its process id and the files of its output."""
    known = processes()
    found = {}
    for rank, (root, outputs) in ranks.items():
        ticks, awake = 0, False
        for one in family(root, known):
            used, runs = _of_process(one.pid)
            ticks, awake = ticks + used, awake or runs
        found[rank] = Signs(ticks, sum(map(_size, outputs)), awake)
    return found


def _of_process(pid: int) -> Tuple[int, bool]:
    ticks, awake = 0, False
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
            ticks = sum(int(field) for field in stat.read().rpartition(")")[2].split()[11:15])
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, thread), encoding="ascii", errors="replace") as stat:
                awake = awake or stat.read().rpartition(")")[2].split()[0] not in "SIZ"
    except (OSError, ValueError, IndexError):
        awake = True  # it is just ending
    return ticks, awake


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def keep(folder: str, writer: str, longest: Dict[int, float]) -> None:
    """Write it down beside the checkpoint. Raises OSError."""
    write_json(os.path.join(folder, "%s%s.json" % (PREFIX, writer)), {str(rank): s for rank, s in longest.items()})


def kept(folder: str) -> Dict[int, float]:
    """What all workers have written down; empty where there is nothing, or it cannot be read."""
    found: Dict[int, float] = {}
    try:
        for name in os.listdir(folder):
            if name.startswith(PREFIX) and name.endswith(".json"):
                found.update((int(rank), float(s)) for rank, s in read_json(os.path.join(folder, name)).items())
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
    return found
