"""The command line of an application: which words are its launcher's, and what becomes of it at another width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, Usage, program
from ejbd._workers.ejb_worker.profiles.starting import RANKS
from ejbd.errors import Code, EjbError

_COUNTS = ("-n", "-np", "--n", "--np", "-c", "--ntasks")


@dataclass(frozen=True, slots=True)
class Command:
    """A launcher's words (none: it starts itself) and a program's."""

    launcher: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return self.launcher + self.program

    def at_width(self, ranks: int) -> Command:
        """Its launcher with so many ranks: by its count, and by `{ranks}` wherever that stands."""
        launcher = list(self.launcher)
        for at, word in enumerate(self.launcher):
            if at and self.launcher[at - 1] in _counts(self.launcher[0]):
                launcher[at] = str(ranks)
            elif word.startswith("--ntasks="):
                launcher[at] = f"--ntasks={ranks}"
        return Command(tuple(word.replace(RANKS, str(ranks)) for word in launcher), self.program)


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
