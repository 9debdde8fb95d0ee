"""What PBS calls a job's files: by itself, in a folder (`-o logs/`), of an array's element, and what it keeps.

As OpenPBS 23.06.06 was seen to do: `NAME.o128`, of an element `NAME.o128.3`. In a folder it is `128.head.OU`, of an
element `128[3].head.OU`. What is kept has its own name in the user's home, whatever -o says. Torque calls them
`NAME.o128` and `NAME.o128-3` everywhere. A script is for Torque where it asks for `nodes=` or has `-t`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ejbd.manager.jobspec.findings import Given

SERVER = "%S"
"""The sign for the server's name with a dot before it; nothing where the batch system has none."""
FILES = ("output", "error")
_HOME = "~/"


@dataclass(frozen=True, slots=True)
class Names:
    """`array`: of an array's elements; `torque`: as Torque has them."""

    array: bool = False
    torque: bool = False

    def plain(self, file: str) -> str:
        """The name of `output` or `error` in the folder of the submission."""
        number = "%j" if not self.array else "%A-%a" if self.torque else "%A.%a"
        return f"%x.{file[0]}{number}"

    def in_folder(self, file: str) -> str:
        """Its name in a folder that was named for it."""
        if self.torque:
            return self.plain(file)
        return f"{'%A[%a]' if self.array else '%j'}{SERVER}.{'OU' if file == 'output' else 'ER'}"

    def of(self, file: str, given: Given | None, keep: str) -> Given:
        """Where it goes. `keep`: as -k has it."""
        if file[0] in keep and "d" not in keep:
            return Given(file, _HOME + self.plain(file), given.where if given is not None else "")
        if given is None:
            return Given(file, self.plain(file), "")
        if (given.value or "").endswith("/"):
            return replace(given, value=f"{given.value}{self.in_folder(file)}")
        return given


def from_home(given: Iterable[Given], home: str | None) -> tuple[Given, ...]:
    """The settings, with files in the user's `home` where they begin with `~/` (None: not known)."""
    return tuple(
        replace(one, value=posixpath.join(home.replace("%", "%%"), (one.value or "").removeprefix(_HOME)))
        if home and one.name in FILES and (one.value or "").startswith(_HOME)
        else one
        for one in given
    )


def for_sbatch(given: Iterable[Given]) -> Iterable[Given]:
    """The settings as sbatch takes them."""
    return (replace(one, value=without_server(one.value)) if one.name in FILES and one.value else one for one in given)


def without_server(pattern: str) -> str:
    """A pattern for a batch system that has no server's name in its jobs' ids."""
    return pattern.replace(SERVER, "")
