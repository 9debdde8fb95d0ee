"""The stream that the log goes to. A log that cannot be written is no reason for anything else to fail."""

from __future__ import annotations

import os
import threading
from typing import TextIO


class Unbreakable:
    """Lines for `stream`; those that it does not take (its disk is full, its reader gone) are counted and dropped.

    The first line that it takes again is preceded by one that says how many are missing.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = 0
        self._torn = False  # the beginning of a line was taken, and its end not
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """A line, or several. Nothing of it is left over for later."""
        with self._lock:
            before = "\n" if self._torn else ""
            if self._lost:
                before += f"level=warning event=log-lines-lost lines={self._lost}\n"
            if self._put(before + text):
                self._lost, self._torn = 0, False
            else:
                self._lost += 1
        return len(text)

    def _put(self, text: str) -> bool:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # no file at all
            self._stream.write(text)
            return True
        # Not through the stream: what it could not write it would keep, and try again with every line.
        left = text.encode(errors="backslashreplace")
        try:
            while left:
                left = left[os.write(descriptor, left) :]
                self._torn = bool(left)
        except OSError:
            return False
        return True

    def flush(self) -> None:
        """Every line went out as it was written."""

    def isatty(self) -> bool:
        return self._stream.isatty()
