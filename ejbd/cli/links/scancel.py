"""`scancel` of EJB's jobs; a number that is none of theirs goes to the site's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ejbd.cli.links import options, real, states
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Row, is_array, named
from ejbd.cli.output import printable, sentences
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.wire.kinds import JobKind

_KNOWN = Known(
    valued={
        "-u": "user", "--user": "user", "-n": "name", "--name": "name", "--jobname": "name", "-t": "states",
        "--state": "states", "-p": "queue", "--partition": "queue", "-s": "signal", "--signal": "signal",
        "-M": "clusters", "--clusters": "clusters",
    },
    flags={
        "--me": "me", "-b": "script", "--batch": "script", "-f": "full", "--full": "full", "-H": "hurry",
        "--hurry": "hurry", "-Q": "quiet", "--quiet": "quiet", "-v": "verbose", "--verbose": "verbose",
        "-V": "version", "--version": "version", "--ctld": "ctld",
    },
)  # fmt: skip
_ENDS = ("KILL", "9")
_FILTERS = ("user", "name", "states", "queue", "me")


def run(words: Sequence[str]) -> int:
    """Cancel, or signal; the exit code. Raises EjbError for an option that it does not know."""
    line = options.read(_KNOWN, words, "scancel")
    if line.has("version"):
        return real.ask("scancel", words) or 0
    filters = any(line.has(name) for name in _FILTERS)
    if not line.words and not filters:
        raise EjbError(Code.INVALID, "No job identification provided")
    daemon = Client()
    wanted = states.read(line.values("states"), "--state") if line.has("states") else None
    others: list[str] = []
    if line.words:
        found = named(daemon, [part for word in line.words for part in word.split()], apart=False)
        rows, others = found.rows, found.others
        rows = [row for row in rows if _fits(row, line)]
    else:
        rows = [Row(job, states.word_of(job)) for job in daemon.jobs(alive="true", **_query(line))]
    code = 0
    for row in rows:
        if wanted is None or row.state in wanted:
            code = _end(daemon, row, line) or code
    if others:
        code = _of_others(words, others, line) or code
    return code


def _query(line: options.Line) -> dict[str, Any]:
    only: dict[str, Any] = {key: line.value(key) for key in ("user", "queue", "name") if line.value(key) is not None}
    return only if "user" in only else {**only, "mine": "true"}


def _fits(row: Row, line: options.Line) -> bool:
    """Slurm's scancel takes jobs that are named and that fit the filters, too."""
    return all(line.value(key) in (None, row.job[key]) for key in ("user", "queue", "name"))


def _end(daemon: Client, row: Row, line: options.Line) -> int:
    signal = (line.value("signal") or "KILL").upper().removeprefix("SIG")
    whole = job_path(row.job["id"])
    of_batch = is_array(row.job) and row.job["kind"] != JobKind.ARRAY
    part = row.index is not None and row.job["array"] is None
    if row.state not in states.LIVING:
        return _told(line, row.id, "Job/step already completing or completed", 0 if signal in _ENDS else 1)
    try:
        if part and of_batch:
            return _by_the_sites(row, line)
        if signal not in _ENDS:
            body = {"signal": signal, "to": "script" if line.has("script") else "all" if line.has("full") else "ranks"}
            daemon.request("POST", f"{whole}/signal", body=body)
        elif part:
            index = str(row.index)
            daemon.request(
                "POST", job_path(row.job["id"] + "_" + (index if index[0] == "[" else f"[{index}]"), "/cancel")
            )
        else:
            daemon.request("POST", f"{whole}/cancel")
    except EjbError as error:
        if error.code is Code.UNREACHABLE:
            raise
        if error.code is Code.UNSUPPORTED and signal not in _ENDS:
            return _by_the_sites(row, line)
        if error.code is Code.CONFLICT and signal in _ENDS:
            return _told(line, row.id, "Job/step already completing or completed", 0)
        print(f"scancel: error: Kill job error on job id {row.id}: {sentences(error.sentence())}", file=sys.stderr)
        return 1
    return 0


def _by_the_sites(row: Row, line: options.Line) -> int:
    """What the batch system does itself, which has the job by this number.

    Slurm 22.05 cancels all of an array that waits where `--signal KILL` is said of one element.
    """
    signal = line.value("signal") or "KILL"
    said = [] if signal.upper().removeprefix("SIG") in _ENDS else ["--signal", signal]
    said += [f"--{name}" for name, typed in (("batch", "script"), ("full", "full")) if line.has(typed)]
    code = real.ask("scancel", [*said, row.id])
    if code is None:
        raise EjbError(Code.UNSUPPORTED, "the job is passed through, and there is no scancel of the site's on the PATH")
    return code


def _of_others(words: Sequence[str], others: Sequence[str], line: options.Line) -> int:
    code = real.ask("scancel", [*options.without(_KNOWN, words, ""), *others])
    if code is not None:
        return code
    for word in others:
        print(f"scancel: error: Kill job error on job id {printable(word)}: Invalid job id specified", file=sys.stderr)
    return 1


def _told(line: options.Line, id: str, what: str, code: int) -> int:
    if line.has("verbose") or code:
        print(f"scancel: error: Kill job error on job id {id}: {what}", file=sys.stderr)
    return code
