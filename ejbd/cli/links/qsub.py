"""`qsub`: `ejb submit` of a script for PBS, with qsub's options on its line.

They are put into the script as a last #PBS line, where the daemon reads them as it reads the others.
"""

from __future__ import annotations

import getopt
import re
import sys
from collections.abc import Sequence
from typing import Any

from ejbd import __version__
from ejbd.cli.links import real
from ejbd.cli.submission.submitting import report_number_read
from ejbd.client import here
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.options.qsub import BY_LETTER
from ejbd.wire.numbers import batch_number
from ejbd.wire.payloads import JobDetail

_OUR_ARGUMENTS, _OF_QSUB = "F", "z"  # the script's arguments; say nothing
_BLOCK = "block=true"


def run(words: Sequence[str]) -> int:
    """Submit; the exit code: with `-W block=true` the job's. Raises EjbError where the job is refused."""
    if list(words) == ["--version"]:
        code = real.ask("qsub", words)
        if code is None:
            print(f"ejb {__version__}")
        return code or 0
    options, rest = _read(words)
    said = [(letter, value) for letter, value in options if letter not in (_OUR_ARGUMENTS, _OF_QSUB)]
    args = [word for letter, value in options if letter == _OUR_ARGUMENTS for word in value.split()]
    work = _work(rest, args)
    work["script"] = with_line(work["script"], said)
    daemon = Client()
    body = {**here.submission(work, {}, daemon.place), "numbered": True}
    job = daemon.submit_body(body)
    detail = daemon.number(job["id"])
    if not any(letter == _OF_QSUB for letter, _ in options):
        print(_told(detail))
    report_number_read(daemon, job["id"])
    if not any(letter == "W" and _BLOCK in value.split(",") for letter, value in options):
        return 0
    for _ in daemon.events(job["id"]):
        pass
    code = daemon.get(job_path(job["id"]))["exit_code"]
    return 1 if code is None else min(int(code), 255)


def _told(detail: JobDetail) -> str:
    """The job's number; in front of PBS with the server behind it, as PBS's own commands print and take it."""
    number = str(detail["number"])
    ids = (one["batch_id"] for one in detail["subjobs"] if one["batch_id"] is not None)
    return next((id for id in ids if batch_number(id) == number), number)


def _read(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    letters = "".join(letter + (":" if one.valued else "") for letter, one in BY_LETTER.items())
    try:
        options, rest = getopt.getopt(list(words), letters)
    except getopt.GetoptError as error:
        raise EjbError(Code.INVALID, error.msg, hint="qsub's options have one letter each") from None
    if "--" in words[: len(words) - len(rest)] or (rest and rest[0] == "--"):
        raise EjbError(Code.UNSUPPORTED, "a command behind -- is no script", hint="ejb submit -n 16 -t 10 -- ./app")
    return [(spelling[1], value) for spelling, value in options], rest


def _work(rest: list[str], args: list[str]) -> dict[str, Any]:
    """The script, of which the daemon sees no file: the line of its options is in none."""
    if rest and rest[0] != "-":
        found = here.script(rest[0], [*args, *rest[1:]])
        found.pop("script_path", None)
        return found
    text = here.text_of(sys.stdin.buffer.read(here.LARGEST_SCRIPT + 1), "-")
    return {"script": text, "script_name": "STDIN", "args": args}


def with_line(script: str, options: Sequence[tuple[str, str]]) -> str:
    """The script with these options in a #PBS line behind all that it has, which they go before.

    -V stands in it at least, so that a script without such lines is PBS's, too.
    """
    words = ["-V"]
    for letter, value in options:
        if "\n" in value:
            raise EjbError(Code.INVALID, "the value has several lines", where=f"-{letter}")
        words.append(f"-{letter}" + (f" {_quoted(value)}" if BY_LETTER[letter].valued else ""))
    lines = script.split("\n")
    at = next(
        (
            number
            for number, line in enumerate(lines)
            if line.strip() and not line.strip().startswith(("#", ":") if number == 0 else "#")
        ),
        len(lines),
    )
    return "\n".join([*lines[:at], f"#PBS {' '.join(words)}", *lines[at:]])


def _quoted(value: str) -> str:
    """One word of a #PBS line: a backslash takes the next character as it is."""
    return re.sub(r"[^A-Za-z0-9_=:,.+/@%-]", lambda match: "\\" + match[0], value) or '""'
