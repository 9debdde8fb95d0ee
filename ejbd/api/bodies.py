"""How much a request's body may hold, counted while it comes. What takes it apart does so in one go, which nothing
interrupts. The event loop stands still until it is done.
"""

from __future__ import annotations

import re

MOST_VALUES = 400_000  # in one body; they take about a tenth of a second to be taken apart
_OPENERS = re.compile(rb"(?:[\[{]\s*){64}")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPES = re.compile(rb"\\*\Z")


class Values:
    """Counts the values of a JSON text that comes in pieces, by what divides them outside texts."""

    def __init__(self) -> None:
        self.count = 0
        self.nested = False
        self._open = b""  # the text within which the last piece ended, without what it holds

    def feed(self, piece: bytes) -> None:
        """Take the next piece into account; `count` and `nested` then hold for all that has come."""
        outside = _TEXT.sub(b"", self._open + piece)
        before, quote, text = outside.partition(b'"')
        self._open = b""
        if quote:
            escapes = _ESCAPES.search(text)
            self._open = quote + (b"\\" if escapes is not None and len(escapes[0]) % 2 else b"")
        self.count += sum(map(before.count, (b",", b"[", b"{")))
        self.nested = self.nested or _OPENERS.search(before) is not None

    @property
    def too_many(self) -> str:
        """Why the body is refused; "": it is not."""
        if self.nested:
            return "the body holds too many values inside each other"
        return "" if self.count <= MOST_VALUES else f"the body holds more than {MOST_VALUES} values"
