"""Options of sbatch on the command line of `ejb submit`, also those that it does not name itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ejbd.errors import Code, EjbError

if TYPE_CHECKING:
    from ejbd.options.sbatch import Option

# The table of sbatch's options is imported where a line has one that the command does not: most lines have none.

OTHER = "--option"


Known = Mapping[str, bool]
"""The options that a command has: spelling -> whether a value follows."""


def translated(words: Sequence[str], known: Known) -> list[str]:
    """The words with each option of sbatch that the command does not have as `--option=WORD`, which it has.

    Long options may be shortened as getopt_long allows. What stands behind the script's name, or `--`, is left alone.

    Raises EjbError for an option without its value, and for a beginning that fits several options.
    """
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest[0]
        if word in ("-", "--") or not word.startswith("-"):
            break
        del rest[0]
        if word.startswith("--"):
            found += _long(word, rest, known)
        else:
            found += _short(word, rest, known)
    return found + rest


def behind_the_script(words: Sequence[str], known: Known) -> str | None:
    """The first of a script's arguments that looks like an option for `ejb submit`; none behind a `--`."""
    for word in words:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if word.startswith("--") and (name in known or _is_of_sbatch(name)):
            return name
    return None


def _is_of_sbatch(spelling: str) -> bool:
    from ejbd.options.sbatch import BY_NAME

    return spelling.removeprefix("--") in BY_NAME


def _long(word: str, rest: list[str], known: Known) -> list[str]:
    spelling, equals, value = word.partition("=")
    if spelling in known:
        return [word, *_value_of(spelling, not equals, rest, known)]
    from ejbd.options.sbatch import matching

    options = matching(spelling.removeprefix("--"))
    if not options:
        return [word]  # the command says that it does not know it
    if len(options) > 1:
        names = ", ".join(option.spelling for option in options)
        raise EjbError(Code.INVALID, f"{spelling} is the beginning of several options: {names}", hint="write one out")
    option = options[0]
    if option.spelling in known:
        whole = option.spelling + (f"={value}" if equals else "")
        return [whole, *_value_of(option.spelling, not equals, rest, known)]
    return _other(option, value if equals else None, rest)


def _short(word: str, rest: list[str], known: Known) -> list[str]:
    spelling, attached = word[:2], word[2:]
    if spelling in known:
        if known[spelling]:
            return [word, *_value_of(spelling, not attached, rest, known)]
        return [spelling, *(_short(f"-{attached}", rest, known) if attached else ())]
    from ejbd.options.sbatch import BY_LETTER, Argument

    option = BY_LETTER.get(spelling[1])
    if option is None:
        return [word]
    if option.argument is Argument.REQUIRED:
        return _other(option, attached or None, rest)
    return [*_other(option, None, rest), *(_short(f"-{attached}", rest, known) if attached else ())]


def _value_of(spelling: str, apart: bool, rest: list[str], known: Known) -> list[str]:
    """The word behind an option that the command has, where that is its value."""
    return [rest.pop(0)] if apart and rest and known[spelling] else []


def _other(option: Option, value: str | None, rest: list[str]) -> list[str]:
    from ejbd.options.sbatch import Argument

    if value is None and option.argument is Argument.REQUIRED:
        if not rest:
            raise EjbError(Code.INVALID, "a value must follow", where=option.spelling)
        value = rest.pop(0)
    return [f"{OTHER}={option.spelling}" + ("" if value is None else f"={value}")]
