"""The command line of an application: which words are its launcher's, and what becomes of it at another width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, Usage, program
from ejbd._workers.ejb_worker.profiles.starting import RANKS
from ejbd._workers.ejb_worker.profiles.wrapping import NotSeen, Wrapped, unwrapped
from ejbd.errors import Code, EjbError

ANY_FOLDER = "."  # each run has a copy of the case: a command that names its folder would be in another one
_COUNTS = ("-n", "-np", "--n", "--np", "-c", "--ntasks")


@dataclass(frozen=True, slots=True)
class Command:
    """A launcher's words (none: it starts itself), a container's (none: it is in none) and a program's."""

    launcher: tuple[str, ...]
    container: Wrapped

    @property
    def program(self) -> tuple[str, ...]:
        return tuple(self.container.program)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.launcher, *self.container.wrapper, *self.program)

    def at_width(self, ranks: int) -> Command:
        """Its launcher with so many ranks: by its count, and by `{ranks}` wherever that stands."""
        launcher = list(self.launcher)
        for at, word in enumerate(self.launcher):
            if at and self.launcher[at - 1] in _counts(self.launcher[0]):
                launcher[at] = str(ranks)
            elif word.startswith("--ntasks="):
                launcher[at] = f"--ntasks={ranks}"
        return replace(self, launcher=tuple(word.replace(RANKS, str(ranks)) for word in launcher))


def split(words: Sequence[str]) -> Command:
    """A command line as launcher, container and program. Raises EjbError where no program is seen."""
    if not words:
        raise EjbError(Code.INVALID, "no command is given", hint="ejb profile test NAME -- mpirun -np 4 program ...")
    name = words[0].rpartition("/")[2]
    if name not in LAUNCHERS:
        return Command((), _seen(words))
    try:
        theirs = program(name, words[1:])
    except Usage as error:
        raise EjbError(Code.INVALID, f"{name} is not understood: {error}") from None
    if not theirs:
        raise EjbError(Code.INVALID, f"{name} starts no program", hint="give the program behind its options")
    return Command(tuple(words[: len(words) - len(theirs)]), _seen(theirs))


def _seen(words: Sequence[str]) -> Wrapped:
    try:
        return unwrapped(words, ANY_FOLDER)
    except NotSeen as error:
        raise EjbError(Code.INVALID, str(error)) from None


def _counts(launcher: str) -> tuple[str, ...]:
    if launcher.rpartition("/")[2] == "srun":  # there -c are processors of a rank
        return tuple(one for one in _COUNTS if one != "-c")
    return _COUNTS
