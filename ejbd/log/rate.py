"""A line of the log that comes again and again fills no disk: the first few are written, the rest is counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

EACH = 10  # equal lines in
WITHIN_S = 60.0
MOST_KINDS = 1000  # of lines that are remembered


class Rate:
    """How many equal lines are written: EACH in WITHIN_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Any, tuple[float, int]] = {}  # line -> since when, how often
        self._lock = threading.Lock()

    def passes(self, line: Any) -> int | None:
        """None: not now. Otherwise how many of the same were left out before this one."""
        now = self._clock()
        with self._lock:
            since_s, count = self._seen.get(line, (now, 0))
            left_out = 0
            if now - since_s >= WITHIN_S:
                left_out = max(0, count - EACH)
                since_s, count = now, 0
            if line not in self._seen and len(self._seen) >= MOST_KINDS:
                self._seen.clear()
            self._seen[line] = since_s, count + 1
            return left_out if count < EACH else None


class Equal:
    """As a processor of structlog, before there is a time in the line."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        left_out = self._rate.passes(repr(sorted(event.items(), key=lambda item: item[0])))
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            event["equal_lines_left_out"] = left_out
        return event


class EqualRecords(logging.Filter):
    """The same for what libraries say by way of the standard library (asyncio, when no file can be opened any more)."""

    def __init__(self, rate: Rate) -> None:
        super().__init__()
        self._rate = rate

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = self._rate.passes((record.name, record.levelno, record.getMessage()))
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} equal lines left out)", None
        return left_out is not None
