"""A batch system that only the daemon that leads acts on.

A daemon marks an action as begun in the database, and then does it. Between the two it may stand still for longer than
another one waits. Then the other one leads, and what was marked is its own to find out about, and to repeat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from ejbd.batch.base import BatchSystem

ACTS = frozenset({"submit", "cancel", "update", "reduce", "set_aside", "signal"})


class _Fenced:
    def __init__(self, batch: BatchSystem, prove: Callable[[], Awaitable[None]]) -> None:
        self._batch = batch
        self._prove = prove

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._batch, name)
        if name not in ACTS:
            return found

        async def proved(*args: Any, **named: Any) -> Any:
            await self._prove()
            return await found(*args, **named)

        return proved


def fenced(batch: BatchSystem, prove: Callable[[], Awaitable[None]]) -> BatchSystem:
    """The same, but that `prove` is awaited before each action. What it raises is raised in the action's place."""
    return cast(BatchSystem, _Fenced(batch, prove))
