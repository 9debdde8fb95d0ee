"""What a submission says of where it was made: directory, environment, umask, limits, and the script's text."""

# ruff: noqa: PTH100, PTH109, PTH110, PTH112, PTH113, PTH118, PTH119  # `ejb submit` is started often: no pathlib

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ejbd.client.messages import Place
from ejbd.errors import Code, EjbError
from ejbd.files.profilefiles import own_folder, to_send

LARGEST_SCRIPT = 16 * 1024 * 1024
_LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as")


def submission(
    work: Mapping[str, Any],
    overrides: Mapping[str, Any],
    place: Place,
    left_out: Callable[[str], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The body of a submission from this process to the daemon at `place`, which the job gets in its environment, too.

    `left_out` is called with the name of each variable that cannot be sent, `note` with a sentence about each file of
    the user's own profiles that is not.
    """
    return {
        "cwd": directory(),
        "env": {**environment(left_out or (lambda name: None)), **place.for_jobs()},
        "overrides": {name: value for name, value in overrides.items() if value is not None},
        **work,
        **_surroundings(),
        **_profiles(note),
    }


def plan(
    text: str,
    file: str,
    place: Place,
    left_out: Callable[[str], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The body of a workflow's submission from this process; what is called as by `submission`."""
    return {
        "plan": text,
        "file": file,
        "cwd": directory(),
        "env": {**environment(left_out or (lambda name: None)), **place.for_jobs()},
        **_surroundings(),
        **_profiles(note),
    }


def command(words: Sequence[str]) -> dict[str, Any]:
    """The work of a job that starts a command on every rank."""
    return {"command": list(words)}


def script(name: str, args: Sequence[str] = ()) -> dict[str, Any]:
    """The work of a job that is a batch script, found as sbatch finds it. Raises EjbError."""
    path = _found(name)
    try:
        if os.path.isdir(path):
            raise EjbError(Code.INVALID, "a directory is not a script", where=name)
        with open(path, "rb") as file:
            data = file.read(LARGEST_SCRIPT + 1)
    except OSError as error:
        raise EjbError(Code.INVALID, f"cannot read the script: {error.strerror}", where=name) from None
    except ValueError as error:  # a NUL in the name
        raise EjbError(Code.INVALID, f"this is not the name of a file: {error}", where=ascii(name)) from None
    work = {"script": text_of(data, name), "script_name": os.path.basename(path), "args": list(args)}
    try:
        absolute = os.path.abspath(path)  # a link's own name is what its user knows it by
        absolute.encode()
    except (OSError, UnicodeEncodeError):
        return work
    return {**work, "script_path": absolute}


def text_of(data: bytes, where: str) -> str:
    """The text of a script. Raises EjbError for what is too large or is none."""
    if len(data) > LARGEST_SCRIPT:
        hint = "a script starts programs; leave data in files of their own"
        raise EjbError(Code.TOO_LARGE, f"a script of more than {LARGEST_SCRIPT >> 20} MiB", where=where, hint=hint)
    if b"\0" in data:
        hint = f"run a program by: ejb submit -n 16 -t 10 -- {where}"
        raise EjbError(Code.INVALID, "this is not a script but a binary file", where=where, hint=hint)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = f"convert it: iconv -f LATIN1 -t UTF-8 {where}"
        raise EjbError(Code.INVALID, f"line {line} is not UTF-8", where=where, hint=hint) from None


def directory() -> str:
    """The working directory. Raises EjbError where it is gone or cannot be found."""
    try:
        found = os.getcwd()
        found.encode()
    except FileNotFoundError:
        raise EjbError(Code.INVALID, "the working directory was deleted", hint="cd to one that is there") from None
    except UnicodeEncodeError:
        raise EjbError(Code.INVALID, "the working directory's name is not UTF-8", hint="rename it") from None
    return found


def environment(left_out: Callable[[str], None]) -> dict[str, str]:
    """The environment, but for what JSON cannot hold and what EJB has set, which is of the job that this runs in."""
    found: dict[str, str] = {}
    coerced = _coerced_by_python()
    for name, value in os.environ.items():
        if name in coerced:
            continue
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            left_out(name)
            continue
        if not name.startswith("EJB_"):
            found[name] = value
    return found


def _found(word: str) -> str:
    """The file of a script: as sbatch finds it, on PATH too where it is not here."""
    if "/" in word or os.path.exists(word):
        return word
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return next((path for folder in folders if folder and os.path.isfile(path := os.path.join(folder, word))), word)


def _profiles(note: Callable[[str], None] | None) -> dict[str, Any]:
    """The user's own."""
    found = to_send(own_folder(), note or (lambda sentence: None))
    return {"profiles": found} if found else {}


def _surroundings() -> dict[str, Any]:
    """The umask and the resource limits that sbatch would hand on."""
    mask = os.umask(0o077)
    os.umask(mask)
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in _LIMITS}
    return {"umask": mask, "limits": limits}


def _coerced_by_python() -> set[str]:
    """LC_CTYPE, where it is not the user's: Python sets it for itself in a locale that is not UTF-8 (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read()
    except OSError:
        return set()
    return set() if b"\0LC_CTYPE=" in b"\0" + given else {"LC_CTYPE"}
