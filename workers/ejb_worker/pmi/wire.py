"""The text protocol: one line a message, `cmd=NAME key=value ...`; a put's value is the rest of its line."""

from __future__ import annotations

from typing import Dict, List

LONGEST_LINE = 4096
"""Bytes. A rank's longest message is a put: a key and a value of the lengths that `cmd=maxes` gives it."""

KVSNAME_MAX = 256
KEYLEN_MAX = 64
VALLEN_MAX = 1024


class WireError(Exception):
    """What came is not PMI-1: one sentence."""


class LineReader:
    """Puts the lines of a stream together, however it was torn."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> List[str]:
        """The lines that `data` completes. Raises WireError for a line that no rank would send."""
        parts = (self._held + data).split(b"\n")
        self._held = parts.pop()
        if len(self._held) > LONGEST_LINE or any(len(part) > LONGEST_LINE for part in parts):
            raise WireError("a line of more than %d bytes" % LONGEST_LINE)
        try:
            return [part.decode("ascii") for part in parts]
        except UnicodeDecodeError:
            raise WireError("a line that is not ASCII") from None


def parse(line: str) -> Dict[str, str]:
    """The words of a message. Raises WireError if it names no command."""
    words: Dict[str, str] = {}
    head, found, value = line.partition(" value=")
    if found:
        words["value"] = value.rstrip(" ")  # ranks end some of their lines with a blank
    for word in head.split():
        name, equals, text = word.partition("=")
        if not equals:
            raise WireError("a word without a value: %.40s" % word)
        words[name] = text
    if "cmd" not in words and "mcmd" not in words:
        raise WireError("a line without a command: %.40s" % line)
    return words


def message(cmd: str, *words: str) -> bytes:
    """A line for a rank."""
    return (" ".join(("cmd=" + cmd, *words)) + "\n").encode("ascii")
