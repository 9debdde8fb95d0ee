"""The Standard Workload Format, version 2.2: logs of parallel machines, one job a line, 18 fields.

Nothing is dropped or mended in silence: whatever is wrong with a row is told with the number of its line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TextIO, cast

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.swf_block import COLUMNS, Block, parse_block
from ejbd.sim.world import FloatArray, IntArray

FIELDS = (
    "job", "submit_s", "wait_s", "run_s", "processors", "cpu_s", "memory_kb", "requested_processors", "requested_s",
    "requested_memory_kb", "status", "user", "group", "application", "queue", "partition", "preceding_job",
    "think_time_s",
)  # fmt: skip
STANDARD = "-"  # a path: standard input or output
SPELLED_OUT = 5  # lines that are told by their numbers
_FIRST_BLOCK, _BLOCK = 1 << 15, 1 << 19  # bytes; the first is small for readers of few rows
_FEWEST = 5  # fields that a row must have


@dataclass(frozen=True, slots=True)
class Oddity:
    """Rows about which the same thing is to be told. `lines`: their lines in the file. `kept`: they are played."""

    what: str
    lines: tuple[int, ...]
    kept: bool = True

    def __str__(self) -> str:
        count = len(self.lines)
        lines = ", ".join(str(line) for line in self.lines[:SPELLED_OUT]) + (", ..." if count > SPELLED_OUT else "")
        rows = f"1 row (line {lines})" if count == 1 else f"{count:,} rows (lines {lines})"
        return f"{rows}: {self.what}" + ("" if self.kept else "; left out")

    def to_json(self) -> dict[str, Any]:
        """The count, and the first lines."""
        first = list(self.lines[:SPELLED_OUT])
        return {"what": self.what, "rows": len(self.lines), "kept": self.kept, "first_lines": first}


@dataclass(frozen=True, slots=True)
class SwfLog:
    """A log: its header as (name, value) in order, a row for each job with all 18 fields, and what was odd.

    `rows` is an array of n by 18 numbers; -1 is not known. `lines` has the line number of each row, where it was read;
    `users` the names of users by their numbers, where these are known.
    """

    rows: FloatArray
    header: tuple[tuple[str, str], ...] = ()
    odd: tuple[Oddity, ...] = ()
    lines: IntArray | None = field(default=None, repr=False)
    users: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def column(self, name: str) -> FloatArray:
        """One field of all rows, by its name in FIELDS."""
        return self.rows[:, FIELDS.index(name)]

    def value(self, name: str) -> str | None:
        """The first header line of that name."""
        return next((value for key, value in self.header if key.lower() == name.lower()), None)

    def oddity(self, what: str, flags: Any, kept: bool = True) -> Oddity | None:
        """Something to be told about the rows that `flags` names; None if it names none."""
        at = np.flatnonzero(flags)
        lines = at + 1 if self.lines is None else self.lines[at]
        return Oddity(what, tuple(lines.tolist()), kept) if at.size else None


def read_swf(path: Path, *, limit: int | None = None) -> SwfLog:
    """Read a log, plain, .gz or .xz; `-` is standard input. Of more than `limit` rows no more is read than these take.

    Raises EjbError where the file cannot be read at all.
    """
    try:
        with _reading(path) as stream:
            log = _read(stream, limit)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read as a workload log: {error}") from error
    if not len(log):
        raise EjbError(
            Code.INVALID, f"{path} has no job: a workload log has one job of 18 numbers a line, comments begin with ';'"
        )
    return log


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed as its name or its beginning says."""
    opened = nullcontext(sys.stdin.buffer) if str(path) == STANDARD else path.open("rb")
    with cast(AbstractContextManager[io.BufferedReader], opened) as raw:
        begin = raw.peek(6)[:6]
        if path.suffix == ".gz" or begin.startswith(b"\x1f\x8b"):
            yield cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif path.suffix == ".xz" or begin == b"\xfd7zXZ\x00":
            yield cast(IO[bytes], lzma.LZMAFile(raw))  # noqa: SIM115  (the file below it is closed)
        else:
            yield raw


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Pieces of whole lines that end with line feeds, a small one first. A lone carriage return ends a line, too."""
    size, rest = _FIRST_BLOCK, b""
    while piece := stream.read(size):
        piece = rest + piece
        whole = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, len(piece) - 1)) + 1
        rest = piece[whole:]
        if whole:
            yield _line_feeds(piece[:whole])
        size = _BLOCK
    if rest:
        yield _line_feeds(rest + b"\n")


def _line_feeds(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def _read(stream: IO[bytes], limit: int | None) -> SwfLog:
    rows: list[Any] = []
    lines: list[Any] = []
    header: list[tuple[str, str]] = []
    told: dict[tuple[str, bool], list[int]] = {}
    before = count = 0
    for data in _blocks(stream):
        if limit is not None and count >= limit:
            break
        if not before:
            data = data.removeprefix(codecs.BOM_UTF8)
        block = parse_block(data)
        found, at = _with_others(block, before, told, header, limit if limit is None else limit - count, bool(count))
        rows.append(found)
        lines.append(at + before + 1)
        count += at.size
        before += block.all_lines
    table = np.concatenate(rows) if rows else np.empty((0, COLUMNS))
    log = SwfLog(table, tuple(header), (), np.concatenate(lines) if lines else np.empty(0, dtype=np.int64))
    submit = log.column("submit_s")
    latest = np.maximum.accumulate(submit)
    odd = [Oddity(what, tuple(at), kept) for (what, kept), at in told.items()]
    late = log.oddity("submitted before a row above; put in order", (submit >= 0) & (submit < latest))
    odd += [late] if late else []
    return replace(log, odd=tuple(sorted(odd, key=lambda oddity: oddity.lines[0])))


def _with_others(
    block: Block,
    before: int,
    told: dict[tuple[str, bool], list[int]],
    header: list[tuple[str, str]],
    limit: int | None,
    begun: bool,
) -> tuple[Any, Any]:
    """The rows of a block and their lines, those with fields too few or too many among them; no more than `limit`.

    Comments before the first row of all are the header; what is no row is told. `begun`: there were rows before.
    """
    more: list[list[float]] = []
    more_at: list[int] = []
    first = int(block.lines[0]) if block.lines.size else block.all_lines
    for line, text in block.others:
        if limit is not None and np.searchsorted(block.lines, line) + len(more) >= limit:
            break
        if text.startswith(";"):
            name, colon, value = text.lstrip("; ").partition(":")
            if colon and not begun and not more and line < first:
                header.append((name.strip(), value.strip()))
            continue
        row, what = _odd_row(text)
        told.setdefault((what, row is not None), []).append(before + line + 1)
        if row is not None:
            more.append(row)
            more_at.append(line)
    rows, lines = block.rows, block.lines
    if more:
        rows, lines = np.concatenate([rows, more]), np.concatenate([lines, more_at])
        order = np.argsort(lines, kind="stable")
        rows, lines = rows[order], lines[order]
    return rows[:limit], lines[:limit]


def _odd_row(text: str) -> tuple[list[float] | None, str]:
    """A line that is not simply 18 numbers: the row that it makes all the same, if any, and what is odd about it."""
    try:
        row = [float(word) for word in text.split()]
    except ValueError:
        return None, "not 18 numbers"
    if len(row) < _FEWEST:
        return None, f"torn: fewer than {_FEWEST} of 18 fields"
    if not all(np.isfinite(row)):
        return None, "a field is not a finite number"
    missing = COLUMNS - len(row)
    if missing > 0:
        return row + [-1.0] * missing, "fewer than 18 fields: the rest is not known"
    return row[:COLUMNS], "more than 18 fields: the rest is not read"


def write_swf(path: Path, log: SwfLog) -> None:
    """Write a log, compressed as the name says (.gz, .xz); `-` is standard output."""
    with _writing(path) as out:
        out.writelines(format_swf(log))


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    if str(path) == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    opened = gzip.open if path.suffix == ".gz" else lzma.open if path.suffix == ".xz" else open
    with cast(TextIO, opened(path, "wt", encoding="utf-8")) as out:
        yield out


def format_swf(log: SwfLog) -> Iterator[str]:
    """The lines of a log."""
    for name, value in log.header:
        yield f"; {name}: {value}\n"
    whole = (np.abs(log.rows) < 2.0**53) & (log.rows == np.trunc(log.rows))
    pattern = " ".join(["%d"] * COLUMNS) + "\n"
    for row, simple in zip(log.rows.tolist(), whole.all(axis=1).tolist(), strict=True):
        if simple:
            yield pattern % tuple(row)
        else:
            yield " ".join(f"{int(value)}" if value == int(value) else repr(value) for value in row) + "\n"
