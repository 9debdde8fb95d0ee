"""`squeue` of EJB's jobs."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ejbd.cli.links import options, real, states
from ejbd.cli.links.fields import FIELDS
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Row, apart, listed, named, rows_of
from ejbd.cli.output import sentences
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.wire.visible import visible

ENDED_SHOWN = 1000  # jobs that have ended, the latest; Slurm forgets them after some minutes
_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_FIELD = re.compile(r"%(?P<right>\.?)(?P<width>[0-9]*)(?P<letter>[a-zA-Z%])")
_KNOWN = Known(
    valued={
        "-o": "format", "--format": "format", "-t": "states", "--states": "states", "-u": "user", "--user": "user",
        "-p": "queue", "--partition": "queue", "-n": "name", "--name": "name", "-j": "jobs", "--jobs": "jobs",
        "-M": "clusters", "--clusters": "clusters", "-S": "sort", "--sort": "sort",
    },
    flags={
        "-h": "bare", "--noheader": "bare", "-l": "long", "--long": "long", "--start": "start", "--json": "json",
        "--me": "me", "-r": "apart", "--array": "apart", "-a": "all", "--all": "all", "-V": "version",
        "--version": "version",
    },
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    """Print the lines; the exit code. Raises EjbError for an option or a field that it does not know."""
    line = options.read(_KNOWN, words, "squeue")
    if line.has("version"):
        return real.ask("squeue", words) or 0
    wanted = states.LIVING if not line.has("states") else states.read(line.values("states"), "--states")
    rows, others = _rows(line, Client(), wanted)
    if line.has("apart"):
        rows = [one for row in rows for one in apart(row)]
    if line.has("start"):
        rows = sorted((row for row in rows if row.state == "PENDING"), key=lambda row: row.job["rigid_start_s"] or 9e99)
    if line.has("json"):
        print(json.dumps({"errors": [], "jobs": [_document(row) for row in rows]}, indent=2))
        return 0
    format = line.value("format") or (_LONG if line.has("long") else _START if line.has("start") else _FORMAT)
    if others and not rows:
        known = real.ask("squeue", words)
        if known is None:
            print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1 if known is None else known
    if not line.has("bare"):
        if line.has("long") and line.value("format") is None:
            print(time.strftime("%a %b %e %H:%M:%S %Y"))
        print(_line(format, lambda letter: FIELDS[letter][0]))
    for row in rows:
        print(_line(format, lambda letter, row=row: FIELDS[letter][1](row)))  # type: ignore[misc]
    if others:
        real.ask("squeue", [*options.without(_KNOWN, words, "jobs"), "--noheader", "--jobs", ",".join(others)])
    return 0


def _rows(line: options.Line, daemon: Client, wanted: frozenset[str] | None) -> tuple[list[Row], list[str]]:
    """EJB's rows in these states, and what else was named."""
    if line.has("jobs"):
        found = named(daemon, line.values("jobs"))
        return [row for row in found.rows if wanted is None or row.state in wanted], found.others
    ended = None if wanted is not None and wanted <= states.LIVING else ENDED_SHOWN
    rows: Iterable[Row] = (row for job in listed(daemon, ended, line) for row in rows_of(daemon, job))
    return [row for row in rows if wanted is None or row.state in wanted], []


def _line(format: str, value: Callable[[str], str]) -> str:
    def one(match: re.Match[str]) -> str:
        letter = match["letter"]
        if letter == "%":
            return "%"
        if letter not in FIELDS:
            known = " ".join(f"%{letter}" for letter in FIELDS)
            raise EjbError(Code.INVALID, f"%{letter} is no field that EJB tells", where="--format", hint=known)
        text, width = visible(value(letter)), int(match["width"] or 0)
        if not width:
            return text
        return text[:width].rjust(width) if match["right"] else text[:width].ljust(width)

    return sentences(_FIELD.sub(one, format))


def _document(row: Row) -> dict[str, Any]:
    """A job as Slurm 22.05 has it in JSON, as far as EJB knows."""
    job = row.job

    def whole(at_s: float | None) -> int:
        return int(at_s or 0)

    return {
        "job_id": int(row.number) if row.number.isdigit() else 0,
        "array_job_id": int(row.array) if row.index is not None and row.array.isdigit() else 0,
        "array_task_id": int(row.index) if row.index is not None and row.index.isdigit() else None,
        "array_task_string": row.index.strip("[]") if row.index is not None and row.index.startswith("[") else "",
        "name": job["name"],
        "job_state": row.state,
        "state_reason": FIELDS["r"][1](row),
        "user_name": job["user"],
        "user_id": int(FIELDS["U"][1](row)),
        "partition": job["queue"],
        "nodes": FIELDS["N"][1](row),
        "node_count": int(FIELDS["D"][1](row)),
        "cpus": job["processes"],
        "tasks": job["processes"],
        "time_limit": round(job["walltime_s"] / 60) or None,
        "submit_time": whole(job["submit_s"]),
        "start_time": whole(job["start_s"] or job["rigid_start_s"]),
        "end_time": whole(job["end_s"] or job["expected_completion_s"]),
        "exit_code": (job["exit_code"] or 0) << 8,
        "hold": job["held"],
    }
