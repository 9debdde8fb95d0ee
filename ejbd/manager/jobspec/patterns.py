"""sbatch's % signs in the names of output files; :mod:`ejbd.manager.facts.batchjob.output` fills them in."""

from __future__ import annotations

import re

from ejbd.manager.jobspec.findings import CONTROL_HINT, has_control, invalid, shortened

DEFAULT_OUTPUT = "ejb-%i.out"  # EJB's own id, by which its user knows the job
SBATCHS_OUTPUT, SBATCHS_ARRAY_OUTPUT = "slurm-%j.out", "slurm-%A_%a.out"
_SIGN = re.compile(r"%[0-9]*(?P<letter>.?)", re.DOTALL)
_KNOWN = tuple("jJAxuNnstaS%")
_LONGEST = 4096


def check_pattern(pattern: str, where: str) -> None:
    """Raise EjbError (INVALID) for what can be no name of a file."""
    if not pattern:
        raise invalid(where, "the name of an output file is empty")
    if has_control(pattern):
        raise invalid(where, f"the file name {shortened(pattern)} holds a control character", CONTROL_HINT)
    if len(pattern) > _LONGEST:
        raise invalid(where, f"a file name of {len(pattern)} characters is too long")


def as_sbatch_reads(pattern: str) -> str:
    """The pattern with what is no sign of sbatch's written as plain text: other letters stay as they are, and with a
    backslash, which is left out, all of it does."""
    if "\\" in pattern:
        return pattern.replace("\\", "").replace("%", "%%")
    return _SIGN.sub(lambda sign: sign[0] if sign["letter"] in _KNOWN else f"%{sign[0]}", pattern)
