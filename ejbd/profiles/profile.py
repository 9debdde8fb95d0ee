"""A profile as a value: what is said of one application, and what no profile may leave out."""

from __future__ import annotations

import re
import signal
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ejbd.core.memory import Memory
from ejbd.core.rungs import Shape

STDOUT = "stdout"
OWN_WORDS = frozenset({"ranks", "before", "epoch", "newest state", "input", "head", "port", "left"})
"""What every profile may put between braces, beside its own `names`."""


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) or text.startswith("EJB_"):
        raise ValueError(f"{text!r} is no name of a variable that a profile may set")
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]
Variable = Annotated[str, AfterValidator(_variable)]


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Said):
    """Which launches it is for: patterns of the program's name, a word that is among its arguments, and patterns of
    all its words with blanks between them, of which one has to fit (as file names have patterns)."""

    program: tuple[str, ...] = Field(min_length=1)
    argv: str = ""
    line: tuple[str, ...] = ()


class Unless(_Said):
    """What keeps a launch from being run by a profile, since a resumed run would not come to the same end: an `option`
    of the program's (with a value that a `line` is like, if one is said), or a `line` of a `file`. `why`: in words."""

    option: str = ""
    file: str = ""
    line: Pattern = ""
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.option) == bool(self.file) or (self.file and not self.line):
            raise ValueError("`unless` is an `option`, or what a `line` of a `file` says")
        return self


class Name(_Said):
    """Where a word of the profile's texts comes from: the value of an option, the nth word of the program's that is no
    option (`argument`), the first one that is like a pattern (`word`), or what a line of a file says."""

    option: str = ""
    argument: int = Field(0, ge=0)
    word: str = ""
    file: str = ""
    line: Pattern = ""
    otherwise: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        ways = (self.option, self.argument, self.word, self.file)
        if sum(map(bool, ways)) != 1 or bool(self.file) != bool(self.line):
            raise ValueError("a name is the value of an `option`, an `argument`, a `word`, or a `line` of a `file`")
        return self


class To(StrEnum):
    """Which processes hear a signal. The launcher is none of them: its grace would be a race."""

    RANKS = "ranks"
    ONE_RANK = "one-rank"


class Stop(_Said):
    """How it is told to write its state and end: by a signal, or by a file that is made. `needs`: what has to stand in
    `needs_in` (a file) for it to hear that."""

    signal: str = ""
    to: To = To.RANKS
    file: str = ""
    text: str = ""
    needs: Pattern = ""
    needs_in: str = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.signal) == bool(self.file):
            raise ValueError("a stop is a `signal` or a `file`, one of the two")
        if self.signal and f"SIG{self.signal}" not in signal.Signals.__members__:
            raise ValueError(f"{self.signal!r} is no signal: say TERM, INT, USR1 ...")
        if bool(self.needs) != bool(self.needs_in):
            raise ValueError("`needs` says what has to stand in the file `needs_in`")
        return self


class Ended(_Said):
    """By what an end is told. Codes are a second condition only: a line, a file or the last time reached decides.

    `line` and `not` are looked for in what was written to `log` since the launch, `file` has to be newer than that.
    `last` is a pattern; its last group is a number that `reaches` another or is `below` it. `code_alone`: the program
    was written for this contract, and its codes mean what they say.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    codes: tuple[int, ...] = (0,)
    log: str = STDOUT
    line: Pattern = ""
    without: Pattern = Field("", alias="not")
    file: str = ""
    last: Pattern = ""
    reaches: str = ""
    below: str = ""
    code_alone: bool = False

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if bool(self.last) != bool(self.reaches or self.below):
            raise ValueError("`last` is compared with what it `reaches` or is `below`")
        if not (self.line or self.file or self.last or self.code_alone):
            raise ValueError("an exit code alone does not tell how it ended: say a `line`, a `file` or `last`")
        return self


class Resume(_Said):
    """How it goes on from its state. `argv`: options with their values, put in the place of the same ones or added;
    "same": nothing is changed. `input`: assignments put into a copy of the input. `prepare`: commands before a start at
    another width. `fresh`: the arguments are needed at the first start, too. `alone_without`: words that a single rank
    does without. `steps`: the steps that one run makes (a number, or a name of the profile's), of a program that counts
    them anew with each run; what is left of them by its `progress` is {left}."""

    argv: tuple[str, ...] | Literal["same"] = "same"
    fresh: bool = False
    input: dict[str, str] = Field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    alone_without: tuple[str, ...] = ()
    steps: str = ""
    needs: Pattern = ""
    needs_in: str = ""


class Ranks(_Said):
    """Its widths: of a shape or of a list, `min` at least. `same` is a shape, too: no other width than it began at."""

    min: int = Field(1, ge=1)
    shape: Shape | Literal["same"] = Shape.ANY
    widths: tuple[int, ...] = ()


class Progress(_Said):
    """How far it is: the last number that `line` finds in `log`, of as many as `total` finds there."""

    log: str = STDOUT
    line: Pattern
    total: Pattern = ""


class How(StrEnum):
    """What its authors say of results over widths."""

    BITS = "bits"
    DIGITS = "digits"
    STATISTICS = "statistics"


class Compare(_Said):
    """What a trial compares: files bit for bit, or the last number that `line` finds in `log`, to so many digits."""

    how: How
    files: tuple[str, ...] = ()
    log: str = STDOUT
    line: Pattern = ""
    digits: int = Field(6, ge=1, le=15)

    @model_validator(mode="after")
    def _what(self) -> Self:
        if self.how is How.BITS and not self.files:
            raise ValueError("what is compared bit for bit are `files`")
        if self.how is How.DIGITS and not self.line:
            raise ValueError("what is compared to digits is the number that a `line` finds")
        return self


class Profile(_Said):
    """Everything that is said of one application; paths are relative to the folder in which it runs."""

    name: str = ""
    origin: str = ""
    match: Match
    unless: tuple[Unless, ...] = ()
    names: dict[str, Name] = Field(default_factory=dict)
    stop: Stop
    stopped: Ended
    finished: Ended
    state: tuple[str, ...] = Field(min_length=1)
    resume: Resume = Resume()
    ranks: Ranks = Ranks()
    memory: Memory = Memory.RANK
    env: dict[Variable, str] = Field(default_factory=dict)
    """Variables of its processes, at every start."""
    grace_s: float = Field(60.0, gt=0, le=86400)
    progress: Progress | None = None
    compare: Compare = Compare(how=How.STATISTICS)
    says: str = ""

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.resume.steps and self.progress is None:
            raise ValueError("what is left of `steps` is told by `progress`, which the profile does not have")
        return self

    @model_validator(mode="after")
    def _names(self) -> Self:
        known = OWN_WORDS | set(self.names)
        for text in self.texts():
            for word in re.findall(r"\{([A-Za-z][A-Za-z ]*)\}", text):
                if word not in known:
                    told = ", ".join(sorted(known))
                    raise ValueError(f"{{{word}}} is no name of this profile: there are {told}")
        return self

    def texts(self) -> list[str]:
        """Every text that may have names between braces."""
        argv = () if self.resume.argv == "same" else self.resume.argv
        found = [
            *self.state,
            *argv,
            *self.resume.prepare,
            *self.resume.input.values(),
            *self.env.values(),
            *self.compare.files,
        ]
        found += [one.file for one in self.unless]
        found += [self.resume.steps, self.stop.file, self.stop.needs_in, self.resume.needs_in, self.compare.log]
        for end in (self.stopped, self.finished):
            found += [end.log, end.file, end.reaches, end.below]
        return found + ([self.progress.log] if self.progress else [])
