"""Pools of this user, by their names: where each one's daemon is. They lie where every node sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.files.paths import default_state_dir

FILE = "pool.json"
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
    try:
        found: dict[str, Any] = json.loads((folder_of(name) / FILE).read_text())
    except (OSError, ValueError):
        return None
    return found


def socket_of(name: str) -> str:
    """Where the daemon of a pool that runs answers. Raises EjbError."""
    found = read(name)
    if found is None:
        why = f"there is no pool {name} that runs" if name not in names() else f"the pool {name} does not run yet"
        raise EjbError(Code.NOT_FOUND, why, where="--pool", hint="ejb pool list; ejb pool start -N 4 -t 8:00:00")
    return str(found["socket"])
