"""What `ejb submit` does once its line is read. It is started often: nothing slow is imported before it is needed."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ejbd.cli.output import Output, choose, printable
from ejbd.cli.submission import sbatchwords
from ejbd.cli.submission import words as submit_words
from ejbd.cli.submission.words import KNOWN, OVERRIDES, Typed
from ejbd.client import here
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError

MOST_OF_A_SUBJECT = 60  # characters
MOST_READING_S = 3.0
MOST_STREAMS = 1024

_BEGAN_S = time.monotonic()

if TYPE_CHECKING:
    from ejbd.wire.payloads import JobCreated, JobDetail


def quickly(words: Sequence[str], cluster: str = "", *, silent: bool = False) -> int | None:
    """Submit by a plain line of `ejb`; its exit code. None: it is not plain, or no submission: typer reads it.

    Loading typer and what it checks values with would take several times as long as all the rest. A line is plain where
    typer would have nothing to say: no help, no mistake, no value that is odd. `cluster`: that was named, for sbatch;
    `silent`: which was told to print no number.
    """
    rest = list(words)
    where: dict[str, str] = {}
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if name not in ("url", "socket") or not (equals or rest):
            return None
        where[name] = value if equals else rest.pop(0)
    if rest[:1] != ["submit"]:
        return None
    typed = submit_words.read(sbatchwords.translated(rest[1:], KNOWN))
    if typed is None:
        return None
    return submit(typed, Client(where.get("url"), where.get("socket")), cluster, silent=silent)


def submit(typed: Typed, daemon: Client, cluster: str = "", *, silent: bool = False) -> int:
    """Submit what was typed; the exit code. Raises EjbError."""
    given, words = typed.given, typed.words
    if given.get("pool") is not None:
        daemon = daemon.pool(given["pool"])
    out = choose(as_json=bool(given.get("as_json")), quiet=bool(given.get("quiet") or given.get("parsable")))
    overrides = {option.name: given.get(option.name) for option in OVERRIDES}
    overrides["hold"] = overrides["hold"] or None
    overrides["settings"] = dict(map(_setting, overrides["settings"] or ())) or None
    overrides["options"] = [*_of_variables(), *(overrides["options"] or ())] or None
    work = _work(words, typed.is_command) if given.get("wrap") is None else _wrapped(given["wrap"], words)
    if given.get("numbered") and "script" in work:
        work.setdefault("script_name", "sbatch")  # as that calls what it reads from standard input
    body = here.submission(
        work,
        overrides,
        daemon.place,
        lambda name: out.note(f"the variable {name!a} is left out: it is not UTF-8"),
        out.note,
    )
    strayed = None if typed.is_command else sbatchwords.behind_the_script(words[1:], KNOWN)
    if strayed and not given.get("numbered"):
        out.note(f"{strayed} stands behind {words[0]} and goes to it; options of ejb stand before the script's name")
    if given.get("dry_run") or given.get("test_only"):
        from ejbd.cli.show import jobs as showing

        plan = daemon.request("POST", "/v1/jobs/plan", body=body).json()
        out.result(plan, lambda: showing.plan(plan, out), quiet="elastic" if plan["elastic"] else "passed-through")
        return 0
    numbered = bool(given.get("numbered"))
    body |= {"numbered": True} if numbered else {}
    job = daemon.submit_body(body, given.get("idempotency_key"))
    verbose = bool(given.get("verbose"))
    for note in job["notes"] if verbose else ():
        out.note(note)
    if numbered:
        wait = bool(given.get("wait"))
        return _numbered(job, daemon, out, cluster, wait=wait, verbose=verbose, silent=silent)
    carried = _carried(job) if verbose else _carried(job) + _noted(job)
    if given.get("wait"):
        return _waited_for(job, daemon, out, carried)
    out.result(job, lambda: out.line(f"Submitted job {job['id']}"), quiet=job["id"])
    out.note(carried)
    return 0


def _numbered(
    job: JobCreated, daemon: Client, out: Output, cluster: str, *, wait: bool, verbose: bool, silent: bool
) -> int:
    """Tell the job by its number, and no more, as sbatch does; with `wait` its end is waited for in silence then."""
    try:
        detail = daemon.number(job["id"])
    except EjbError as error:
        if error.code is not Code.BATCH_REFUSED:
            raise
        raise EjbError(error.code, f"Batch job submission failed: {error}") from None
    number = str(detail["number"])
    where, short = (f" on cluster {cluster}", f";{cluster}") if cluster else ("", "")
    if not silent:
        out.result(detail, lambda: out.line(f"Submitted batch job {number}{where}"), quiet=f"{number}{short}")
    if verbose:
        out.note(_carried(job))
    report_number_read(daemon, job["id"])
    if not wait:
        return 0
    from ejbd.cli.links import fields, rows, states
    from ejbd.cli.show import following
    from ejbd.client.messages import job_path

    try:
        for _ in following.events(daemon, job["id"], out):
            pass
        ended: JobDetail = daemon.get(job_path(job["id"]))
    except KeyboardInterrupt:
        return following.left_running(out, number)
    code, _, signal = fields.exit_code(rows.Row(ended, states.word_of(ended))).partition(":")
    return 1 if signal != "0" else int(code)  # as sbatch: 1 where a signal ended it


def report_number_read(daemon: Client, id: str) -> None:
    """Let a job begin a moment from now: as long as this command took, which is longer on a busy machine.

    What called the command reads the number once its process has ended, and makes the folder of the job's output. So
    another process, which holds none of its streams, waits for that moment.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.fork():
            return
    except OSError:  # no room for another process: the daemon itself does not wait for long
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.closerange(3, MOST_STREAMS)
        time.sleep(min(MOST_READING_S, time.monotonic() - _BEGAN_S))
        daemon.again().number_read(id)
    finally:
        os._exit(0)


