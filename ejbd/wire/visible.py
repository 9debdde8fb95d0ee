"""Text of users and sites as it is shown: nothing in it steers a terminal, hides, or turns what stands beside it."""

from __future__ import annotations


def visible(text: str, keep: str = "") -> str:
    """Control, bidirectional and invisible characters as their escapes (`\\u202e`, `\\n`), but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
