"""What `ejb submit` does once its line is read. It is started often: nothing slow is imported before it is needed."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ejbd.cli import sbatchwords, submit_words
from ejbd.cli.client import Client, from_environment, segment
from ejbd.cli.output import Output, choose, printable
from ejbd.cli.submit_words import KNOWN, OVERRIDES, Typed
from ejbd.errors import Code, EjbError

_LARGEST_SCRIPT = 16 * 1024 * 1024
_LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as")


def quickly(words: Sequence[str]) -> int | None:
    """Submit by a plain line of `ejb`; its exit code. None: it is not plain, or no submission: typer reads it.

    Loading typer and what it checks values with would take several times as long as all the rest. A line is plain where
    typer would have nothing to say: no help, no mistake, no value that is odd.
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
    return submit(typed, from_environment(where.get("url"), where.get("socket")))


def submit(typed: Typed, daemon: Client) -> int:
    """Submit what was typed; the exit code. Raises EjbError."""
    given, words = typed.given, typed.words
    out = choose(as_json=bool(given.get("as_json")), quiet=bool(given.get("quiet")))
    overrides = {option.name: given.get(option.name) for option in OVERRIDES}
    overrides["hold"] = overrides["hold"] or None
    overrides["options"] = overrides["options"] or None
    body: dict[str, Any] = {
        "cwd": _cwd(),
        "env": _environment(out),
        "overrides": {key: value for key, value in overrides.items() if value is not None},
        **_work(words, typed.is_command),
        **_surroundings(),
    }
    strayed = None if typed.is_command else sbatchwords.behind_the_script(words[1:], KNOWN)
    if strayed:
        out.note(f"{strayed} stands behind {words[0]} and goes to it; options of ejb stand before the script's name")
    if given.get("dry_run"):
        from ejbd.cli import showing

        plan = daemon.request("POST", "/v1/jobs/plan", body=body).json()
        out.result(plan, lambda: showing.plan(plan, out), quiet="elastic" if plan["elastic"] else "passed-through")
        return 0
    key = given.get("idempotency_key") or f"ejb-{os.urandom(16).hex()}"
    job = daemon.request_repeatedly("POST", "/v1/jobs", body=body, key=key).json()
    for note in job["notes"]:
        out.note(note)
    if given.get("wait"):
        return _waited_for(job, daemon, out)
    out.result(job, lambda: out.line(f"Submitted job {job['id']}"), quiet=job["id"])
    out.note(_carried(job))
    return 0


def _waited_for(job: dict[str, Any], daemon: Client, out: Output) -> int:
    from ejbd.cli import following, showing

    out.note(f"submitted job {job['id']}, {_carried(job)}")
    try:
        for _ in following.events(daemon, job["id"], out):
            pass
        detail = daemon.get(f"/v1/jobs/{segment(job['id'])}")
    except KeyboardInterrupt:
        return following.left_running(out, job["id"])
    out.result(detail, lambda: out.line(showing.outcome(detail)), quiet=job["id"])
    return following.exit_code(detail)


def _work(words: list[str], is_command: bool) -> dict[str, Any]:
    if is_command:
        return {"command": words}
    if not words or words[0] == "-":
        if not words and sys.stdin.isatty():
            hint = "ejb submit SCRIPT, or ejb submit -n 16 -t 10 -- ./app args"
            raise EjbError(Code.INVALID, "neither a script nor a command is given", hint=hint)
        return {"script": _text(sys.stdin.buffer.read(_LARGEST_SCRIPT + 1), "-"), "args": words[1:]}
    path = _found(words[0])
    try:
        if path.is_dir():
            raise EjbError(Code.INVALID, "a directory is not a script", where=words[0])
        with path.open("rb") as file:
            data = file.read(_LARGEST_SCRIPT + 1)
    except OSError as error:
        raise EjbError(Code.INVALID, f"cannot read the script: {error.strerror}", where=words[0]) from None
    except ValueError as error:  # a NUL in the name
        raise EjbError(Code.INVALID, f"this is not the name of a file: {error}", where=ascii(words[0])) from None
    work = {"script": _text(data, words[0]), "script_name": path.name, "args": words[1:]}
    try:
        absolute = os.path.abspath(path)  # noqa: PTH100  # a link's own name is what its user knows it by
        absolute.encode()
    except (OSError, UnicodeEncodeError):
        return work
    return {**work, "script_path": absolute}


def _found(word: str) -> Path:
    """The file of a script: as sbatch finds it, on PATH too where it is not here."""
    if "/" in word or Path(word).exists():
        return Path(word)
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return next((path for folder in folders if folder and (path := Path(folder, word)).is_file()), Path(word))


def _carried(job: dict[str, Any]) -> str:
    """Whether the job is elastic, and why."""
    how = "elastic" if job["elastic"] else "passed through as an ordinary job"
    return printable(f"{how}: {job['why']}" if job["why"] else how)


def _surroundings() -> dict[str, Any]:
    """The umask and the resource limits that sbatch would hand on."""
    mask = os.umask(0o077)
    os.umask(mask)
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in _LIMITS}
    return {"umask": mask, "limits": limits}


def _text(data: bytes, where: str) -> str:
    if len(data) > _LARGEST_SCRIPT:
        hint = "a script starts programs; leave data in files of their own"
        raise EjbError(Code.TOO_LARGE, f"a script of more than {_LARGEST_SCRIPT >> 20} MiB", where=where, hint=hint)
    if b"\0" in data:
        hint = f"run a program by: ejb submit -n 16 -t 10 -- {where}"
        raise EjbError(Code.INVALID, "this is not a script but a binary file", where=where, hint=hint)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = f"convert it: iconv -f LATIN1 -t UTF-8 {where}"
        raise EjbError(Code.INVALID, f"line {line} is not UTF-8", where=where, hint=hint) from None


def _cwd() -> str:
    try:
        found = os.getcwd()  # noqa: PTH109  # a string is what is sent
        found.encode()
    except FileNotFoundError:
        raise EjbError(Code.INVALID, "the working directory was deleted", hint="cd to one that is there") from None
    except UnicodeEncodeError:
        raise EjbError(Code.INVALID, "the working directory's name is not UTF-8", hint="rename it") from None
    return found


def _environment(out: Output) -> dict[str, str]:
    """The environment, but for what JSON cannot hold and what is not for others to know."""
    found: dict[str, str] = {}
    coerced = _coerced_by_python()
    for name, value in os.environ.items():
        if name in coerced:
            continue
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            out.note(f"the variable {name!a} is left out: it is not UTF-8")
            continue
        if not name.startswith("EJB_"):
            found[name] = value
    return found


def _coerced_by_python() -> set[str]:
    """LC_CTYPE, where it is not the user's: Python sets it for itself in a locale that is not UTF-8 (PEP 538)."""
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return set()
    return set() if b"\0LC_CTYPE=" in b"\0" + given else {"LC_CTYPE"}
