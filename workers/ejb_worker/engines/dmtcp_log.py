"""What DMTCP 5.0 says of a rank: into a file of the worker's instead of the program's own output.

It tells why DMTCP has ended a process. What a shell has executed in its place DMTCP leaves without that file, and
speaks to the error output.
"""

from __future__ import annotations

import os
from typing import Dict

from . import dmtcp_images as images
from .base import EpochContext

MOST_BYTES = 64 << 10
MOST_TEXT = 500


def keep_words(epoch: EpochContext, name: str, env: Dict[str, str]) -> None:
    """Has what is said of a process of the computation kept from its start on."""
    env["JALIB_STDERR_PATH"] = _path(epoch, name)


def read_last_words(epoch: EpochContext, rank: int) -> str:
    """The last words of a rank that was ended, in one line."""
    try:
        with open(_path(epoch, images.member(rank)), encoding="utf-8", errors="replace") as file:
            return " ".join(file.read(MOST_BYTES).split())[-MOST_TEXT:]
    except OSError:
        return ""


def _path(epoch: EpochContext, name: str) -> str:
    return os.path.join(epoch.scratch(), "said-%s" % name)
