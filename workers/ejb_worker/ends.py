"""Ends of ranks, reported in their order, and not before it is sure that the whole job is not being ended."""

from __future__ import annotations

import signal
from typing import Callable, List, Set, Tuple

from . import linux
from .loop import Loop

SIGNAL_HOLD_S = 1.0
"""An end by one of ENDING_CODES may be the batch system ending the whole job: it is reported if the worker outlives it.
"""
ENDING_CODES = frozenset(128 + s for s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL))

KILLED = 128 + signal.SIGKILL


class Ends:
    """`sure`: calls back once an end is sure not to be that of the whole job. `report`: of a rank, its code and whether
    it was killed for its memory.
    """

    def __init__(
        self, *, loop: Loop, sure: Callable[[Callable[[], None]], None], report: Callable[[int, int, bool], None]
    ) -> None:
        self._loop = loop
        self._sure = sure
        self._report = report
        self._untold: List[Tuple[int, int]] = []
        self._held_long_enough: Set[int] = set()
        self._memory_kills = linux.memory_kills()
        self._killed_for_memory: Set[int] = set()

    def was_killed(self, rank: int, code: int) -> None:
        """Notes whether the kernel has ended this rank for its memory."""
        if code == KILLED and linux.memory_kills() > self._memory_kills:
            self._killed_for_memory.add(rank)

    def tell(self, rank: int, code: int) -> None:
        """Report an end, in the order of the ends: the first one is the cause of those of its peers."""
        self._untold.append((rank, code))
        if code in ENDING_CODES:
            self._loop.call_later(SIGNAL_HOLD_S, lambda: self._tell_from(rank))
        else:
            self._sure(lambda: self._tell_from(rank))

    def _tell_from(self, rank: int) -> None:
        """The hold of this rank's end is over: report it if it is the first, and what has waited only for it."""
        self._held_long_enough.add(rank)
        while self._untold and self._untold[0][0] in self._held_long_enough:
            other, code = self._untold.pop(0)
            self._report(other, code, other in self._killed_for_memory)
