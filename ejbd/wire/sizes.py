"""Sizes of memory as users write them."""

from __future__ import annotations

import re

SIZE_HINT = "such as 4G, 500M or 2000 (megabytes)"
_SIZE = re.compile(r"(?P<count>[0-9]{1,12})(?P<unit>[kKmMgGtT]?)[bB]?", re.ASCII)
_KILOBYTES = {"k": 1, "": 1024, "m": 1024, "g": 1024**2, "t": 1024**3}


def kilobytes(text: str) -> int | None:
    """A size as sbatch reads it (4G, 500M, 2000: of megabytes; K, M, G, T), in kilobytes of 1024; None: it is none."""
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(match["count"]) * _KILOBYTES[match["unit"].lower()]
