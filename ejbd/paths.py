"""Where EJB keeps its things unless told otherwise. Imports nothing slow: `ejb` needs it at every start."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

SOCKET_NAME = "ejbd.sock"


def default_state_dir() -> Path:
    """XDG state folder of this user: `$XDG_STATE_HOME/ejbd`, else `~/.local/state/ejbd`."""
    base = os.environ.get("XDG_STATE_HOME")
    home = Path(base) if base else Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state"
    return home / "ejbd"
