"""What is started at a width, the first time and every other: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ejbd.profiles.command import Command
from ejbd.profiles.filling import edited, filled
from ejbd.profiles.profile import Profile

SIZE = "EJB_SIZE"
RESTART = "EJB_RESTART_DIR"


@dataclass(frozen=True, slots=True)
class Start:
    """One launch: commands before it (for a shell, in the application's folder, once), its words, what its environment
    has beside, and an input to be written (path, text) first."""

    prepare: tuple[str, ...]
    words: tuple[str, ...]
    env: Mapping[str, str]
    input: tuple[str, str] | None = None


def start(
    profile: Profile,
    command: Command,
    values: Mapping[str, str],
    *,
    ranks: int,
    before: int | None,
    epoch: int,
    newest_state: str = "",
    input_text: str | None = None,
) -> Start:
    """The launch of an epoch at a width. `before`: the ranks that wrote the state; None: it is the first.

    `newest_state`: the state file that was written last. `input_text`: of the file {input}, where the profile edits it.
    """
    known = {**values, "ranks": str(ranks), "epoch": str(epoch), "newest state": newest_state}
    known["before"] = str(ranks if before is None else before)
    resume, here = profile.resume, command.at_width(ranks)
    written: tuple[str, str] | None = None
    if (before is not None or resume.fresh) and resume.argv != "same":
        here = here.with_options([filled(word, known) for word in resume.argv])
    if before is not None and resume.input and input_text is not None:
        copy = f"{values['input']}.resumed"
        written = copy, edited(input_text, {key: filled(value, known) for key, value in resume.input.items()})
        here = Command(here.launcher, tuple(copy if word == values["input"] else word for word in here.program))
    if ranks == 1:
        here = here.without(resume.alone_without)
    other = before is not None and before != ranks
    prepare = tuple(filled(one, known, for_shell=True) for one in resume.prepare) if other else ()
    env = {SIZE: str(ranks)} | ({RESTART: "."} if before is not None else {})
    return Start(prepare, here.words, env, written)
