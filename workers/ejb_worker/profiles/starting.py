"""What is started at a width, the first time and every other: pure but for a port."""

from __future__ import annotations

import socket
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .filling import edited, filled, with_options

SIZE = "EJB_SIZE"
RESTART = "EJB_RESTART_DIR"
RANKS = "{ranks}"


class Start:
    """One launch: commands before it (for a shell, in the application's folder, once), its program's words, what its
    environment has beside, and an input to be written (path, text) first."""

    __slots__ = ("env", "input", "prepare", "words")

    def __init__(
        self, prepare: Sequence[str], words: Sequence[str], env: Mapping[str, str], input: Optional[Tuple[str, str]]
    ) -> None:
        self.prepare = tuple(prepare)
        self.words = tuple(words)
        self.env: Dict[str, str] = dict(env)
        self.input = input


def start(
    profile: Any,
    program: Sequence[str],
    values: Mapping[str, str],
    *,
    ranks: int,
    before: Optional[int],
    epoch: int,
    done: float = 0.0,
    newest_state: str = "",
    endpoint: Tuple[str, int] = ("localhost", 0),
    input_text: Optional[str] = None,
) -> Start:
    """The launch of an epoch at a width. `before`: the ranks that wrote the state; None: it is the first.

    `done`: how far it was then, by its own log. `newest_state`: the state file that was written last. `endpoint`: the
    host of the first rank, and a port that was free there. `input_text`: of the file {input}, where the profile edits
    it.
    """
    known = dict(values, ranks=str(ranks), epoch=str(epoch))
    known["newest state"] = newest_state
    known["head"], known["port"] = endpoint[0], str(endpoint[1])
    resume = profile.resume
    known["left"] = _left(filled(getattr(resume, "steps", ""), values), done)  # a job of an older daemon's has none
    known["before"] = str((0 if resume.fresh else ranks) if before is None else before)
    words: List[str] = [word.replace(RANKS, str(ranks)) for word in program]
    written: Optional[Tuple[str, str]] = None
    if (before is not None or resume.fresh) and resume.argv != "same":
        words = with_options(words, [filled(word, known) for word in resume.argv])
    if before is not None and resume.input and input_text is not None:
        copy = "%s.resumed" % values["input"]
        written = copy, edited(input_text, {key: filled(value, known) for key, value in resume.input.items()})
        words = [copy if word == values["input"] else word for word in words]
    if ranks == 1:
        words = [word for word in words if word not in resume.alone_without]
    other = before != ranks if before is not None else resume.fresh
    prepare = [filled(one, known, for_shell=True) for one in resume.prepare] if other else []
    variables: Mapping[str, str] = getattr(profile, "env", {})  # a job of an older daemon's has none
    env = {name: filled(value, known) for name, value in variables.items()}
    env[SIZE] = str(ranks)
    if before is not None:
        env[RESTART] = "."
    return Start(prepare, words, env, written)


def _left(steps: str, done: float) -> str:
    """What is left of the steps that a run makes: one at least, since what has made all of them has finished."""
    return str(max(1, int(steps) - int(done))) if steps.isdigit() else steps


def free_port() -> int:
    """A port that nothing listens at here, for what its ranks start themselves."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
