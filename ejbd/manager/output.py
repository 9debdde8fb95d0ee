"""Where a job's output goes: sbatch's file name patterns, with the number that the job knows itself by."""

from __future__ import annotations

import re
from pathlib import Path

from ejbd.manager.jobspec import JobSpec

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")


def expand(pattern: str, *, job_id: str, number: str, name: str, user: str, node: str) -> str:
    """Expand %j %J %A (the batch system's number), %x (name), %u (user), %N (first node), %n %t %s (0), %a (0) and %%;
    %i, which only the default name has, is EJB's own id. Others stay.
    """
    values = {"i": job_id, "j": number, "J": number, "A": number, "x": name, "u": user, "N": node, "%": "%"}
    values.update(dict.fromkeys("nsta", "0"))

    def one(match: re.Match[str]) -> str:
        width, letter = match.groups()
        value = values.get(letter)
        if value is None:
            return match.group(0)
        return value.rjust(min(int(width), 10), "0") if width and value.isalnum() else value

    return _PATTERN.sub(one, pattern)


def literally(path: str) -> Path:
    """The pattern that a batch system expands to just this path."""
    return Path(path.replace("%", "%%"))


def output_paths(
    spec: JobSpec, job_id: str, user: str, *, node: str, number: str | None = None
) -> tuple[str, str | None]:
    """Absolute paths of standard output and standard error (None: into standard output).

    `number`: what the job knows as SLURM_JOB_ID; without it, its id.
    """
    safe_name = spec.name.replace("/", "_")  # a name is not a way into another folder

    def path(pattern: str) -> str:
        return str(
            Path(spec.cwd)
            / expand(pattern, job_id=job_id, number=number or job_id, name=safe_name, user=user, node=node)
        )

    return path(spec.output), path(spec.error) if spec.error is not None else None
