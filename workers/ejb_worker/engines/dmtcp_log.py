"""What DMTCP 5.0 says of a rank: into a file of the worker's instead of the program's own output.

It tells why DMTCP has ended a process, and which calls of the program it has refused. A program that is refused one
mostly ends by itself, with a code of its own, that it would not have ended with alone. What a shell has executed in its
place DMTCP leaves without that file, and speaks to the error output.
"""

from __future__ import annotations

import os
from typing import Dict

from . import dmtcp_images as images
from .base import EpochContext

MOST_BYTES = 64 << 10
MOST_TEXT = 500
_WARNINGS = "file:eventwrappers.cpp=warn"
"""Warnings of one source are asked for. Others tell of calls that a program does well without."""
_REFUSALS = {"Inotify not yet supported by DMTCP": "inotify"}
"""What is said, and what was refused."""


def keep_words(epoch: EpochContext, name: str, env: Dict[str, str]) -> None:
    """Has what is said of a process of the computation kept from its start on."""
    env["JALIB_STDERR_PATH"] = _path(epoch, name)
    env["DMTCP_LOG_OVERRIDES"] = _WARNINGS


def find_refusal(epoch: EpochContext, rank: int) -> str:
    """What was refused to a rank or to what it has started; "": nothing that is known of."""
    errors = os.path.join(epoch.folder, "output", "%d.err" % rank)
    said = _read(_path(epoch, images.member(rank))) + _read(errors)
    return next((what for words, what in _REFUSALS.items() if words in said), "")


def read_last_words(epoch: EpochContext, rank: int) -> str:
    """The last words of a rank that was ended, in one line."""
    return " ".join(_read(_path(epoch, images.member(rank))).split())[-MOST_TEXT:]


def _path(epoch: EpochContext, name: str) -> str:
    return os.path.join(epoch.scratch(), "said-%s" % name)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return ""
