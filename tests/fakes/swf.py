"""A workload log from its lines, by way of a file, as the simulator reads it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ejbd.sim.swf import SwfLog, read_swf


def log_of(lines: Iterable[str], *, limit: int | None = None) -> SwfLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        path.write_text("".join(line.rstrip("\n") + "\n" for line in lines), encoding="utf-8")
        return read_swf(path, limit=limit)
