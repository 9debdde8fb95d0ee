"""--signal: what a job is told some time before its end, as sbatch reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

DEFAULT_S = 60
MOST_S = 65535
_TEXT = re.compile(r"(?P<flags>(?:[RB]+:)?)(?P<signal>[A-Za-z0-9]+)(?:@(?P<seconds>[0-9]{1,9}))?", re.ASCII | re.I)
# The names that Slurm knows, with their numbers on Linux.
_NUMBERS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18,
    "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23,
}  # fmt: skip
_MOST = 64


@dataclass(frozen=True, slots=True)
class EndSignal:
    """Signal `number` goes to the ranks, or to the script's shell alone (`script`), `ahead_s` seconds before the end.

    `reserved`: "R:" was asked for, which lets the job begin where its nodes are reserved soon after.
    """

    number: int
    ahead_s: int = DEFAULT_S
    script: bool = False
    reserved: bool = False

    @property
    def name(self) -> str:
        """USR1, or the bare number where it has no name."""
        return next((name for name, number in _NUMBERS.items() if number == self.number), str(self.number))

    @classmethod
    def read(cls, text: str) -> Self:
        """[R][B]:SIGNAL[@SECONDS], the signal by number or name. Raises ValueError."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(text)
        word = match["signal"].upper().removeprefix("SIG")
        number = int(word) if word.isdigit() else _NUMBERS.get(word, 0)
        ahead_s = DEFAULT_S if match["seconds"] is None else int(match["seconds"])
        if not 1 <= number <= _MOST or ahead_s > MOST_S:
            raise ValueError(text)
        flags = match["flags"].upper()
        return cls(number, ahead_s, "B" in flags, "R" in flags)
