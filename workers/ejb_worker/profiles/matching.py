"""Which programs a profile is for, by their words."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, List, Sequence

_INTERPRETER = re.compile(r"python[0-9.]*|bash|sh|perl|Rscript")


def matches(profile: Any, program: Sequence[str]) -> bool:
    """Whether it is for a program by its words, the launcher taken off.

    An interpreter's script or module is the program.
    """
    words: List[str] = list(program)
    if len(words) > 1 and _INTERPRETER.fullmatch(words[0].rpartition("/")[2]):
        words = words[2 if words[1] == "-m" else 1 :]
    if not words:
        return False
    name = words[0].rpartition("/")[2]
    if not any(fnmatchcase(name, pattern) for pattern in profile.match.program):
        return False
    line = getattr(profile.match, "line", "")  # a job of an older daemon's has none
    if line and not fnmatchcase(" ".join(words), line):
        return False
    return not profile.match.argv or profile.match.argv in (*words[1:], name)
