"""Which programs a profile is for, by their words."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Sequence

from ..programs import skip_interpreter


def matches(profile: Any, program: Sequence[str]) -> bool:
    """Whether it is for a program by its words, or those of a process: launcher and wrappers are taken off.

    An interpreter's script or module is the program.
    """
    at = skip_interpreter(program)
    words = [] if at is None else list(program[at:])
    if not words:
        return False
    name = words[0].rpartition("/")[2]
    if not any(fnmatchcase(name, pattern) for pattern in profile.match.program):
        return False
    lines = getattr(profile.match, "line", ())  # a job of an older daemon's has none
    if lines and not any(fnmatchcase(" ".join(words), line) for line in lines):
        return False
    return not profile.match.argv or profile.match.argv in (*words[1:], name)
