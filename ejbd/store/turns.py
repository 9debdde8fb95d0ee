"""Which user a request is of, and turns by user: one user's many requests wait for each other, and not others for them.

A shared place (a thread, the writer, a check at the batch system) serves what waits in the order of its coming. So each
user has a few there at a time, and that user's further ones wait before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from weakref import WeakValueDictionary

ASKER: ContextVar[str] = ContextVar("asker", default="")
"""The user that a request which is carried out is of. "": the daemon's own work, or an administrator's: no bound."""


class UserTurns:
    """`each` at a time of each user, in the order of their coming."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def take(self, user: str) -> AsyncIterator[None]:
        """While it lasts, one of this user's ("": no turn is needed)."""
        if not user:
            yield
            return
        turn = self._turns.get(user)
        if turn is None:
            turn = self._turns[user] = asyncio.Semaphore(self._each)
        async with turn:
            yield
