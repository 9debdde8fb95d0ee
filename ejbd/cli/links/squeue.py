"""`squeue` of EJB's jobs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ejbd.cli.links import documents, options, real, states
from ejbd.cli.links.batchrows import Answer, ask_squeue, ask_squeue_headings, with_slurms
from ejbd.cli.links.fields import BY_LETTER, BY_NAME, NONE, squeue_value
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Details, Row, apart, listed, named, rows_of
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.wire.visible import visible

ENDED_SHOWN = 1000  # jobs that have ended, the latest; Slurm forgets them after some minutes
_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_ALL = "|".join(
    f"%{letter}" for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter in BY_LETTER
)
_TOKEN = re.compile(r"(?P<right>\.?)(?P<width>[0-9]*)(?P<letter>.)(?P<suffix>.*)", re.DOTALL)
_LONG_TOKEN = re.compile(r"(?P<name>[^:]*)(?::(?P<right>\.?)(?P<width>[0-9]*)(?P<suffix>.*))?", re.DOTALL)
_KNOWN = Known(
    valued={
        "-o": "format", "--format": "format", "-O": "fields", "--Format": "fields", "-t": "states",
        "--states": "states", "-u": "user", "--user": "user", "--users": "user", "-p": "queue",
        "--partition": "queue", "--partitions": "queue", "-n": "name", "--name": "name", "-j": "jobs",
        "--jobs": "jobs", "-M": "clusters", "--clusters": "clusters", "--cluster": "clusters", "-S": "sort",
        "--sort": "sort", "-A": "account", "--account": "account", "--accounts": "account", "-U": "account",
        "-q": "qos", "--qos": "qos", "-w": "nodes", "--nodelist": "nodes", "--node": "nodes", "--nodes": "nodes",
        "-L": "licenses", "--licenses": "licenses", "-R": "reservation", "--reservation": "reservation",
        "-i": "iterate", "--iterate": "iterate",
    },
    flags={
        "-h": "bare", "--noheader": "bare", "-l": "long", "--long": "long", "--start": "start", "--json": "json",
        "--yaml": "yaml", "--me": "me", "-r": "apart", "--array": "apart", "--array-unique": "apart", "-a": "all",
        "--all": "all", "--hide": "all", "-P": "priority", "--priority": "priority", "--noconvert": "exact",
        "--local": "local", "--federation": "local", "--sibling": "local", "--sib": "local", "-v": "verbose",
        "--verbose": "verbose", "-V": "version", "--version": "version", "--help": "help", "--usage": "help",
    },
)  # fmt: skip
_BY_VARIABLE = {
    "SQUEUE_ACCOUNT": "--account", "SQUEUE_ARRAY": "--array", "SQUEUE_LICENSES": "--licenses",
    "SQUEUE_NAMES": "--name", "SQUEUE_PARTITION": "--partition", "SQUEUE_QOS": "--qos", "SQUEUE_SORT": "--sort",
    "SQUEUE_STATES": "--states", "SQUEUE_USERS": "--user",
}  # fmt: skip
_SLURMS_FILTERS = {"account": "account", "qos": "qos", "licenses": "licenses", "reservation": "reservation"}


class Column(NamedTuple):
    """A field of the line that is printed.

    `key`: as Slurm is asked for it. `name`: in small letters, "" where this version of Slurm has no such field.
    """

    key: str
    name: str
    width: int
    right: bool
    suffix: str


class Layout(NamedTuple):
    """What a line consists of. `long`: it was given by `--Format`; `standard`: it is one of Slurm's own."""

    prefix: str
    columns: list[Column]
    long: bool
    standard: bool = False


def run(words: Sequence[str]) -> int:
    """Print the lines; the exit code. Raises EjbError for an option that it does not know."""
    if any(word == "--steps" or word.startswith(("-s", "--steps=")) for word in words):
        return _steps(words)
    line = options.read(_KNOWN, options.with_variables(_KNOWN, _BY_VARIABLE, words), "squeue")
    if line.has("version") or line.has("help"):
        return real.ask("squeue", words) or 0
    if line.has("long") and line.value("format") is not None:
        raise EjbError(
            Code.INVALID, "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry"
        )
    if line.value("format") is not None and line.value("fields") is not None:
        raise EjbError(Code.INVALID, "-O (--Format) is incompatible with -o (--format)")
    every_s = line.value("iterate")
    if every_s is None:
        return _once(line, words)
    if not every_s.isdigit() or not int(every_s):
        raise EjbError(Code.INVALID, f"{every_s!r} is no number of seconds", where="--iterate")
    while True:
        _once(line, words)
        print(flush=True)
        time.sleep(int(every_s))


