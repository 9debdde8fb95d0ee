"""The exit file of a passed-through job: how it ended, for the day on which the batch system has forgotten it.

What runs is the user's script as it is, with nothing around it. A wrapper would be what a signal of `--signal=B:`
meets, and what `scontrol show job` shows. Bash itself reads a file before the script's first line (BASH_ENV). This file
puts back what the user had there, and sets an EXIT trap. A script that sets its own has no exit file. Nor have scripts
of other interpreters, arrays, and jobs with an environment of `--export`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ejbd.manager.jobspec import Asked, JobKind, JobSpec

_BASH = re.compile(r"#!\s*(\S*/env\s+)?(\S*/)?bash(\s|$)", re.ASCII)
# Nothing in it can end the script, change its exit code, or print: the spool may be gone by then.
_WRITE = "{{ printf '%s\\n' \"$?\" >| {new} && /bin/mv -f {new} {file}; }} 2>/dev/null || :"


def write_exit(file: Path) -> str:
    """A line of shell that writes the last exit code into `file`, by a rename."""
    return _WRITE.format(new=shlex.quote(f"{file}.new"), file=shlex.quote(str(file)))


def hook_for(spec: JobSpec, exit_file: Path) -> str | None:
    """What bash is to read before the script; None where there can be no hook."""
    asked = spec.asked
    if asked is None or spec.kind is not JobKind.SCRIPT or spec.script is None or not _has_hook(spec.script, asked):
        return None
    users = asked.env.get("BASH_ENV")
    lines = [
        "unset BASH_ENV" if users is None else f"export BASH_ENV={shlex.quote(users)}",
        f"/bin/rm -f {shlex.quote(str(exit_file))} 2>/dev/null",
        f"trap {shlex.quote(write_exit(exit_file))} EXIT",
    ]
    if users:
        lines.append(f'if [ -r "{users}" ]; then . "{users}"; fi')  # as bash itself expands and reads it
    return "\n".join(lines) + "\n"


def _has_hook(script: str, asked: Asked) -> bool:
    het = any(line.split() in (["#SBATCH", "hetjob"], ["#SBATCH", "packjob"]) for line in script.split("\n"))
    return asked.whole_env and asked.array is None and not het and _BASH.match(script) is not None
