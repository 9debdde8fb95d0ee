"""`sacct` of EJB's jobs: by the daemon's own records, so that a site needs no accounts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from ejbd.cli.links import fields, options, real, states
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Row, listed, named, rows_of
from ejbd.cli.submission.moments import parse_moment
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.wire.visible import visible

ENDED_LOOKED_AT = 10_000  # jobs that have ended, the latest
_COLUMN = re.compile(r"(?P<name>[A-Za-z/]+)(?:%(?P<width>-?[0-9]+))?", re.ASCII)
_AGO = re.compile(r"now-([0-9]{1,9})(days?|hours?|minutes?|seconds?|weeks?|)", re.ASCII)
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1, "week": 7 * 86400, "": 1}
_DEFAULT, _BRIEF = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode", "JobID,State,ExitCode"
_KNOWN = Known(
    valued={
        "-j": "jobs", "--jobs": "jobs", "-o": "format", "--format": "format", "-S": "since", "--starttime": "since",
        "-E": "until", "--endtime": "until", "-s": "states", "--state": "states", "-u": "user", "--user": "user",
        "--uid": "user", "--name": "name", "-r": "queue", "--partition": "queue", "--delimiter": "delimiter",
        "-M": "clusters", "--clusters": "clusters", "--units": "units",
    },
    flags={
        "-X": "jobs_alone", "--allocations": "jobs_alone", "-n": "bare", "--noheader": "bare", "-P": "parsable2",
        "--parsable2": "parsable2", "-p": "parsable", "--parsable": "parsable", "-b": "brief", "--brief": "brief",
        "-D": "duplicates", "--duplicates": "duplicates", "-a": "all", "--allusers": "all", "-e": "fields",
        "--helpformat": "fields", "-V": "version", "--version": "version", "-L": "every", "--allclusters": "every",
    },
)  # fmt: skip

# Name -> (width where nothing is said of it, the value). In the order of `--helpformat`.
_FIELDS: dict[str, tuple[int, Callable[[Row], str]]] = {
    "JobID": (12, lambda row: row.id),
    "JobIDRaw": (12, lambda row: row.number),
    "JobName": (10, lambda row: row.job["name"]),
    "Partition": (10, lambda row: row.job["queue"]),
    "Account": (10, lambda row: ""),
    "User": (9, lambda row: row.job["user"]),
    "UID": (6, fields.uid),
    "AllocCPUS": (10, lambda row: fields.processors(row) if row.job["start_s"] is not None else "0"),
    "NCPUS": (10, fields.processors),
    "ReqCPUS": (8, fields.processors),
    "NTasks": (8, fields.processors),
    "NNodes": (8, lambda row: str(len(row.job["nodes"]) or 1)),
    "AllocNodes": (10, lambda row: str(len(row.job["nodes"]))),
    "NodeList": (15, lambda row: fields.nodes(row) or "None assigned"),
    "State": (10, lambda row: states.word_recorded(row.job, row.state)),
    "Reason": (22, fields.reason),
    "ExitCode": (8, fields.exit_code),
    "DerivedExitCode": (15, fields.exit_code),
    "Submit": (19, lambda row: fields.moment(row.job["submit_s"])),
    "Eligible": (19, lambda row: fields.moment(row.job["submit_s"])),
    "Start": (19, lambda row: fields.moment(row.job["start_s"], "Unknown")),
    "End": (19, lambda row: fields.moment(row.job["end_s"], "Unknown")),
    "Elapsed": (10, lambda row: fields.lasting(fields.elapsed_s(row), whole=True)),
    "ElapsedRaw": (10, lambda row: str(fields.elapsed_s(row))),
    "Timelimit": (10, lambda row: fields.limit(row, whole=True)),
    "TimelimitRaw": (12, lambda row: str(round(row.job["walltime_s"] / 60)) if row.job["walltime_s"] else "UNLIMITED"),
}
_BY_NAME = {name.lower(): name for name in _FIELDS}


def run(words: Sequence[str]) -> int:
    """Print the lines; the exit code. Raises EjbError for an option or a field that it does not know."""
    line = options.read(_KNOWN, words, "sacct")
    if line.has("version"):
        return real.ask("sacct", words) or 0
    if line.has("fields"):
        print(" ".join(_FIELDS))
        return 0
    columns = [_column(word) for word in _asked(line)]
    wanted = states.read(line.values("states"), "--state") if line.has("states") else None
    rows, others = _rows(line, Client())
    rows = [row for row in rows if wanted is None or row.state in wanted]
    if others and not rows:
        return real.ask("sacct", words) or 0  # a site without accounts knows nothing of them, either
    divided = "|" if line.value("delimiter") is None else str(line.value("delimiter"))
    if not (line.has("parsable") or line.has("parsable2")):
        divided = ""
    behind = line.has("parsable")
    if not line.has("bare"):
        print(_line([(name, width) for name, width in columns], divided, behind))
        if not divided:
            print(" ".join("-" * abs(width) for _, width in columns))
    for row in rows:
        values = [(visible(_FIELDS[name][1](row)), width) for name, width in columns]
        print(_line(values, divided, behind))
    if others:
        real.ask("sacct", [*options.without(_KNOWN, words, "jobs"), "--noheader", "--jobs", ",".join(others)])
    return 0


def _asked(line: options.Line) -> list[str]:
    said = line.value("format") or (_BRIEF if line.has("brief") else _DEFAULT)
    return [word for word in said.split(",") if word]


def _column(word: str) -> tuple[str, int]:
    """The field that a word names, and how wide it is; to the left where that is negative."""
    match = _COLUMN.fullmatch(word.strip())
    name = _BY_NAME.get(match["name"].lower()) if match else None
    if match is None or name is None:
        told = f"{word!r} is no field that EJB tells"
        raise EjbError(Code.INVALID, told, where="--format", hint=" ".join(_FIELDS))
    return name, int(match["width"] or _FIELDS[name][0])


def _line(values: Sequence[tuple[str, int]], divided: str, behind: bool) -> str:
    if divided:
        return divided.join(text for text, _ in values) + (divided if behind else "")
    return " ".join(_padded(text, width) for text, width in values)


def _padded(text: str, width: int) -> str:
    room = abs(width)
    if len(text) > room:
        return text[: room - 1] + "+"
    return text.ljust(room) if width < 0 else text.rjust(room)


def _rows(line: options.Line, daemon: Client) -> tuple[list[Row], list[str]]:
    """EJB's rows, and what else was named. Without a time it is all of a named job, and what has been today."""
    names, since_s, until_s = line.values("jobs"), _moment(line.value("since")), _moment(line.value("until"))
    if names:
        found = named(daemon, names)
        rows, others = found.rows, found.others
    else:
        if since_s is None:
            since_s = _moment("00:00")
        jobs = listed(daemon, ENDED_LOOKED_AT, line, all_users=line.has("all"))
        rows = [row for job in jobs if _within(job["submit_s"], job["end_s"], since_s, until_s)
                for row in rows_of(daemon, job)]  # fmt: skip
        others = []
    kept = [row for row in rows if _within(row.job["submit_s"], row.job["end_s"], since_s, until_s)]
    return sorted(kept, key=lambda row: row.job["submit_s"]), others


def _within(submit_s: float, end_s: float | None, since_s: float | None, until_s: float | None) -> bool:
    """Whether a job was there in between."""
    return (since_s is None or end_s is None or end_s >= since_s) and (until_s is None or submit_s <= until_s)


def _moment(text: str | None) -> float | None:
    """As sacct takes times: what lies in the past, and a bare time of day is today's."""
    if text is None:
        return None
    now_s = time.time()
    word = text.strip().lower()
    if (ago := _AGO.fullmatch(word)) is not None:
        return now_s - int(ago[1]) * _SECONDS[ago[2].removesuffix("s")]
    if word in ("today", "midnight"):
        word = "00:00"
    found = parse_moment(word.upper() if "t" in word and word[0].isdigit() else word, now_s)
    return found - 86400 if re.fullmatch(r"[0-9:]+", word) and found > now_s else found
