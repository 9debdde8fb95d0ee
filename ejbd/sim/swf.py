"""The Standard Workload Format, version 2.2: logs of parallel machines, one job a line, 18 fields.

Nothing is dropped or mended in silence: whatever is wrong with a row is told with the number of its line.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, cast

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.world import FloatArray

FIELDS = (
    "job", "submit_s", "wait_s", "run_s", "processors", "cpu_s", "memory_kb", "requested_processors", "requested_s",
    "requested_memory_kb", "status", "user", "group", "application", "queue", "partition", "preceding_job",
    "think_time_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowFault:
    """Something odd about one row. `kept`: the row is in the log all the same."""

    line: int
    what: str
    kept: bool

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" + ("" if self.kept else "; the row is left out")


@dataclass(frozen=True, slots=True)
class SwfLog:
    """A log: its header as (name, value) in order, a row for each job with all 18 fields, and what was odd.

    `rows` is an array of n by 18 numbers; -1 is not known. `lines` has the line number of each row.
    """

    rows: FloatArray
    header: tuple[tuple[str, str], ...] = ()
    faults: tuple[RowFault, ...] = ()
    lines: tuple[int, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def column(self, name: str) -> FloatArray:
        """One field of all rows, by its name in FIELDS."""
        return self.rows[:, FIELDS.index(name)]

    def value(self, name: str) -> str | None:
        """The first header line of that name."""
        return next((value for key, value in self.header if key.lower() == name.lower()), None)


def _open(path: Path, mode: str) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, mode + "t", encoding="utf-8", errors="replace"))
    if path.suffix == ".xz":
        return cast(TextIO, lzma.open(path, mode + "t", encoding="utf-8", errors="replace"))
    return cast(TextIO, path.open(mode, encoding="utf-8", errors="replace"))


def read_swf(path: Path, *, limit: int | None = None) -> SwfLog:
    """Read a log, plain, .gz or .xz; `limit` rows at most. Raises EjbError where the file cannot be read at all."""
    try:
        with _open(path, "r") as lines:
            log = parse_swf(lines, limit=limit)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read as a workload log: {error}") from error
    if not len(log):
        raise EjbError(
            Code.INVALID, f"{path} has no job: a workload log has one job of 18 numbers a line, comments begin with ';'"
        )
    return log


def parse_swf(lines: Iterable[str], *, limit: int | None = None) -> SwfLog:
    """A log from its lines."""
    rows: list[list[float]] = []
    numbers: list[int] = []
    header: list[tuple[str, str]] = []
    faults: list[RowFault] = []
    latest = -np.inf
    for number, line in enumerate(lines, 1):
        if limit is not None and len(rows) >= limit:
            break
        text = line.strip()
        if not text:
            continue
        if text.startswith(";"):
            name, colon, value = text.lstrip("; ").partition(":")
            if colon and not rows:
                header.append((name.strip(), value.strip()))
            continue
        row = _parse_row(text, number, faults)
        if row is None:
            continue
        if row[1] < 0:
            faults.append(RowFault(number, f"job {row[0]:.0f} has a negative submit time ({row[1]:g})", True))
        elif row[1] < latest:
            faults.append(RowFault(number, f"job {row[0]:.0f} was submitted before the row above it", True))
        latest = max(latest, row[1])
        rows.append(row)
        numbers.append(number)
    array = np.array(rows, dtype=np.float64).reshape(len(rows), len(FIELDS))
    return SwfLog(array, tuple(header), tuple(faults), tuple(numbers))


def _parse_row(text: str, number: int, faults: list[RowFault]) -> list[float] | None:
    words = text.split()
    try:
        row = [float(word) for word in words]
    except ValueError:
        faults.append(RowFault(number, f"not 18 numbers: {text[:60]!r}", False))
        return None
    if len(row) < 5:
        faults.append(RowFault(number, f"torn after {len(row)} of 18 fields", False))
        return None
    if not all(np.isfinite(row)):
        faults.append(RowFault(number, "a field is not a finite number", False))
        return None
    if len(row) != len(FIELDS):
        more = len(row) - len(FIELDS)
        what = f"{len(row)} fields instead of 18: " + ("the rest is left out" if more > 0 else "the rest is not known")
        faults.append(RowFault(number, what, True))
        row = row[: len(FIELDS)] + [-1.0] * -more
    return row


def write_swf(path: Path, log: SwfLog) -> None:
    """Write a log, compressed as the name says (.gz, .xz)."""
    with _open(path, "w") as out:
        out.writelines(format_swf(log))


def format_swf(log: SwfLog) -> Iterator[str]:
    """The lines of a log."""
    for name, value in log.header:
        yield f"; {name}: {value}\n"
    for row in log.rows.tolist():
        yield " ".join(f"{int(value)}" if value == int(value) else repr(value) for value in row) + "\n"
