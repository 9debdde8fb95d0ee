"""The command line of an application: which words are its launcher's, and what becomes of it at another width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, Usage, program
from ejbd.errors import Code, EjbError

_COUNTS = ("-n", "-np", "--n", "--np", "-c", "--ntasks")
RANKS = "{ranks}"


@dataclass(frozen=True, slots=True)
class Command:
    """A launcher's words (none: it starts itself) and a program's."""

    launcher: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return self.launcher + self.program

    def at_width(self, ranks: int) -> Command:
        """With so many ranks: by the launcher's count, and by `{ranks}` wherever it stands."""
        launcher = list(self.launcher)
        for at, word in enumerate(self.launcher):
            if at and self.launcher[at - 1] in _counts(self.launcher[0]):
                launcher[at] = str(ranks)
            elif word.startswith("--ntasks="):
                launcher[at] = f"--ntasks={ranks}"
        return Command(
            tuple(word.replace(RANKS, str(ranks)) for word in launcher),
            tuple(word.replace(RANKS, str(ranks)) for word in self.program),
        )

    def with_options(self, options: Sequence[str]) -> Command:
        """With options (each up to its last value) in the place of the same ones, or added behind the rest."""
        words = list(self.program)
        for option in _each(options):
            head, value = option[:-1] or option, option[-1]
            at = _place(words, head)
            if at < 0:
                words += option
            elif len(option) > 1:
                words[at + len(head)] = value
        return replace(self, program=tuple(words))

    def without(self, dropped: Sequence[str]) -> Command:
        """Without some of the program's words."""
        return replace(self, program=tuple(word for word in self.program if word not in dropped))

    def option(self, name: str) -> str | None:
        """The value of an option; None where it is not there."""
        for at, word in enumerate(self.program):
            if word == name and at + 1 < len(self.program):
                return self.program[at + 1]
            if word.startswith(f"{name}="):
                return word[len(name) + 1 :]
        return None


def split(words: Sequence[str]) -> Command:
    """A command line as launcher and program. Raises EjbError where there is no program."""
    if not words:
        raise EjbError(Code.INVALID, "no command is given", hint="ejb profile test NAME -- mpirun -np 4 program ...")
    name = words[0].rpartition("/")[2]
    if name not in LAUNCHERS:
        return Command((), tuple(words))
    try:
        theirs = program(name, words[1:])
    except Usage as error:
        raise EjbError(Code.INVALID, f"{name} is not understood: {error}") from None
    if not theirs:
        raise EjbError(Code.INVALID, f"{name} starts no program", hint="give the program behind its options")
    return Command(tuple(words[: len(words) - len(theirs)]), tuple(theirs))


def _counts(launcher: str) -> tuple[str, ...]:
    if launcher.rpartition("/")[2] == "srun":  # there -c are processors of a rank
        return tuple(one for one in _COUNTS if one != "-c")
    return _COUNTS


def _each(options: Sequence[str]) -> list[list[str]]:
    """`-var a 0 -log x` as (-var a 0) and (-log x)."""
    found: list[list[str]] = []
    for word in options:
        if (word.startswith("-") and len(word) > 1 and not word[1].isdigit()) or not found:
            found.append([])
        found[-1].append(word)
    return found


def _place(words: Sequence[str], head: Sequence[str]) -> int:
    for at in range(1, len(words) - len(head) + 1):
        if list(words[at : at + len(head)]) == list(head):
            return at
    return -1
