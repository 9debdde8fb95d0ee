"""What batch systems list is read beside the event loop, which all requests wait for. Of a queue of 20,000 it takes a
third of a second.

It has a thread of its own. Those that others share may all be held up by file systems which do not answer, and polls
have to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_READER = ThreadPoolExecutor(1, thread_name_prefix="listing-reader")


async def beside(read: Callable[[], T]) -> T:
    """What `read` returns, which only computes."""
    return await asyncio.get_running_loop().run_in_executor(_READER, read)
