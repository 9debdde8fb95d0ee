"""A file of finished jobs, whichever of the formats it is in, line by line."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

from ejbd.accounting import jobcomp, pbs, sacct
from ejbd.accounting.rows import Finished, Oddities, OddLine
from ejbd.errors import Code, EjbError

STANDARD = "-"  # a path: standard input
_LONGEST_LINE = 1 << 20


class Format(StrEnum):
    """What kind of file it is."""

    SACCT = "sacct"
    JOBCOMP = "jobcomp"
    PBS = "pbs"


def read_runs(
    path: Path, odd: Oddities, format: Format | None = None, *, progress: Callable[[int], None] | None = None
) -> Iterator[Finished]:
    """The jobs of a file (plain, .gz or .xz; `-` is standard input) that have run and ended.

    `format` None: by its first line. `progress` is called with how many bytes of the file itself have been read. Raises
    EjbError (INVALID) where it cannot be read, or is nothing of the kind.
    """
    return (run for _, run in numbered_runs(path, odd, format, progress=progress))


def numbered_runs(
    path: Path,
    odd: Oddities,
    format: Format | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    named: bool = True,
) -> Iterator[tuple[int, Finished]]:
    """The same with the numbers of their lines. `named`: jobs have to have names."""
    try:
        with _lines(path) as (lines, raw):
            parse: sacct.Parse | None = None
            number = 0
            for number, line in enumerate(lines, 1):
                if progress is not None and number % 10_000 == 0:
                    progress(raw.tell() if raw.seekable() else 0)
                if line.isspace():
                    continue
                if parse is None:
                    chosen = format or format_of(line)
                    if chosen is None:
                        what = f"the first line of {path} is of no format that is known here"
                        raise EjbError(Code.INVALID, what, hint=_HINT)
                    if chosen is Format.SACCT:
                        parse = sacct.parser(line, named=named)
                        continue
                    parse = jobcomp.parse if chosen is Format.JOBCOMP else pbs.parse
                try:
                    run = parse(line.rstrip("\n")) if len(line) < _LONGEST_LINE else _too_long()
                except OddLine as odd_line:
                    odd.tell(number, str(odd_line))
                    continue
                if run is not None:
                    yield number, run
            if parse is None:
                raise EjbError(Code.INVALID, f"{path} has no line", hint=_HINT)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read: {error}") from error


def _too_long() -> Finished:
    raise OddLine("a line of more than a mebibyte")


_HINT = f"what {sacct.COMMAND} prints, the file of jobcomp/filetxt, or a PBS accounting file"


def format_of(line: str) -> Format | None:
    """Which format a file's first line that is not empty is of; None where none that is known here."""
    if sacct.is_heading(line):
        return Format.SACCT
    if jobcomp.is_jobcomp(line):
        return Format.JOBCOMP
    if pbs.is_pbs(line):
        return Format.PBS
    return None


@contextmanager
def _lines(path: Path) -> Iterator[tuple[IO[str], IO[bytes]]]:
    raw: IO[bytes] = sys.stdin.buffer if str(path) == STANDARD else path.open("rb")
    try:
        beginning = cast(io.BufferedReader, raw).peek(6)[:6]
        packed: IO[bytes] = raw
        if beginning.startswith(b"\x1f\x8b"):
            packed = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif beginning == b"\xfd7zXZ\x00":
            packed = cast(IO[bytes], lzma.LZMAFile(raw))  # noqa: SIM115  (the file below it is closed)
        yield io.TextIOWrapper(packed, encoding="utf-8", errors="replace"), raw
    finally:
        if raw is not sys.stdin.buffer:
            raw.close()
