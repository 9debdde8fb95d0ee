"""The site's own command of the name by which `ejb` was called: it answers for jobs that are not EJB's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def own_command(name: str) -> str | None:
    """The first program of that name on the PATH that is no link to an `ejb`; None where there is none."""
    ours = Path(sys.argv[0]).resolve() if "/" in sys.argv[0] else None
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found is None:
            continue
        target = Path(found).resolve()
        if target != ours and target.name != "ejb":
            return found
    return None


def become(name: str, words: Sequence[str]) -> None:
    """Go on as the site's own command, where there is one. Where that ends its caller, as a job that puts itself back
    into the queue, nothing may be left to do once it is done."""
    command = own_command(name)
    if command is not None:
        sys.stdout.flush()
        os.execv(command, [command, *words])


def ask(name: str, words: Sequence[str]) -> int | None:
    """Run the site's own command; its exit code, None where there is none."""
    command = own_command(name)
    if command is None:
        return None
    sys.stdout.flush()
    return subprocess.run([command, *words], check=False).returncode


def hand_on(name: str, words: Sequence[str], given: bytes) -> int | None:
    """As :func:`ask`; `given`: what was read of the standard input already."""
    command = own_command(name)
    if command is None:
        return None
    sys.stdout.flush()
    return subprocess.run([command, *words], check=False, input=given or None).returncode


ANSWER_WITHIN_S = 60.0  # Slurm's own commands try again for that long where the controller does not answer


def query(name: str, words: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str] | None:
    """What the site's own command answers, with `given` as its standard input; None where there is none, or where it
    does not answer in time."""
    command = own_command(name)
    if command is None:
        return None
    try:
        return subprocess.run(
            [name, *words],
            executable=command,  # which calls itself `name` in what it says
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            input=given,
            timeout=ANSWER_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return None
