"""Where each user's spool is: a pattern, in which `%u` stands for the user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

USER = "%u"
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"


def checked_pattern(pattern: str) -> str:
    """The pattern itself. Raises ValueError unless it is an absolute path with one `%u` as a folder of its own."""
    parts = Path(pattern).parts
    if not pattern.startswith("/") or parts.count(USER) != 1 or pattern.count("%") != 1 or ".." in parts:
        raise ValueError("must be an absolute path with %u as one of its folders, such as /scratch/%u/.ejb")
    return str(Path(pattern))


@dataclass(frozen=True, slots=True)
class SpoolPattern:
    """`text` as :func:`checked_pattern` lets it through."""

    text: str

    def of(self, user: str) -> Path:
        """A user's spool. Raises ValueError for what is no name of a user."""
        if re.fullmatch(_NAME, user, re.ASCII) is None:
            raise ValueError(f"{user[:80]!r} is no name of a user")
        return Path(self.text.replace(USER, user))

    def user_at(self, path: Path) -> str | None:
        """The user that has the spool in which a path lies; None where it lies in none."""
        pattern = Path(self.text).parts
        parts = path.parts[: len(pattern)]
        user = parts[pattern.index(USER)] if len(parts) == len(pattern) else ""
        if re.fullmatch(_NAME, user, re.ASCII) is None or Path(*parts) != self.of(user) or ".." in path.parts:
            return None
        return user
