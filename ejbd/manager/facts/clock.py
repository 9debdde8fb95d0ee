"""The daemon's time: seconds since the epoch, as on a clock that is never set."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP_S = 2.0  # by which the machine's clock may be off before it counts as set


class SteadyClock:
    """Starts with the machine's own time of day and runs on by a monotonic clock.

    The machine's clock may be set meanwhile: every interval between two readings stays what it was. `drift` is by how
    much the two differ since. `step` sets this one, too, once everything that was noted by it is put right.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset_s = wall() - monotonic()

    def __call__(self) -> float:
        return self._monotonic() + self._offset_s

    def drift(self) -> float:
        """Seconds by which the machine's clock was set forward (backward: negative); 0 for what is no jump."""
        by_s = self._wall() - self()
        return by_s if abs(by_s) >= JUMP_S else 0.0

    def step(self, by_s: float) -> None:
        self._offset_s += by_s
