"""What a batch system's accounting says of finished jobs (`sacct`, jobcomp, PBS), as a log that can be simulated."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from pathlib import Path
from typing import cast

import numpy as np

from ejbd.accounting.reading import Format, format_of, numbered_runs
from ejbd.accounting.rows import Ending, Finished, Oddities
from ejbd.errors import Code, EjbError
from ejbd.sim.swf import FIELDS, STANDARD, Oddity, SwfLog, read_swf

COMMAND = "sacct -a -P -o JobID,User,Submit,Start,End,NNodes,NCPUS,TimelimitRaw,State -S 2024-01-01"
_STATUS = {Ending.COMPLETED: 1, Ending.TIMEOUT: 0, Ending.FAILED: 0, Ending.CANCELLED: 5}
_BEGINNING = 1 << 15  # bytes within which the first line ends that says what a file is
_MOST_NUMBER = 2**53  # that a row can hold


def read_log(path: Path, *, limit: int | None = None) -> SwfLog:
    """Read a workload log (SWF), or what a batch system's accounting printed, whichever the first line is of.

    Plain, .gz or .xz; `-` is standard input. Raises EjbError where the file cannot be read at all.
    """
    format = _format(path)
    return read_swf(path, limit=limit) if format is None else read_accounts(path, format, limit=limit)


def read_accounts(path: Path, format: Format, *, limit: int | None = None) -> SwfLog:
    """Read the jobs that have run and ended, in the order of the file. `limit`: the first ones only.

    What is wrong with a line is told with its number, as with a workload log; so are jobs that have not ended, and
    those that never ran. Users are numbered from 1 in the order in which they come.
    """
    told = _EveryLine()
    users: dict[str, int] = {}
    rows: list[list[float]] = []
    lines: list[int] = []
    for line, run in numbered_runs(path, told, format, named=False):
        if limit is not None and len(rows) >= limit:
            break
        user = users.setdefault(run.user, len(users) + 1)
        rows.append(_row(run, user, len(rows) + 1))
        lines.append(line)
    if not rows:
        why = "; ".join(told.sentences())
        raise EjbError(Code.INVALID, f"{path} has no job that has run and ended" + (f": {why}" if why else ""))
    odd = [Oddity(what, tuple(at), not left_out) for (what, left_out), at in told.found.items()]
    table = np.array(rows, dtype=np.float64)
    submit = table[:, FIELDS.index("submit_s")]
    known = submit[submit >= 0]
    if not known.size:
        raise EjbError(Code.INVALID, f"{path} does not say when jobs were submitted", hint=COMMAND)
    submit[submit >= 0] -= known.min()
    return SwfLog(
        table,
        (("Computer", format.value),),
        tuple(sorted(odd, key=lambda oddity: oddity.lines[0])),
        np.array(lines, dtype=np.int64),
        ("", *users),
    )


class _EveryLine(Oddities):
    """All lines are kept, not only the first few: a simulation counts them."""

    def tell(self, line: int, what: str, left_out: bool = True) -> None:
        self.counts[what, left_out] = self.counts.get((what, left_out), 0) + 1
        self.found.setdefault((what, left_out), []).append(line)


def _row(run: Finished, user: int, index: int) -> list[float]:
    number = int(run.job) if run.job.isdecimal() and int(run.job) < _MOST_NUMBER else index  # an array's task has none
    told = {
        "job": number,
        "submit_s": run.submit_s if run.submit_s is not None else -1.0,
        "wait_s": run.start_s - run.submit_s if run.start_s is not None and run.submit_s is not None else -1.0,
        "run_s": run.run_s,
        "processors": run.processors,
        "requested_processors": run.processors,
        "requested_s": run.requested_s if run.requested_s is not None else -1.0,
        "status": _STATUS[run.ending],
        "user": user,
    }
    return [float(told.get(name, -1.0)) for name in FIELDS]


def _format(path: Path) -> Format | None:
    """By the first line that is not empty. A file that cannot be read is left to its reader."""
    try:
        text = _beginning(path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return None
    return next((format_of(line) for line in text.splitlines() if line.strip()), None)


def _beginning(path: Path) -> str:
    if str(path) == STANDARD:
        seen = cast(io.BufferedReader, sys.stdin.buffer).peek(_BEGINNING)[:_BEGINNING]
        return seen.decode("utf-8", "replace")
    with path.open("rb") as raw:
        magic = raw.peek(6)[:6]
        if magic.startswith(b"\x1f\x8b"):
            found = gzip.GzipFile(fileobj=raw).read(_BEGINNING)
        elif magic.startswith(b"\xfd7zXZ"):
            found = lzma.LZMAFile(raw).read(_BEGINNING)  # noqa: SIM115  (the file below it is closed)
        else:
            found = raw.read(_BEGINNING)
    return found.decode("utf-8", "replace")
