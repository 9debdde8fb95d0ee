"""Which EJB this is: the version, and the commit with its date, by the build or by git in a checkout."""

from __future__ import annotations

import os
from importlib import import_module

from ejbd import __version__

GIT_S = 5.0


def told(program: str) -> str:
    """One line: `ejb 0.1.0 (0e54cff70c 2026-11-25)`; without the brackets where nothing knows the commit."""
    known = built() or checked_out(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    return f"{program} {__version__} ({known})" if known else f"{program} {__version__}"


def built() -> str:
    """Commit and date as the build has written them down; empty in a checkout."""
    try:
        return str(import_module("ejbd.release.stamp").BUILT)
    except ImportError:
        return ""


def checked_out(root: str) -> str:
    """Commit and date of the checkout at `root`, with a + where files differ from it; empty without git."""
    if not os.path.exists(os.path.join(root, ".git")):  # noqa: PTH110, PTH118
        return ""
    import subprocess

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=GIT_S, check=True)
        return done.stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        commit, date = git("log", "-1", "--format=%h %cs").split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return f"{commit}{changed} {date}"
