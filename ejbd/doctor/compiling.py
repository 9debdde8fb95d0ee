"""Compiling C on a site, for `ejb doctor`: what is missing there is one sentence, with how to mend it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ejbd.errors import Code, EjbError

COMPILE_S = 120

# What a compiler says, and what that means; the first that is found counts.
_MEANINGS = (
    ("mpi.h:", "MPI's headers are missing", "Debian: apt-get install libmpich-dev"),
    (
        "dmtcp.h:",
        "DMTCP's headers are missing",
        "install DMTCP whole, by make install, with include/dmtcp.h beside bin",
    ),
    (".h: No such file", "the C library's headers are missing", "Debian: apt-get install libc6-dev"),
    ("cannot find crt", "the C library's headers are missing", "Debian: apt-get install libc6-dev"),
    ("cannot find Scrt", "the C library's headers are missing", "Debian: apt-get install libc6-dev"),
    ("command not found", "there is no C compiler behind it", "Debian: apt-get install gcc"),
    ("not found", "there is no C compiler behind it", "Debian: apt-get install gcc"),
    ("cannot execute", "the C compiler is not whole", "Debian: apt-get install --reinstall gcc"),
    ("No space left", "the disk is full", "make room where TMPDIR is, or in /tmp"),
    ("Cannot create temporary file", "it has nowhere to put its own files", "set TMPDIR to a folder you can write"),
)


def compile_c(
    compiler: str, source: Path, target: Path, options: Sequence[str] = (), libraries: Sequence[str] = ()
) -> None:
    """Compile one file. Raises EjbError (UNSUPPORTED): what is missing, and how to mend it."""
    words = [compiler, *options, "-o", str(target), str(source), *libraries]
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S, check=False, env=env)
    except OSError as error:
        raise EjbError(
            Code.UNSUPPORTED, f"{compiler} does not run: {error.strerror}", hint="install it anew, or take it off PATH"
        ) from None
    except subprocess.TimeoutExpired:
        raise EjbError(Code.UNSUPPORTED, f"{compiler} was not through after {COMPILE_S} s", hint="try again") from None
    if done.returncode == 0:
        return
    for sign, meaning, mend in _MEANINGS:
        if sign in done.stderr:
            raise EjbError(Code.UNSUPPORTED, f"{compiler} cannot compile {source.name}: {meaning}", hint=mend)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line), lines[0] if lines else "no reason given")
    raise EjbError(Code.UNSUPPORTED, f"{compiler} cannot compile {source.name}: {said[:300]}", hint="mend the compiler")


def writable_folder(folder: Path) -> Path:
    """Make `folder` (0700) where it is missing, and see that files can be put there. Raises EjbError (UNSUPPORTED)."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            pass
    except OSError as error:
        raise EjbError(
            Code.UNSUPPORTED,
            f"nothing can be put there: {error.strerror}",
            where=str(folder),
            hint="run it as the daemon's user, with spool = a folder that this user can write",
        ) from None
    return folder
