"""`sacct` of EJB's jobs: by the daemon's own records, so that a site needs no accounts, and by the site's, if any."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ejbd.cli.links import documents, fields, options, real, states
from ejbd.cli.links.batchrows import Answer, ask_sacct, ask_sacct_widths, ask_squeue, with_slurms
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Details, Row, listed, named, rows_of
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.options.moments import parse_moment
from ejbd.wire.hostlists import unfold
from ejbd.wire.visible import visible

ENDED_LOOKED_AT = 10_000  # jobs that have ended, the latest
_COLUMN = re.compile(r"(?P<name>[^%]+)(?:%(?P<width>-?[0-9]+))?", re.ASCII)
_AGO = re.compile(r"now-([0-9]{1,9})(days?|hours?|minutes?|seconds?|weeks?|)", re.ASCII)
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1, "week": 7 * 86400, "": 1}
_DEFAULT, _BRIEF = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode", "JobID,State,ExitCode"
_LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,"
    "tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot"
)
_KNOWN = Known(
    valued={
        "-j": "jobs", "--jobs": "jobs", "-o": "format", "--format": "format", "-S": "since", "--starttime": "since",
        "-E": "until", "--endtime": "until", "-s": "states", "--state": "states", "-u": "user", "--user": "user",
        "--uid": "user", "--name": "name", "-r": "queue", "--partition": "queue", "--delimiter": "delimiter",
        "-M": "clusters", "--clusters": "clusters", "--cluster": "clusters", "--units": "units",
        "-A": "account", "--accounts": "account", "--account": "account", "-q": "qos", "--qos": "qos",
        "-g": "group", "--gid": "group", "--group": "group", "-i": "nnodes", "--nnodes": "nnodes",
        "-I": "ncpus", "--ncpus": "ncpus", "-k": "shortest", "--timelimit-min": "shortest", "-K": "longest",
        "--timelimit-max": "longest", "-N": "nodes", "--nodelist": "nodes", "-W": "wckey", "--wckeys": "wckey",
        "-x": "association", "--associations": "association", "-f": "file", "--file": "file",
        "-F": "flags", "--flags": "flags", "-R": "reason", "--reason": "reason",
    },
    flags={
        "-X": "jobs_alone", "--allocations": "jobs_alone", "-n": "bare", "--noheader": "bare", "-P": "parsable2",
        "--parsable2": "parsable2", "-p": "parsable", "--parsable": "parsable", "-b": "brief", "--brief": "brief",
        "-D": "duplicates", "--duplicates": "duplicates", "-a": "all", "--allusers": "all", "-e": "fields",
        "--helpformat": "fields", "-V": "version", "--version": "version", "-L": "every", "--allclusters": "every",
        "-l": "long", "--long": "long", "--noconvert": "exact", "--json": "json", "--yaml": "yaml",
        "-T": "truncate", "--truncate": "truncate", "-v": "verbose", "--verbose": "verbose", "--local": "local",
        "--federation": "local", "--whole-hetjob": "local", "-B": "script", "--batch-script": "script",
        "--env-vars": "script", "-c": "completion", "--completion": "completion", "-h": "help", "--help": "help",
        "--usage": "help",
    },
)  # fmt: skip
_SLURMS_FILTERS = {
    "account": "accounts", "qos": "qos", "group": "gid", "nnodes": "nnodes", "ncpus": "ncpus",
    "shortest": "timelimit-min", "longest": "timelimit-max", "wckey": "wckeys", "association": "associations",
    "flags": "flags", "reason": "reason",
}  # fmt: skip
_SLURMS_ALONE = ("version", "help", "script", "completion", "file")
# What squeue says of a batch job where the site keeps no accounts: squeue's name -> sacct's.
_BY_SQUEUE = {
    "Account": "account", "QOS": "qos", "MinMemory": "reqmem", "PriorityLong": "priority", "tres-alloc": "alloctres",
    "Cluster": "cluster", "Feature": "constraints", "GroupName": "group", "GroupId": "gid", "WCKey": "wckey",
    "Reservation": "reservation", "admin_comment": "admincomment", "system_comment": "systemcomment",
    "MCSLabel": "mcslabel", "EligibleTime": "eligible", "exit_code": "status", "NodeList": "nodelist",
}  # fmt: skip
_OF_STEPS = ("base", "cluster", "account", "reqcpus")  # of a job, and of each of its steps
_STEP = re.compile(r"(?P<whole>[^.]+)\.(?P<step>.+)")


def run(words: Sequence[str]) -> int:
    """Print the lines; the exit code. Raises EjbError for an option or a field that it does not know."""
    line = options.read(_KNOWN, words, "sacct")
    if any(line.has(name) for name in _SLURMS_ALONE):
        return real.ask("sacct", words) or 0
    if line.has("fields"):
        if real.ask("sacct", words) is None:
            names = [f"{name:<19}" for name in fields.SACCT]
            print("\n".join(" ".join(names[at : at + 4]) for at in range(0, len(names), 4)))
        return 0
    daemon = Client()
    asked = [_split(word) for word in _asked(line)]
    sought, others, elements, steps = _rows(line, daemon)
    if others and not sought:
        return real.ask("sacct", words) or 0  # a site without accounts knows nothing of them, either
    details = Details(daemon)
    answer = ask_sacct(sought, [name for name, _ in asked], _for_slurm(line))
    if answer is not None and answer.complaints and not answer.rows:
        print(answer.complaints, end="", file=sys.stderr)
        return 1
    columns = _lay_out_columns(asked, answer, in_columns=not (line.has("parsable") or line.has("parsable2")))
    jobs = list(
        with_slurms(sought, answer, details, elements)
        if answer is not None
        else _by_squeue(with_slurms(sought, ask_squeue(sought, list(_BY_SQUEUE), [], long=True), details, elements))
    )
    wanted = states.read(line.values("states"), "--state") if line.has("states") else None
    jobs = [row for row in jobs if (wanted is None or row.state in wanted) and _fits(row, line)]
    if line.has("json") or line.has("yaml"):
        some = ",".join(id for row in jobs for id in row.job["batch_ids"] if id.isdigit())
        documents.print_jobs("sacct", jobs, [f"--jobs={some}"] if some else [], yaml=line.has("yaml"))
        return 0
    rows = [
        one
        for row in jobs
        for one in (row, *(() if line.has("jobs_alone") else _steps(row, answer)))
        if _is_named(one, steps)
    ]
    _print(line, columns, rows)
    if others:
        sys.stdout.flush()
        real.ask("sacct", [*options.without(_KNOWN, words, "jobs"), "--noheader", "--jobs", ",".join(others)])
    return 0


def _for_slurm(line: options.Line) -> list[str]:
    said = [f"--{option}={line.value(name)}" for name, option in _SLURMS_FILTERS.items() if line.has(name)]
    said += [word for word, name in (("--noconvert", "exact"), ("--truncate", "truncate")) if line.has(name)]
    return [*said, *([f"--units={line.value('units')}"] if line.has("units") else [])]


def _asked(line: options.Line) -> list[str]:
    said = [value for name, value in line.given if name == "format"]
    said += [_LONG] if line.has("long") else [_BRIEF] if line.has("brief") else []
    return [word for part in said or [os.environ.get("SACCT_FORMAT") or _DEFAULT] for word in part.split(",") if word]


def _split(word: str) -> tuple[str, int | None]:
    match = _COLUMN.fullmatch(word.strip())
    if match is None:
        raise EjbError(Code.INVALID, f'Invalid field requested: "{word}"')
    return match["name"], int(match["width"]) if match["width"] else None


def _lay_out_columns(
    asked: Sequence[tuple[str, int | None]], answer: Answer | None, *, in_columns: bool
) -> list[tuple[str, int]]:
    """The fields that these words mean, and how wide they are: to the left where that is negative.

    As the site's own sacct has them. Raises EjbError for a word that means none.
    """
    told = answer.headings if answer is not None else {}
    names = [told.get(word) or fields.sacct_name(word) for word, _ in asked]
    for (word, _), name in zip(asked, names, strict=True):
        if name is None:
            raise EjbError(Code.INVALID, f'Invalid field requested: "{word}"')
    known = [name or "" for name in names]
    plain = [name for name, (_, width) in zip(known, asked, strict=True) if width is None]
    widths = ask_sacct_widths(plain) if in_columns and plain and answer is not None else {}
    return [
        (name, width if width is not None else widths.get(name, fields.SACCT.get(name, 10)))
        for name, (_, width) in zip(known, asked, strict=True)
    ]


# -- which rows -------------------------------------------------------------------------------------------------------


def _rows(
    line: options.Line, daemon: Client
) -> tuple[list[Row], list[str], dict[str, set[int] | None], dict[str, set[str]]]:
    """EJB's rows, what else was named, which elements were, and which steps, by the numbers of their jobs.

    Without a time it is all of a named job, and what has been today.
    """
    names, since_s, until_s = line.values("jobs"), _moment(line.value("since")), _moment(line.value("until"))
    elements: dict[str, set[int] | None] = {}
    steps: dict[str, set[str]] = {}
    others: list[str] = []
    if names:
        found = named(daemon, names)
        rows, others, elements = found.rows, found.others, found.elements
        whole = {name for name in names if "." not in name}
        for match in filter(None, map(_STEP.fullmatch, names)):
            if match["whole"] not in whole:
                steps.setdefault(match["whole"], set()).add(match["step"])
    else:
        if since_s is None:
            since_s = _moment("00:00")
        jobs = listed(daemon, ENDED_LOOKED_AT, line, all_users=line.has("all"))
        rows = [row for job in jobs if _within(job["submit_s"], job["end_s"], since_s, until_s)
                for row in rows_of(daemon, job)]  # fmt: skip
    kept = [row for row in rows if _within(row.job["submit_s"], row.job["end_s"], since_s, until_s)]
    return sorted(kept, key=lambda row: (row.job["submit_s"], _first(row.index))), others, elements, steps


def _first(index: str | None) -> int:
    match = re.search("[0-9]+", index or "")
    return int(match[0]) if match else -1


def _fits(row: Row, line: options.Line) -> bool:
    if line.has("name") and row.name not in line.values("name"):
        return False
    if any(line.has(name) for name in _SLURMS_FILTERS) and not row.slurm:
        return False
    if (nodes := line.value("nodes")) is None:
        return True
    try:
        return bool(set(unfold(nodes)) & set(unfold(fields.sacct_value(row, "NodeList"))))
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="--nodelist") from None


def _by_squeue(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of jobs that are passed through, with what the controller still remembers of them."""
    for row in rows:
        if not row.theirs:
            yield replace(row, slurm=_in_saccts_words(row.slurm))
            continue
        slurm = row.slurm
        status = fields.wait_status(slurm["exit_code"])
        job = dict(row.job) | {
            "nodes": list(unfold(slurm["nodelist"])) if slurm["nodelist"] else [],
            "start_s": _at_s(slurm["starttime"]) if row.state != "PENDING" else None,
            "end_s": None if row.state in states.LIVING else _at_s(slurm["endtime"]),
            "exit_code": status >> 8 or 128 * bool(status & 127) + (status & 127),
        }
        yield replace(row, job=job, slurm=_in_saccts_words(slurm), theirs=False)  # type: ignore[arg-type]


