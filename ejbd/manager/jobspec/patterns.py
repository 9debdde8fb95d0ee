"""sbatch's % signs in the names of output files."""

from __future__ import annotations

import re

from ejbd.manager.jobspec.findings import CONTROL_HINT, has_control, invalid, shortened

DEFAULT_OUTPUT = "ejb-%j.out"
_SIGN = re.compile(r"%(?P<width>[0-9]*)(?P<letter>.?)", re.DOTALL)
_KNOWN = "jAxuN%"
_LONGEST = 4096


def check_pattern(pattern: str, where: str) -> None:
    """Raise EjbError (INVALID) unless every sign in the pattern is one that :func:`expand_pattern` knows."""
    if not pattern:
        raise invalid(where, "the name of an output file is empty")
    if has_control(pattern):
        raise invalid(where, f"the file name {shortened(pattern)} holds a control character", CONTROL_HINT)
    if len(pattern) > _LONGEST:
        raise invalid(where, f"a file name of {len(pattern)} characters is too long")
    if "\\" in pattern:
        return  # sbatch: a backslash switches the signs off
    for match in _SIGN.finditer(pattern):
        letter = match["letter"]
        if letter not in _KNOWN or not letter:
            hint = "%j and %A (job id), %x (name), %u (user), %N (first node) and %% are known"
            raise invalid(where, f"the sign {shortened(match[0])} in the file name {shortened(pattern)}", hint)


def expand_pattern(pattern: str, *, job_id: str, name: str, user: str, node: str = "") -> str:
    """The file that a pattern means. `/` in what is filled in becomes `_`: a name never leads to another folder.

    As in sbatch, a number pads what is filled in with zeros (%6j, up to 10), and a backslash anywhere switches the
    signs off (and is itself left out).
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    values = {"j": job_id, "A": job_id, "x": name, "u": user, "N": node, "%": "%"}

    def fill(match: re.Match[str]) -> str:
        value = values.get(match["letter"])
        if value is None:
            return match[0]
        width = min(int(match["width"] or 0), 10) if match["letter"] in "jA" else 0
        return value.replace("/", "_").rjust(width, "0")

    return _SIGN.sub(fill, pattern)
