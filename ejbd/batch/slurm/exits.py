"""The exit file that a job's own script writes: the last word where the batch system has forgotten the job."""

from __future__ import annotations

from pathlib import Path

from ejbd.batch.base import Outcome
from ejbd.core.view import BatchState


def exit_file_outcome(path: Path) -> Outcome | None:
    """How the script ended and when; None where it has written nothing (yet), or nothing that is an exit code."""
    try:
        text, when = path.read_text(errors="replace"), path.stat().st_mtime
    except OSError:
        return None
    word = text.strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255):
        return None
    code = int(word)
    return Outcome(BatchState.COMPLETED if code == 0 else BatchState.FAILED, code, when, "exit-file")
