"""`ejb` in this process: a process of its own for each command would cost half a second, twenty times over."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest.mock import patch

from ejbd.cli.main import main


@dataclass(frozen=True)
class Said:
    """What the command said, and its exit code."""

    stdout: str
    stderr: str
    returncode: int


def ejb_sim(*words: str, code: int | None = 0) -> Said:
    """Run `ejb sim`; its exit code must be `code` (None: any)."""
    return ejb_command("sim", *words, code=code)


def ejb_command(*words: str, code: int | None = 0) -> Said:
    """Run a command that needs no daemon; its exit code must be `code` (None: any)."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    argv = patch.object(sys, "argv", ["ejb", *words])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = end.code
    said = Said(out.getvalue(), err.getvalue(), status if isinstance(status, int) else 0 if status is None else 1)
    assert code is None or said.returncode == code, said.stderr
    return said
