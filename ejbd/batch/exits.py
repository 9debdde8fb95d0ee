"""The exit file that a job's own script writes: the last word where the batch system has forgotten the job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ejbd.batch.base import BatchEnd
from ejbd.core.view import BatchState
from ejbd.files.userfiles import each_apart, read_plain

_LONGEST = 64  # bytes


Read = Callable[[Path, int], tuple[bytes, float]]
"""Up to so many bytes of a file of the job's user, and when it was changed. Raises OSError."""


def read_own(path: Path, most: int) -> tuple[bytes, float]:
    """Of the daemon's own user."""
    data, found = read_plain(path, most, owner=os.geteuid())
    return data, found.st_mtime


async def exit_files(
    paths: Mapping[str, Path], read: Read = read_own, user_at: Callable[[Path], str | None] = lambda _: None
) -> dict[str, BatchEnd]:
    """What the exit files of these batch jobs say; nothing where the file system does not answer.

    Those of one user after the other, those of different users (`user_at`) side by side.
    """
    of_users: dict[str | None, dict[str, Path]] = {}
    for id, path in paths.items():
        of_users.setdefault(user_at(path), {})[id] = path
    found = await each_apart((user or "", partial(_outcomes, of_one, read)) for user, of_one in of_users.items())
    return {id: outcome for some in found for id, outcome in (some or {}).items()}


def _outcomes(paths: Mapping[str, Path], read: Read) -> dict[str, BatchEnd]:
    found = {id: exit_file_outcome(path, read) for id, path in paths.items()}
    return {id: outcome for id, outcome in found.items() if outcome is not None}


def exit_file_outcome(path: Path, read: Read = read_own) -> BatchEnd | None:
    """How the script ended and when; None where it has written nothing (yet), or nothing that is an exit code."""
    try:
        data, changed_s = read(path, _LONGEST)
    except OSError:
        return None
    word = data.decode(errors="replace").strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255):
        return None
    code = int(word)
    return BatchEnd(BatchState.COMPLETED if code == 0 else BatchState.FAILED, code, changed_s, "exit-file")
