"""Pools of this user, by their names: where each one's daemon is. They lie where every node sees them."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any

from ejbd.client.messages import Place
from ejbd.errors import Code, EjbError
from ejbd.files.paths import default_state_dir

FILE = "pool.json"
LEFT = "left.json"  # of a pool that has ended: the jobs that it has left
TOKEN = "token"
CERTIFICATE = "certificate.pem"
_JOB = "job"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def folder_of(name: str) -> Path:
    """Of the pool of that name, whether it is there or not. Raises EjbError for what is no name."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits, and _ . - behind the first"
        raise EjbError(Code.INVALID, f"{name!r} is no name of a pool", where="--pool", hint=hint)
    return default_state_dir() / "pools" / name


def names() -> list[str]:
    """All that were started and not stopped, by their folders."""
    base = default_state_dir() / "pools"
    return sorted(path.name for path in base.iterdir() if path.is_dir()) if base.is_dir() else []


def read(name: str) -> dict[str, Any] | None:
    """What a pool says of itself; None: it does not run yet, or no more."""
    return _json(folder_of(name) / FILE)


def left(name: str) -> list[str] | None:
    """The jobs that a pool has left at its end; None: it has not ended so."""
    found = _json(folder_of(name) / LEFT)
    return None if found is None else list(found["jobs"])


def job_of(name: str) -> str | None:
    """The job that a pool is, as this user last started it."""
    try:
        return (folder_of(name) / _JOB).read_text().strip() or None
    except OSError:
        return None


def begun(name: str) -> tuple[Path, bool]:
    """The folder of a pool that is to be started, and whether it is new. Raises EjbError (CONFLICT).

    One that has ended and has left jobs is started again, and goes on with them.
    """
    folder = folder_of(name)
    if folder.exists() and left(name) is None:
        raise EjbError(Code.CONFLICT, f"there is a pool {name} already", hint=f"ejb pool stop {name}, or another name")
    new = not folder.exists()
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder, new


def note_job(name: str, job: str) -> None:
    """Which job a pool is that was started."""
    (folder_of(name) / _JOB).write_text(job)


def forget(name: str) -> None:
    """Remove what lies of a pool, with the spool and the database of its daemon."""
    shutil.rmtree(folder_of(name), ignore_errors=True)


def place_of(name: str) -> Place:
    """How the daemon of a pool that runs is reached: by its socket on its own node, from elsewhere by https.

    Raises EjbError: NOT_FOUND where none runs, UNREACHABLE where it answers on its own node alone.
    """
    found = read(name)
    if found is None:
        why = f"there is no pool {name} that runs" if name not in names() else f"the pool {name} does not run yet"
        if left(name) is not None:
            why = f"the pool {name} has ended"
        raise EjbError(Code.NOT_FOUND, why, where="--pool", hint="ejb pool list; ejb pool start -N 4 -t 8:00:00")
    here = str(found["socket"])
    if found["host"] == socket.gethostname() and Path(here).is_socket():
        return Place(None, here, None)
    folder = folder_of(name)
    if found.get("url") is None:
        why = f"the daemon of the pool {name} answers on {found['host']} alone: its node has no openssl"
        hint = f"srun --jobid={found['batch_job']} --overlap -N1 -w {found['host']} ejb submit --pool {name} ..."
        raise EjbError(Code.UNREACHABLE, why, where="--pool", hint=hint)
    try:
        token = (folder / TOKEN).read_text().strip()
    except OSError as error:
        raise EjbError(Code.UNREACHABLE, f"its token cannot be read: {error}", where="--pool") from None
    return Place(str(found["url"]), here, token, str(folder / CERTIFICATE))


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found
