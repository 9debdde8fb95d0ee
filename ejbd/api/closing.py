"""The end of the server, as requests that wait see it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI

T = TypeVar("T")


def closing_event(app: FastAPI) -> asyncio.Event:
    """Set when the server is about to end: long polls and streams then finish early."""
    event: asyncio.Event = app.state.closing
    return event


async def before_closing(app: FastAPI, call: Coroutine[Any, Any, T]) -> T | None:
    """The result of `call`, or None if the server ends first."""
    closing = asyncio.ensure_future(closing_event(app).wait())
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({closing, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        closing.cancel()
        task.cancel()
