"""Recorded sessions of real PBS commands: what was typed, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "unit" / "recorded" / "pbs"

_SESSION = re.compile(r"^\$ ([^\n]*)\n--stdout--\n(.*?)--stderr--\n(.*?)--exit (-?\d+)--$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """One command of a recording."""

    command: str
    stdout: str
    stderr: str
    code: int


def sessions(name: str) -> list[Said]:
    """All commands of a recording, in their order."""
    text = (FOLDER / f"{name}.txt").read_text()
    return [Said(m[1], m[2], m[3], int(m[4])) for m in _SESSION.finditer(text)]


def said(name: str, command: str, number: int = 0) -> Said:
    """The answer to a command, the `number`th time that it was typed."""
    return [one for one in sessions(name) if one.command == command][number]
