"""Where a job's output goes: sbatch's file name patterns, with the number that the job knows itself by."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobSpec

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")
NO_INDEX = 4_294_967_294
"""What sbatch puts in for the index of a job that is no element of an array."""
_NOT_YET = re.compile(r"%\d*[ijJANa]")


def expand(
    pattern: str,
    *,
    job_id: str,
    number: str,
    name: str,
    user: str,
    node: str,
    element: tuple[str, int] | None = None,
    server: str = "",
) -> str:
    """Expand the `%` signs of an output pattern. Others stay.

    - %j and %J are the batch system's number, %x the name, %u the user, %N the first node.
    - %n and %t are 0, %s is batch, and %% is %.
    - %A and %a are the number of an `element`'s array and its index; without one as %j, and 4294967294.
    - %S is PBS's server, with a dot before its name.
    - %i is EJB's own id, and only the default name has it.
    """
    array, index = element if element is not None else (number, NO_INDEX)
    values = {"i": job_id, "j": number, "J": number, "A": array, "x": name, "u": user, "N": node, "S": server, "%": "%"}
    values.update(n="0", t="0", s="batch", a=str(index))

    def one(match: re.Match[str]) -> str:
        width, letter = match.groups()
        value = values.get(letter)
        if value is None:
            return match.group(0)
        return value.rjust(min(int(width), 10), "0") if width and value.isalnum() else value

    return _PATTERN.sub(one, pattern)


def check_output(spec: JobSpec, user: str) -> None:
    """Raise EjbError (INVALID) where an output file can surely not be written, as far as the daemon's host shows.

    Only what is on a file system of the working directory counts: what is mounted elsewhere may look different on the
    nodes. A folder that is named by the number or the node is not known yet.
    """
    for pattern in filter(None, (spec.output, spec.error)):
        folder = Path(spec.cwd) / Path(pattern).parent
        if _NOT_YET.search(str(folder)):
            continue
        named = expand(str(folder), job_id="", number="", name=spec.name.replace("/", "_"), user=user, node="")
        why = _obstacle(Path(named), Path(spec.cwd))
        if why:
            raise EjbError(Code.INVALID, f"the output cannot be written: {why}", where=named, hint=f"mkdir -p {named}")


class Outputs:
    """:func:`check_output` for many jobs that come at once: a folder that they share is looked at once for them all.

    No question is answered by a look that began before it: a folder may have been made in between.
    """

    def __init__(self) -> None:
        self._about_to: dict[tuple[str, ...], asyncio.Task[EjbError | None]] = {}

    async def check(self, spec: JobSpec, user: str) -> None:
        """Raise EjbError (INVALID) as :func:`check_output` does, in a thread."""
        key = (spec.cwd, spec.output, spec.error or "", spec.name, user)
        look = self._about_to.get(key)
        if look is None:
            look = self._about_to[key] = asyncio.create_task(self._look(key, spec, user), name="output")
        if (refused := await asyncio.shield(look)) is not None:
            raise refused

    async def _look(self, key: tuple[str, ...], spec: JobSpec, user: str) -> EjbError | None:
        del self._about_to[key]
        try:
            await asyncio.to_thread(check_output, spec, user)
        except EjbError as refused:
            return refused
        return None


def _obstacle(folder: Path, cwd: Path) -> str:
    try:
        if folder.is_dir():
            return "" if os.access(folder, os.W_OK | os.X_OK) else "no file may be made in this folder"
        there = folder
        while not there.exists():
            there = there.parent
        known = there != Path(there.anchor) and cwd.is_dir() and there.stat().st_dev == cwd.stat().st_dev
    except OSError:
        return ""
    return "there is no such folder" if known else ""


def literally(path: str) -> Path:
    """The pattern that a batch system expands to just this path."""
    return Path(path.replace("%", "%%"))


def server_in(batch_id: str | None) -> str:
    """`.head` of PBS's `128.head`; "" where a batch job's id names no server."""
    _, dot, server = (batch_id or "").partition(".")
    return dot + server


def output_paths(
    spec: JobSpec,
    job_id: str,
    user: str,
    *,
    node: str,
    number: str | None = None,
    element: tuple[str, int] | None = None,
    server: str = "",
) -> tuple[str, str | None]:
    """Absolute paths of standard output and standard error (None: into standard output).

    `number`: what the job knows as SLURM_JOB_ID; without it, its id. `element`: its array's number, and its index.
    `server`: of PBS, its name with a dot before it.
    """
    safe_name = spec.name.replace("/", "_")  # a name is not a way into another folder

    def path(pattern: str) -> str:
        return str(
            Path(spec.cwd)
            / expand(
                pattern,
                job_id=job_id,
                number=number or job_id,
                name=safe_name,
                user=user,
                node=node,
                element=element,
                server=server,
            )
        )

    return path(spec.output), path(spec.error) if spec.error is not None else None
