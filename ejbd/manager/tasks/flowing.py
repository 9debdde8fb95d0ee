"""Workflows go on when something has begun or ended, and by the clock while one is open."""

from __future__ import annotations

import asyncio

import structlog

from ejbd.manager.submission.flows import CLOCK_S, Workflows
from ejbd.store.flows import WORKFLOWS_TOPIC
from ejbd.store.transitions import NEW_JOBS_TOPIC

log = structlog.get_logger(__name__)


class Flowing:
    """:meth:`run` goes on until it is cancelled."""

    def __init__(self, workflows: Workflows) -> None:
        self._workflows = workflows
        self._flow = asyncio.Event()  # there may be something to do for a workflow

    def woken(self, topics: frozenset[str]) -> None:
        """There has been a commit."""
        if WORKFLOWS_TOPIC in topics or NEW_JOBS_TOPIC in topics:
            self._flow.set()

    async def run(self) -> None:
        """Go on with workflows when something has begun or ended; while one is open, by the clock, too."""
        try:
            await self._go_on()
        finally:
            self._workflows.close()

    async def _go_on(self) -> None:
        while True:
            self._flow.clear()
            try:
                any_open = await self._workflows.advance()
            except Exception as error:
                any_open = True
                log.error("timer-fault", what="workflows", error=repr(error), exc_info=error)
            timeout = 0 if self._workflows.waiting else CLOCK_S if any_open else None
            try:
                await asyncio.wait_for(self._flow.wait(), timeout)
            except TimeoutError:
                pass