def _waited_for(job: JobCreated, daemon: Client, out: Output, carried: str) -> int:
    from ejbd.cli.show import following
    from ejbd.cli.show import jobs as showing
    from ejbd.client.messages import job_path
    from ejbd.client.outcome import exit_code

    out.note(f"submitted job {job['id']}, {carried}")
    try:
        for _ in following.events(daemon, job["id"], out):
            pass
        detail: JobDetail = daemon.get(job_path(job["id"]))
    except KeyboardInterrupt:
        return following.left_running(out, job["id"])
    out.result(detail, lambda: out.line(showing.outcome(detail)), quiet=job["id"])
    return exit_code(detail)


def _setting(text: str) -> tuple[str, str]:
    """A --setting: without a value it is on."""
    name, equals, value = text.partition("=")
    if not name:
        raise EjbError(Code.INVALID, f"--setting is NAME=VALUE, and {text!r} names nothing", where="--setting")
    return name, value if equals else "on"


def _of_variables() -> list[str]:
    """Options by sbatch's input variables."""
    if not any(name.startswith("SBATCH_") for name in os.environ):
        return []
    from ejbd.cli.submission import sbatchvariables

    return list(sbatchvariables.options(os.environ))


def _wrapped(command: str, words: list[str]) -> dict[str, Any]:
    """The script that sbatch makes of a --wrap."""
    if words:
        hint = "put them into the command of --wrap"
        raise EjbError(Code.INVALID, f"--wrap goes with no script and no arguments, not with {words[0]!r}", hint=hint)
    text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"
    return {"script": text, "script_name": "wrap", "args": []}


def _work(words: list[str], is_command: bool) -> dict[str, Any]:
    if is_command:
        return here.command(words)
    if words and words[0] != "-":
        return here.script(words[0], words[1:])
    if not words and sys.stdin.isatty():
        hint = "ejb submit SCRIPT, or ejb submit -n 16 -t 10 -- ./app args"
        raise EjbError(Code.INVALID, "neither a script nor a command is given", hint=hint)
    return {"script": here.text_of(sys.stdin.buffer.read(here.LARGEST_SCRIPT + 1), "-"), "args": words[1:]}


def _carried(job: JobCreated) -> str:
    """Whether the job is elastic, and why."""
    how = "elastic" if job["elastic"] else "passed through as an ordinary job"
    return printable(f"{how}: {job['why']}" if job["why"] else how)


def _noted(job: JobCreated) -> str:
    """How many notes there are on a job, what they are about, and where to read them; "" where there are none."""
    notes = job["notes"]
    if not notes:
        return ""
    kinds = "; ".join(dict.fromkeys(_subject_of(note) for note in notes))
    count = "1 note" if len(notes) == 1 else f"{len(notes)} notes"
    return printable(f"; {count} ({kinds}): `ejb explain {job['id']}` has {'it' if len(notes) == 1 else 'them'}")


def _subject_of(note: str) -> str:
    """What a note is about: its first words, without the line of the script."""
    words = re.split(r"[:,;(]| since | where ", re.sub(r"^line \d+: ", "", note), maxsplit=1)[0].strip()
    return words if len(words) <= MOST_OF_A_SUBJECT else words[: MOST_OF_A_SUBJECT - 3] + "..."
