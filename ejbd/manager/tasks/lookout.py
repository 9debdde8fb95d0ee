"""Polls are made by the timer, and sooner where a worker or the batch system tells of what only a poll makes use of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from ejbd.batch.base import TellsChanges
from ejbd.errors import BatchError
from ejbd.manager.poll.looks import Looks
from ejbd.store.transitions import LEFT_TOPIC, STARTED_TOPIC

log = structlog.get_logger(__name__)

RETRY_S = 1.0
HEARS_S = 1.0  # how often it is seen whether a file was written into
LEAVING_S = 0.5  # from what a worker tells last until the batch system has its processors back


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Lookout:
    """`looks` says when; `poll` makes one."""

    def __init__(self, looks: Looks, poll: Callable[[], Awaitable[None]]) -> None:
        self._looks = looks
        self._poll = poll

    def woken(self, topics: frozenset[str]) -> None:
        """There has been a commit."""
        if STARTED_TOPIC in topics:
            self._looks.ask(asyncio.get_running_loop().time())
        if LEFT_TOPIC in topics:
            self._looks.ask(asyncio.get_running_loop().time(), LEAVING_S, ends=True)

    async def run(self) -> None:
        """Poll by the timer, and sooner where a worker's word makes it worth while."""
        while True:
            await self._looks.wait()
            try:
                await self._poll()
            except Exception as error:
                log.error("timer-fault", what="poll", error=repr(error), exc_info=error)
            self._looks.ended(asyncio.get_running_loop().time())

    async def hear_file(self, path: Path) -> None:
        """Look soon where something was written into this file: J0s that run without workers have no other word."""
        seen = await asyncio.to_thread(_written_ns, path)
        while True:
            await asyncio.sleep(HEARS_S)
            now = await asyncio.to_thread(_written_ns, path)
            if now != seen:
                seen = now
                self._looks.ask(asyncio.get_running_loop().time(), LEAVING_S, ends=True)

    async def hear_changes(self, batch: TellsChanges) -> None:
        """Look at once where the batch system says that something has changed; while it is away the timer is enough."""
        seen = -1
        while True:
            try:
                now = await batch.changed(seen)
            except BatchError:
                await asyncio.sleep(RETRY_S)
                continue
            if now != seen:
                seen = now
                self._looks.told(asyncio.get_running_loop().time())
