"""How much a request's body may hold, counted while it comes. What takes it apart does so in one go, which nothing
interrupts. The event loop stands still until it is done.
"""

from __future__ import annotations

import re
from itertools import accumulate

MOST_VALUES = 400_000  # in one body; they take about a tenth of a second to be taken apart
MOST_DEPTH = 64
_PIECE_BYTES = 64 * 1024
# No part of a text is looked at twice (`++`, `*+`): a text that goes on in the next piece ends here, too, and is known
# by its group: a backslash at its end, which belongs to the next piece, or nothing.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|(\\?)\Z)', re.DOTALL)
_STEPS = [0] * 256
for _opener, _closer in (b"[]", b"{}"):
    _STEPS[_opener], _STEPS[_closer] = 1, -1
_NO_BRACKETS = bytes(byte for byte in range(256) if not _STEPS[byte])


class Values:
    """Counts the values of a JSON text that comes in pieces, by what divides them outside texts."""

    def __init__(self) -> None:
        self.count = 0
        self.too_many = ""  # why the body is refused; "": it is not
        self._texts = self._depth = 0
        self._open = b""  # the text within which the last piece ended, without what it holds

    def feed(self, piece: bytes) -> None:
        """Take the next piece into account; `count` and `too_many` then hold for all that has come."""
        for at in range(0, len(piece), _PIECE_BYTES):
            if not self.too_many:
                self.too_many = self._refuse_after(piece[at : at + _PIECE_BYTES])

    def _refuse_after(self, piece: bytes) -> str:
        parts = _TEXT.split(self._open + piece)
        goes_on = parts[-2] if len(parts) > 1 else None
        self._open = b"" if goes_on is None else b'"' + goes_on
        self._texts += len(parts) // 2 - (goes_on is not None)
        outside = b"".join(parts[::2])
        self.count += sum(map(outside.count, (b",", b"[", b"{")))
        if self.count > MOST_VALUES:
            return f"the body holds more than {MOST_VALUES} values"
        if self._texts > 2 * (self.count + 1):  # a name and a value behind each
            return "the body is no JSON text"
        brackets = outside.translate(None, _NO_BRACKETS)
        depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=self._depth))
        self._depth = depths[-1]
        return "the body holds too many values inside each other" if max(depths) > MOST_DEPTH else ""