def _once(line: options.Line, words: Sequence[str]) -> int:
    daemon = Client()
    wanted = states.LIVING if not line.has("states") else states.read(line.values("states"), "--states")
    sought, others, elements = _rows(line, daemon, wanted)
    layout, sort = _layout(line), _sort_keys(line)
    asked = [column.key for column in layout.columns]
    by_name = [BY_LETTER[letter].name if layout.long else letter for letter, _ in sort if letter in BY_LETTER]
    rows, answer = select_rows(
        line, sought, Details(daemon), elements, wanted, asked=[*asked, *by_name], long=layout.long
    )
    if not (answer.headings or layout.standard or line.has("bare")):
        answer = ask_squeue_headings(asked, long=layout.long)
    layout = _keep_known_names(layout, answer)
    if line.has("apart"):
        rows = [one for row in rows for one in apart(row)]
    if line.has("start"):
        rows = sorted((row for row in rows if row.state == "PENDING"), key=lambda row: row.job["rigid_start_s"] or 9e99)
    if line.has("json") or line.has("yaml"):
        documents.print_jobs("squeue", rows, ["--all", "--states=all"], yaml=line.has("yaml"))
        return 0
    several = len(line.values("jobs")) > 1
    if others and not sought and not several:
        known = real.ask("squeue", words)
        if known is None:
            print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1 if known is None else known
    if line.has("clusters") and answer.complaints and not answer.rows:
        print(answer.complaints, file=sys.stderr, end="")
        return 1
    print(answer.complaints if answer.headings else _complaints(layout), file=sys.stderr, end="")
    if not line.has("bare"):
        if answer.cluster:
            print(answer.cluster)
        if line.has("long") or line.has("iterate"):
            print(time.strftime("%a %b %e %H:%M:%S %Y"))
        print(_printed(layout, lambda column: _heading(column, answer)))
    for row in _sorted(rows, sort):
        print(_printed(layout, lambda column, row=row: squeue_value(row, column.name)))  # type: ignore[misc]
    if others:
        bare = options.without(_KNOWN, words, "jobs")
        _print_others("squeue", [*bare, "--noheader", "--jobs", ",".join(others)], several)
    return 0


def select_rows(
    line: options.Line,
    sought: Sequence[Row],
    details: Details,
    elements: Mapping[str, set[int] | None],
    wanted: frozenset[str] | None,
    *,
    asked: Sequence[str] = (),
    long: bool = False,
) -> tuple[list[Row], Answer]:
    """Of these rows those in the states that are wanted (None: all) and of what a line asks for; and Slurm's answer.

    Of a job that is passed through the state is Slurm's. `asked`: further fields, letters or (`long`) names.
    """
    said = [word for word, name in (("--noconvert", "exact"), ("--array", "apart")) if line.has(name)]
    said += [f"--clusters={line.value('clusters')}"] if line.has("clusters") else []
    for name, option in _SLURMS_FILTERS.items():
        if (value := line.value(name)) is not None:
            said.append(f"--{option}={value}")
    answer = ask_squeue(sought, asked, said, long=long)
    merged = with_slurms(sought, answer, details, elements)
    return [row for row in merged if (wanted is None or row.state in wanted) and _fits(row, line)], answer


def _rows(
    line: options.Line, daemon: Client, wanted: frozenset[str] | None
) -> tuple[list[Row], list[str], dict[str, set[int] | None]]:
    """EJB's rows that may be in these states, what else was named, and which elements were."""
    if line.has("jobs"):
        found = named(daemon, line.values("jobs"))
        return found.rows, found.others, found.elements
    ended = None if wanted is not None and wanted <= states.LIVING else ENDED_SHOWN
    return [row for job in listed(daemon, ended, line) for row in rows_of(daemon, job)], [], {}


def _fits(row: Row, line: options.Line) -> bool:
    """Whether it runs on one of the nodes, and is of the name, account, ... that are asked for, as Slurm tells."""
    if line.has("name") and row.name not in line.values("name"):
        return False
    if line.has("wckey") and row.slurm.get("wckey", "").removeprefix("*") != line.value("wckey"):
        return False
    if any(line.has(name) for name in _SLURMS_FILTERS) and not row.slurm:
        return False
    if (nodes := line.value("nodes")) is None:
        return True
    try:
        from ejbd.wire.hostlists import unfold  # it takes as long to load as all the rest

        has = unfold(row.slurm["nodelist"]) if row.theirs else row.job["nodes"]
        return bool(set(has) & set(unfold(nodes)))
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="--nodelist") from None


# -- what a line looks like -------------------------------------------------------------------------------------------


