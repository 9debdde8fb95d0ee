"""`ejb` under the names of Slurm's commands, for tools that know no others: `sbatch`, `squeue` and `scancel`.

A link of such a name to `ejb` is all that there is to be made. Jobs are told by numbers, as these tools expect it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ejbd.cli.output import printable
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.wire.numbers import number_of
from ejbd.wire.payloads import JobView
from ejbd.wire.states import LIVING_JOB, JobState

SBATCH, SCANCEL = "sbatch", "scancel"
ENDED_SHOWN = 1000  # jobs that have ended, the latest; Slurm forgets them after some minutes

# What `-t` and `%t` call a state, and `%T`.
_WORDS = {
    JobState.RECEIVED: ("PD", "PENDING"),
    JobState.WAITING: ("PD", "PENDING"),
    JobState.RUNNING: ("R", "RUNNING"),
    JobState.ENDING: ("CG", "COMPLETING"),
    JobState.UNKNOWN: ("CG", "COMPLETING"),
    JobState.COMPLETED: ("CD", "COMPLETED"),
    JobState.FAILED: ("F", "FAILED"),
    JobState.TIMEOUT: ("TO", "TIMEOUT"),
    JobState.CANCELLED: ("CA", "CANCELLED"),
}
_SUSPENDED = ("S", "SUSPENDED")
_KNOWN = {word for words in (*_WORDS.values(), _SUSPENDED) for word in words}
_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %r"
_FIELD = re.compile(r"%(?P<right>\.?)(?P<width>[0-9]*)(?P<letter>[a-zA-Z%])")


def command_line(name: str, words: Sequence[str]) -> list[str]:
    """What `ejb` is to do for a line of the Slurm command of this name; nothing more for squeue, which is done."""
    if name == SBATCH:
        return ["submit", "--numbered", *words]
    if name == SCANCEL:
        return ["cancel", "--quiet", *words]
    for line in squeue(words, Client()):
        print(line)
    return []


def words_of(job: JobView) -> tuple[str, str]:
    """How squeue calls the state of a job: a job that has begun and waits again, its work kept, is suspended."""
    state = JobState(job["state"])
    return _SUSPENDED if state is JobState.WAITING and job["start_s"] is not None else _WORDS[state]


class _Asked(NamedTuple):
    heading: bool
    format: str
    states: frozenset[str] | None  # None: those that live
    only: Mapping[str, Any]  # of the query
    jobs: tuple[str, ...]


def squeue(words: Sequence[str], daemon: Client) -> list[str]:
    """The lines that `squeue` prints of EJB's jobs. Raises EjbError for an option or a field that it does not know."""
    asked = _asked(words)
    jobs: list[JobView] = []
    if asked.jobs:
        jobs = [daemon.get(job_path(job)) for job in asked.jobs]
    else:
        jobs += daemon.jobs(alive="true", **asked.only)
        if asked.states is not None:
            jobs += daemon.jobs(ENDED_SHOWN, alive="false", **asked.only)
    lines = [_line(asked.format, lambda letter: _HEADINGS[letter])] if asked.heading else []
    for job in jobs:
        words_ = words_of(job)
        wanted = JobState(job["state"]) in LIVING_JOB if asked.states is None else bool(asked.states & {*words_, "ALL"})
        if wanted:
            lines.append(_line(asked.format, lambda letter, job=job: _FIELDS[letter](job)))  # type: ignore[misc]
    return lines


def _line(format: str, value: Callable[[str], str]) -> str:
    def one(match: re.Match[str]) -> str:
        letter = match["letter"]
        if letter == "%":
            return "%"
        if letter not in _FIELDS:
            known = " ".join(f"%{letter}" for letter in _FIELDS)
            raise EjbError(Code.INVALID, f"%{letter} is no field that EJB tells", where="--format", hint=known)
        text, width = value(letter), int(match["width"] or 0)
        if not width:
            return text
        return text[:width].rjust(width) if match["right"] else text[:width].ljust(width)

    return printable(_FIELD.sub(one, format))


def _elapsed(job: JobView) -> str:
    if job["start_s"] is None:
        return "0:00"
    seconds = int((job["end_s"] or time.time()) - job["start_s"])
    return f"{seconds // 60}:{seconds % 60:02d}"


_FIELDS: dict[str, Callable[[JobView], str]] = {
    "i": lambda job: number_of(job["id"]),
    "A": lambda job: number_of(job["id"]),
    "F": lambda job: number_of(job["array"] or job["id"]),
    "K": lambda job: "N/A" if job["index"] is None else str(job["index"]),
    "t": lambda job: words_of(job)[0],
    "T": lambda job: words_of(job)[1],
    "j": lambda job: job["name"],
    "u": lambda job: job["user"],
    "P": lambda job: job["queue"],
    "C": lambda job: str(job["processes"]),
    "M": _elapsed,
    "r": lambda job: job["reason"] or "None",
}
_HEADINGS = {
    "i": "JOBID", "A": "JOBID", "F": "ARRAY_JOB_ID", "K": "ARRAY_TASK_ID", "t": "ST", "T": "STATE", "j": "NAME",
    "u": "USER", "P": "PARTITION", "C": "CPUS", "M": "TIME", "r": "REASON",
}  # fmt: skip
_VALUED = {
    "-o": "format", "--format": "format", "-t": "states", "--states": "states", "-u": "user", "--user": "user",
    "-p": "queue", "--partition": "queue", "-n": "name", "--name": "name", "-j": "jobs", "--jobs": "jobs",
}  # fmt: skip


def _asked(words: Sequence[str]) -> _Asked:
    heading, given, rest = True, dict[str, str](), list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--noheader"):
            heading = False
            continue
        if word in ("--me", "-r", "--array"):  # one's own jobs are what is shown, and every element by itself
            continue
        spelling, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        if spelling not in _VALUED:
            hint = "it knows " + ", ".join(["--noheader", "--me", *(one for one in _VALUED if one.startswith("--"))])
            raise EjbError(Code.INVALID, f"EJB's squeue does not know {word!r}", hint=hint)
        if not equals and not rest:
            raise EjbError(Code.INVALID, "a value must follow", where=spelling)
        given[_VALUED[spelling]] = value if equals else rest.pop(0)
    states = None
    if "states" in given:
        states = frozenset(given["states"].upper().split(","))
        if unknown := states - _KNOWN - {"ALL"}:
            told = f"{min(unknown)!r} is not the state of a job"
            raise EjbError(Code.INVALID, told, where="--states", hint="all, or " + ", ".join(sorted(_KNOWN)))
    jobs = tuple(filter(None, given.get("jobs", "").split(",")))
    only: dict[str, Any] = {key: given[key] for key in ("user", "queue", "name") if key in given}
    if "user" not in only:
        only["mine"] = "true"
    return _Asked(heading, given.get("format", _FORMAT), states, only, jobs)
