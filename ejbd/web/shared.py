"""Answers that many browsers ask for at once are made once: for all that may see the same, and look at the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 20.0  # an answer is good for so many times as long as its making took: it takes a twentieth of a core at most
LEAST_S, MOST_S = 0.2, 2.0  # a page that has heard news waits for 0.2 s, and so sees what they were of
MOST_KEPT = 64


class Shared(Generic[T]):
    """Answers by what was asked. `most_s`: none is older than that; 0: each is made anew."""

    def __init__(self, most_s: float = MOST_S) -> None:
        self.most_s = most_s
        self._made: dict[Hashable, _Answer[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What is asked for. Raises what `make` raises, which nothing else gets."""
        known = self._made.get(key)
        if known is None or known.good_until_s() < time.monotonic():
            if len(self._made) >= MOST_KEPT:
                self._made.clear()
            known = self._made[key] = _Answer(make, self.most_s)
        try:
            return await asyncio.shield(known.task)
        except BaseException:
            if known.task.done() and self._made.get(key) is known:
                del self._made[key]
            raise

    def forget(self) -> None:
        """What follows sees what was changed just now."""
        self._made.clear()


class _Answer(Generic[T]):
    """One that is being made, or was made."""

    def __init__(self, make: Callable[[], Awaitable[T]], most_s: float) -> None:
        self._most_s, self._begun_s, self._took_s = most_s, time.monotonic(), 0.0
        self.task = asyncio.ensure_future(self._timed(make))

    async def _timed(self, make: Callable[[], Awaitable[T]]) -> T:
        try:
            return await make()
        finally:
            self._took_s = time.monotonic() - self._begun_s

    def good_until_s(self) -> float:
        """From its beginning on; while it is being made it is shared in any case, but for `most_s` 0."""
        if not self._most_s:
            return 0.0
        if not self.task.done():
            return self._begun_s + self._most_s
        return self._begun_s + min(self._most_s, max(LEAST_S, SHARE * self._took_s))
