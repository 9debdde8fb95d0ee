"""Polls, one at a time, and the time between them: what can wait leaves a poll the processor."""

from __future__ import annotations

import asyncio
import contextlib


class OneAtATime:
    """Entered by each poll for as long as it lasts."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._at_rest.clear()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._at_rest.set()

    async def between(self, most_s: float) -> None:
        """Return while no poll is under way; after `most_s` seconds in any case."""
        if not self._at_rest.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._at_rest.wait(), most_s)
