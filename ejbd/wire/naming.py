"""What an application is called, where its user has not said it: by the name of the job, or of its program."""

from __future__ import annotations

import re

LONGEST = 256
_SCRIPT = re.compile(r"\.(?:sh|bash|csh|zsh|slurm|sbatch|sb|job|pbs|cmd)$", re.IGNORECASE)
_NUMBERED = re.compile(r"[-_.#]+[0-9]+$")


def application_name(job_name: str) -> str:
    """The job's name without the ending of a script and without a number behind a separator.

    `heat-012.sh` and `heat-013.sh` are runs of `heat`; `fig8` stays, since its number is a part of a word.
    """
    name = job_name.strip()
    shorter = _NUMBERED.sub("", _SCRIPT.sub("", name))
    return (shorter or name)[:LONGEST]
