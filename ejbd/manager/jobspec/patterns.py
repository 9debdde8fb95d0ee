"""sbatch's % signs in the names of output files; :mod:`ejbd.manager.facts.batchjob.output` fills them in."""

from __future__ import annotations

import re

from ejbd.manager.jobspec.findings import CONTROL_HINT, has_control, invalid, shortened

DEFAULT_OUTPUT = "ejb-%i.out"  # EJB's own id, by which its user knows the job
SBATCHS_OUTPUT, SBATCHS_ARRAY_OUTPUT = "slurm-%j.out", "slurm-%A_%a.out"
_SIGN = re.compile(r"%(?P<width>[0-9]*)(?P<letter>.?)", re.DOTALL)
_KNOWN = "jJAxuNnstaS%"
_LONGEST = 4096


def check_pattern(pattern: str, where: str) -> None:
    """Raise EjbError (INVALID) unless every sign in the pattern is one that EJB can fill in."""
    if not pattern:
        raise invalid(where, "the name of an output file is empty")
    if has_control(pattern):
        raise invalid(where, f"the file name {shortened(pattern)} holds a control character", CONTROL_HINT)
    if len(pattern) > _LONGEST:
        raise invalid(where, f"a file name of {len(pattern)} characters is too long")
    if "\\" in pattern:  # sbatch takes it for a switch that turns the signs off
        raise invalid(where, f"the file name {shortened(pattern)} holds a backslash", "name the file without one")
    for match in _SIGN.finditer(pattern):
        letter = match["letter"]
        if letter not in _KNOWN or not letter:
            hint = "%j and %A (job id), %x (name), %u (user), %N (first node) and %% are known"
            message = f"the file name {shortened(pattern)} holds the unknown sign {shortened(match[0])}"
            raise invalid(where, message, hint)