def _in_saccts_words(slurm: Mapping[str, str]) -> dict[str, str]:
    found = {ours: slurm[name.lower()] for name, ours in _BY_SQUEUE.items() if name.lower() in slurm}
    found = {name: "" if text == fields.NONE else text for name, text in found.items()}
    for name in ("base", "comment"):
        found |= {name: slurm[name]} if name in slurm else {}
    return found | ({"reqcpus": slurm["numcpus"]} if "numcpus" in slurm else {})


def _at_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


# -- steps ------------------------------------------------------------------------------------------------------------


def _steps(row: Row, answer: Answer | None) -> Iterator[Row]:
    """The steps of a job: Slurm's, but those in which EJB's workers run, and the launches that these made."""
    index = (row.index or "") if row.job["array"] is None else ""
    found = [
        cells
        for cells in (answer.rows.get(row.slurm.get("base", ""), ()) if answer is not None else ())
        if cells["step"] and cells["index"] == index
    ]
    launches = [] if row.theirs or index else row.detail.get("steps", [])
    shown = {name: row.slurm[name] for name in _OF_STEPS if name in row.slurm}
    if not row.theirs and row.start_s is not None:
        batch = next((cells for cells in found if cells["step"] == "batch"), {})
        yield replace(row, slurm={**batch, **shown}, step_id="batch")
    for cells in found:
        if row.theirs or (cells["step"] != "batch" and cells["jobname"] != fields.WORKERS and not launches):
            state = cells["state"].partition(" ")[0]
            yield replace(row, slurm=cells, theirs=True, step_id=cells["step"], state=state)
    for step in launches:
        ended = "COMPLETED" if step["code"] == 0 else "CANCELLED" if (step["code"] or 0) > 128 else "FAILED"
        still = "RUNNING" if row.state in states.LIVING else row.state
        state = still if step["code"] is None else ended
        yield replace(row, slurm=shown, step_id=str(step["ordinal"]), step=step, state=state)


