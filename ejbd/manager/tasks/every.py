"""What is done again and again, by the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)


async def every(period_s: float, what: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, by the event loop's clock, which is never set; never twice at a time."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + period_s
    while True:
        await asyncio.sleep(due_s - loop.time())
        try:
            await what()
        except Exception as error:
            log.error("timer-fault", what=what.__name__, error=repr(error), exc_info=error)
        due_s = max(due_s + period_s, loop.time())  # what was missed is not made up for