def _layout(line: options.Line) -> Layout:
    """By options, else by the environment, else Slurm's own."""
    format, fields = line.value("format"), line.value("fields")
    if format is None and fields is None and not line.has("long") and not line.has("start"):
        format = os.environ.get("SQUEUE_FORMAT") or None
        fields = (os.environ.get("SQUEUE_FORMAT2") or None) if format is None else None
    if fields is not None:
        return Layout("", [_long_column(token) for token in fields.split(",") if token], True)
    standard = format is None
    format = format or (_LONG if line.has("long") else _START if line.has("start") else _FORMAT)
    prefix, *tokens = (_ALL if format.lower() == "%all" else format).split("%")
    return Layout(prefix, [_column(token) for token in tokens if token], False, standard)


def _keep_known_names(layout: Layout, answer: Answer) -> Layout:
    """With those names of `--Format` alone that the site's Slurm has: that puts a heading above these."""

    def is_known(column: Column) -> bool:
        return bool(answer.headings[column.key]) if column.key in answer.headings else column.name in BY_NAME

    if not layout.long:
        return layout
    return layout._replace(columns=[one if is_known(one) else one._replace(name="") for one in layout.columns])


def _column(token: str) -> Column:
    match = _TOKEN.fullmatch(token)
    if match is None:
        return Column("", "", 0, False, "")
    field = BY_LETTER.get(match["letter"])
    if field is None:  # Slurm prints it as it stands
        return Column(match["letter"], "", 0, False, f"%{token}")
    return Column(match["letter"], field.name.lower(), int(match["width"] or 0), bool(match["right"]), match["suffix"])


def _long_column(token: str) -> Column:
    match = _LONG_TOKEN.fullmatch(token)
    assert match is not None
    width = 20 if match["right"] is None else int(match["width"] or 0)
    return Column(match["name"], match["name"].lower(), width, bool(match["right"]), match["suffix"] or "")


def _heading(column: Column, answer: Answer) -> str:
    told = answer.headings.get(column.key)
    if told is not None and column.name:
        return told
    field = BY_NAME.get(column.name)
    return field.heading if field is not None else ""


def _complaints(layout: Layout) -> str:
    """As Slurm's squeue says it, where that is not there to say it."""
    unknown = [column.key for column in layout.columns if not column.name and column.key]
    return "".join(f"squeue: error: Invalid job format specification: {key}\n" for key in unknown)


def _printed(layout: Layout, value: Callable[[Column], str]) -> str:
    def one(column: Column) -> str:
        text = visible(value(column)) if column.name else ""
        if column.width and column.name:
            cut = text[: column.width]
            text = cut.rjust(column.width) if column.right else cut.ljust(column.width)
        return text + column.suffix

    return layout.prefix + "".join(one(column) for column in layout.columns)


# -- in which order ---------------------------------------------------------------------------------------------------


def _sort_keys(line: options.Line) -> list[tuple[str, bool]]:
    """(letter, descending) of `--sort`."""
    text = (line.value("sort") or "").replace(",", "")
    return [(letter, sign == "-") for sign, letter in re.findall(r"([+-]?)([a-zA-Z])", text)]


def _sorted(rows: Iterable[Row], keys: Sequence[tuple[str, bool]]) -> list[Row]:
    found = list(rows)
    keys = keys or [("P", False), ("t", False), ("p", True)]
    for letter, descending in reversed(keys):
        if (field := BY_LETTER.get(letter)) is not None:
            name = field.name.lower()
            found.sort(key=lambda row, name=name: _rank(row, name), reverse=descending)  # type: ignore[misc]
    return found


def _rank(row: Row, name: str) -> tuple[Any, ...]:
    """By number or time where it is one, else as text, states, too."""
    text = squeue_value(row, name)
    if name in ("jobarrayid", "jobid"):
        return tuple(int(part) for part in re.findall("[0-9]+", text))
    days, _, clock = text.rpartition("-")
    if re.fullmatch(r"(?:[0-9]+-)?[0-9]+(?::[0-9]{2})+", text):
        return (0, (int(days or 0), sum(int(part) * 60**at for at, part in enumerate(reversed(clock.split(":"))))), "")
    try:
        return (0, (0, float(text)), "")
    except ValueError:
        return (1, (0, 0.0), "" if text == NONE else text)


# -- what is Slurm's alone --------------------------------------------------------------------------------------------


def _print_others(name: str, words: Sequence[str], several: bool) -> None:
    """The rows of jobs that are none of EJB's. Of `several` Slurm's squeue leaves out those that it does not know."""
    sys.stdout.flush()
    done = real.query(name, words)
    if done is not None:
        print(done.stdout, end="")
        if not (several and "Invalid job id" in done.stderr):
            print(done.stderr, end="", file=sys.stderr)


def _steps(words: Sequence[str]) -> int:
    known = real.ask("squeue", words)
    if known is None:
        raise EjbError(Code.UNSUPPORTED, "there is no squeue of the site's on the PATH, which alone lists steps")
    return known