def _is_named(row: Row, steps: dict[str, set[str]]) -> bool:
    """Whether a row is of those steps that are named of its job, where some are."""
    whole = row.id.partition(".")[0]
    wanted = next((steps[name] for name in (whole, row.number, row.array, row.job["id"]) if name in steps), None)
    return wanted is None or row.step_id in wanted


# -- how they are printed ---------------------------------------------------------------------------------------------


def _print(line: options.Line, columns: Sequence[tuple[str, int]], rows: Sequence[Row]) -> None:
    divided = "|" if line.value("delimiter") is None else str(line.value("delimiter"))
    if not (line.has("parsable") or line.has("parsable2")):
        divided = ""
    behind = line.has("parsable")
    if not line.has("bare"):
        print(_line([(name if divided else name[: abs(width)], width) for name, width in columns], divided, behind))
        if not divided:
            print("".join("-" * abs(width) + " " for _, width in columns))
    for row in rows:
        values = [(visible(fields.sacct_value(row, name)), width) for name, width in columns]
        print(_line(values, divided, behind))


def _line(values: Sequence[tuple[str, int]], divided: str, behind: bool) -> str:
    if divided:
        return divided.join(text for text, _ in values) + (divided if behind else "")
    return "".join(f"{_padded(text, width)} " for text, width in values)


def _padded(text: str, width: int) -> str:
    room = abs(width)
    if len(text) > room:
        return text[: room - 1] + "+"
    return text.ljust(room) if width < 0 else text.rjust(room)


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
