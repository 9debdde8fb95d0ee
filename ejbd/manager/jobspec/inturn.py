"""Which launch of a script is known to come right behind the one before it: what it needs can be queued ahead then.

A guess by the text that may be wrong: what was queued in vain is given back. So what takes time is not told from what
does not, but what surely takes none from all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ejbd._workers.ejb_worker.programs import is_assignment

_TAKES_NO_TIME = frozenset(
    {
        *("[", "[[", "((", "test", ":", "true", "false", "echo", "printf", "cd", "export", "set", "exit", "date"),
        *("touch", "mkdir", "mv", "ln", "hostname", "ulimit", "umask", "unset"),
    }
)


@dataclass(slots=True)
class InTurn:
    """`lost`: how many launches there have been does not show any more."""

    lost: bool = False
    _quick: bool = False  # there was a launch, and what stands behind it takes no time

    def launch(self, *, certain: bool) -> bool:
        """Whether a launch comes right behind the one before. `certain`: it is in no loop, and hangs on no launch."""
        self.lost = self.lost or not certain
        found = self._quick and not self.lost
        self._quick = True
        return found

    def command(self, words: Sequence[str]) -> None:
        """A command that is no launch."""
        name = next((word for word in words if not is_assignment(word)), ":")
        if name not in _TAKES_NO_TIME or any("$(" in word or "`" in word for word in words):
            self._quick = False
