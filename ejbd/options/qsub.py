"""Every option of qsub, OpenPBS's and Torque's, and what EJB makes of it where a #PBS line says it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What happens to an option."""

    UNDERSTOOD = "understood"  # said again in sbatch's words, in which a JobSpec is read
    SHARED = "shared"  # handed on to every subjob in front of PBS; Slurm has nothing like it
    RIGID = "rigid"  # only a passed-through job in front of PBS can keep it
    DROPPED = "dropped"  # EJB has its own way, and the answer says so
    REFUSED = "refused"  # never taken


@dataclass(frozen=True, slots=True)
class Option:
    """One option by its letter: whether a value follows, what becomes of it, and why."""

    letter: str
    valued: bool
    use: Use
    why: str = ""

    @property
    def spelling(self) -> str:
        return f"-{self.letter}"


_TERMINAL = "a job with a terminal would hold its processors while its user does not type, and could not move with it"

_TABLE: tuple[tuple[Use, bool, str, str], ...] = (
    # use, whether a value follows, letters, why
    (Use.UNDERSTOOD, True, "aAdejJklmMNoqrStvwW", ""),
    (Use.UNDERSTOOD, False, "hnV", ""),
    (Use.SHARED, True, "pP", ""),
    (Use.RIGID, True, "KLT", "EJB does not know what it would mean for each subjob"),
    (Use.DROPPED, True, "c", "EJB makes checkpoints itself (#EJB checkpoint=...)"),
    (Use.DROPPED, True, "R", "EJB writes the output where it belongs, as it comes"),
    (Use.DROPPED, True, "b", "it concerns qsub itself"),
    (Use.DROPPED, False, "fzE", "it concerns qsub itself"),
    (Use.REFUSED, False, "IXx", _TERMINAL),
    (Use.REFUSED, True, "u", "a job runs as the user that submits it"),
    (Use.REFUSED, True, "C", "lines for PBS begin with #PBS here"),
    (Use.REFUSED, True, "D", "the root of a job's file system stays as it is"),
    (Use.REFUSED, True, "F", "write the arguments behind the script's name: ejb submit SCRIPT ARGS"),
)

BY_LETTER: dict[str, Option] = {
    letter: Option(letter, valued, use, why) for use, valued, letters, why in _TABLE for letter in letters
}
