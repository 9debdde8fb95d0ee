"""PBS's commands that act on jobs, for one user: run by the daemon itself as its own, or by `ejb-as` as another."""

from __future__ import annotations

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ejbd.batch.helped import Helped
from ejbd.batch.process import CommandResult, Commands, Surroundings
from ejbd.errors import BatchError
from ejbd.options.qsub import BY_LETTER

_MADE_THERE = frozenset({"-j", "-o", "-e"})
"""What `ejb-as` says itself: where the output goes, and the tag."""


class Acts(Protocol):
    """What is done for one user."""

    async def submit(self, argv: Sequence[str], tag: str, script: str, timeout_s: float) -> CommandResult:
        """`qsub`. Raises CommandTimedOut, BatchError where it was surely not taken, SubmitOutcomeUnknown where it may
        be."""
        ...

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """`qdel`, `qalter`, `qhold` or `qrls`. Raises BatchError."""
        ...


@dataclass(frozen=True, slots=True)
class OwnActs:
    """By the daemon itself, for its own user. `environment`: what qsub is started in."""

    commands: Commands
    environment: Mapping[str, str]

    async def submit(self, argv: Sequence[str], tag: str, script: str, timeout_s: float) -> CommandResult:
        at_root = Surroundings(directory=Path("/"))
        environment = self.environment
        return await self.commands.run(
            argv, timeout_s=timeout_s, stdin=script, environment=environment, surroundings=at_root
        )

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        return await self.commands.run(argv, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class HelpedActs:
    """By `ejb-as`, which makes the commands itself of what it is told."""

    helped: Helped

    async def submit(self, argv: Sequence[str], tag: str, script: str, timeout_s: float) -> CommandResult:
        told = {"options": one_word_each(argv[1:]), "tag": tag, "script": script}
        return await self.helped.asked("qsub", "submit", timeout_s, told)

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        match list(argv):
            case ["qdel", *ids]:
                return await self.helped.asked("qdel", "cancel", timeout_s, {"ids": ids})
            case ["qalter", *settings, id]:
                wanted = dict(setting.split("=", 1) for setting in settings if setting != "-l")
                return await self.helped.asked("qalter", "update", timeout_s, {"id": id, "set": wanted})
            case ["qhold" | "qrls" as change, "-h", "u", id]:
                return await self.helped.asked(change, "update", timeout_s, {"id": id, "change": change})
        raise BatchError(f"{argv[0]} is not run for another user", transient=False)


def one_word_each(words: Sequence[str]) -> list[str]:
    """qsub's options as letters with their values behind them, but for those that `ejb-as` says itself. Raises
    BatchError for what is none."""
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        option = BY_LETTER.get(word[1:2]) if word.startswith("-") else None
        if option is None or (len(word) > 2 and not option.valued):
            raise BatchError(f"{word[:60]!r} is no option of qsub", transient=False)
        value = word[2:]
        if option.valued and not value:
            if not rest:
                raise BatchError(f"the option {word!r} of qsub needs a value", transient=False)
            value = rest.pop(0)
        if option.spelling not in _MADE_THERE:
            found.append(option.spelling + value)
    return found


def own_environment(commands: Commands, user: pwd.struct_passwd) -> dict[str, str]:
    """What qsub is started in, which PBS passes to the job as PBS_O_...: its user, and nothing of the daemon's."""
    kept = ("PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "TZ", "LC_ALL")
    environment = commands.environment
    return {
        "PATH": environment["PATH"],
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        **{name: environment[name] for name in kept if name in environment},
    }
