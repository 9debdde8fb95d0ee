"""A folder with a short name, for a socket: its path has a limit."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ejbd.files.paths import LONGEST_SOCKET_PATH, SOCKET_NAME


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder of this user alone (0700) on this machine, for a socket with a short path. It is removed.

    Not in XDG_RUNTIME_DIR: that goes when its user's last session on the machine ends, and a batch job is none.
    """
    longest = LONGEST_SOCKET_PATH - len(f"/ejb-12345678/{SOCKET_NAME}")
    base = tempfile.gettempdir()
    made = Path(tempfile.mkdtemp(prefix="ejb-", dir=base if len(os.fsencode(base)) <= longest else "/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
