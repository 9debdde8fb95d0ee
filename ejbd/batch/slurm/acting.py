"""Slurm's commands that act on jobs, for one user: run by the daemon itself as its own, or by `ejb-as` as another."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ejbd.batch.base import with_tag
from ejbd.batch.helped import Helped
from ejbd.batch.process import HERE, CommandResult, Commands, Surroundings
from ejbd.batch.slurm.commands import Sbatch
from ejbd.batch.slurm.environments import in_memory
from ejbd.errors import BatchError
from ejbd.options.sbatch import BY_LETTER, Argument, matching


@dataclass(frozen=True, slots=True)
class Submission:
    """What an `sbatch` is started with: `users`, the environment that it hands on (None: its own); `wording`, of its
    user's time zone and language. `own`: sbatch is started in `users`, since it reads no file."""

    sbatch: Sbatch
    stdin: str | None
    users: Mapping[str, str] | None
    wording: Mapping[str, str]
    surroundings: Surroundings = HERE
    own: bool = False


class Acts(Protocol):
    """What is done for `user`, by the entry of that user."""

    @property
    def user(self) -> pwd.struct_passwd: ...

    async def submit(self, submission: Submission) -> CommandResult:
        """Raises CommandTimedOut, BatchError where it was surely not taken, SubmitOutcomeUnknown where it may be."""
        ...

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """`scancel` or `scontrol`. Raises BatchError."""
        ...


@dataclass(frozen=True, slots=True)
class OwnActs:
    """By the daemon itself, for its own user. `environment`: what sbatch is started in."""

    commands: Commands
    user: pwd.struct_passwd
    environment: Mapping[str, str]

    async def submit(self, submission: Submission) -> CommandResult:
        sbatch, descriptor = submission.sbatch, None
        environment = {**self.environment, **submission.wording}
        if submission.users is not None and submission.own:
            environment = dict(submission.users)
        elif submission.users is not None:
            descriptor = in_memory(submission.users)
            # By its path: for each component of a heterogeneous job sbatch reads it anew, from its beginning.
            sbatch = replace(sbatch, environment_file=f"/proc/self/fd/{descriptor}")
        try:
            return await self.commands.run(
                _argv(sbatch),
                timeout_s=sbatch.timeout_s,
                stdin=submission.stdin,
                environment=environment,
                surroundings=submission.surroundings,
                descriptors=() if descriptor is None else (descriptor,),
            )
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        return await self.commands.run(argv, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class HelpedActs:
    """By `ejb-as`, which makes the commands itself of what it is told."""

    helped: Helped

    @property
    def user(self) -> pwd.struct_passwd:
        return self.helped.user

    async def submit(self, submission: Submission) -> CommandResult:
        sbatch, around = submission.sbatch, submission.surroundings
        request, operands = sbatch.request, sbatch.operands()
        words = _argv(replace(sbatch, test_only=False))[1:]
        options = one_word_each(words[: len(words) - len(operands)])
        told: dict[str, Any] = {
            "options": [word for word in options if not word.startswith("--comment=")],
            "script": submission.stdin or "",
            "cwd": str(around.directory or "/"),
            "wording": {"LC_ALL": "C", "TZ": "UTC0", **submission.wording},
            "limits": dict(around.limits),
        }
        if not sbatch.test_only:
            told |= {"tag": request.tag, "comment": with_tag(request.comment, request.tag).removesuffix(request.tag)}
        if operands:
            told |= {"file": operands[0], "args": operands[1:]}
        if submission.users is not None:
            told["started_in" if submission.own else "environment"] = dict(submission.users)
        if around.umask is not None:
            told["umask"] = around.umask
        return await self.helped.asked("sbatch", "test_only" if sbatch.test_only else "submit", sbatch.timeout_s, told)

    async def run(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        match list(argv):
            case ["scancel", *ids]:
                return await self.helped.asked("scancel", "cancel", timeout_s, {"ids": ids})
            case ["scontrol", "update", job, *settings]:
                wanted = dict(setting.split("=", 1) for setting in settings)
                told = {"id": job.removeprefix("JobId="), "set": wanted}
                return await self.helped.asked("scontrol", "update", timeout_s, told)
            case ["scontrol", change, job]:
                return await self.helped.asked("scontrol", "update", timeout_s, {"change": change, "id": job})
        raise BatchError(f"{argv[0]} is not run for another user", transient=False)


def _argv(sbatch: Sbatch) -> list[str]:
    try:
        return sbatch.argv()
    except ValueError as error:
        raise BatchError(f"Slurm cannot take the job: {error}", transient=False) from error


def one_word_each(words: Sequence[str]) -> list[str]:
    """sbatch's options as `--name=value` or `--name`, by their full names. Raises BatchError for what is none."""
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            known = matching(name)
            option = known[0] if len(known) == 1 else None
        else:
            option = BY_LETTER.get(word[1:2]) if word.startswith("-") else None
            value = word[2:].removeprefix("=") if option is not None and option.argument is not Argument.NONE else ""
            equals = "=" if value else ""
        if option is None or (option.argument is Argument.NONE and equals):
            raise BatchError(f"{word!r} is not an sbatch option", transient=False)
        if option.argument is Argument.REQUIRED and not equals:
            if not rest:
                raise BatchError(f"the sbatch option {word!r} needs a value", transient=False)
            equals, value = "=", rest.pop(0)
        found.append(option.spelling + equals + value)
        if not word.startswith("--") and option.argument is Argument.NONE and word[2:]:  # letters in one word
            rest.insert(0, f"-{word[2:]}")
    return found
