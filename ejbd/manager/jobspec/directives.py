"""The lines of a script that are for the batch system: #SBATCH as sbatch itself reads them, and #EJB likewise.

Measured against sbatch 22.05. Only lines that begin with the word count, and only before the first line that is neither
empty nor a comment. Quotes and backslashes group as in sbatch: a `#` that is not quoted begins a comment, even inside a
word. The words of all lines make one argument list, which is read as by getopt_long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ejbd.manager.jobspec.findings import Given, Refusal, invalid, shortened
from ejbd.manager.jobspec.ownwords import given_setting
from ejbd.options.sbatch import BY_LETTER, Argument, Option, matching

_SBATCH, _SLURM, _EJB = "#SBATCH", "#SLURM", "#EJB"
_SPACE = " \t\v\f\r"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of an argument list and where it stands ("line 4", or "" for the command line)."""

    text: str
    where: str


@dataclass(frozen=True, slots=True)
class Directives:
    """What a script's lines say, in their order."""

    given: tuple[Given, ...]
    refusals: tuple[Refusal, ...]


def read_directives(script: str) -> Directives:
    """The #SBATCH and #EJB lines of a script. Raises EjbError (INVALID, UNSUPPORTED) naming the line."""
    words: list[Word] = []
    ejb: list[Given] = []
    refusals: list[Refusal] = []
    for number, line in enumerate(script.split("\n"), start=1):
        where = f"line {number}"
        if line.startswith(_SBATCH):
            rest = line[len(_SBATCH) :]
            if rest.split() in (["hetjob"], ["packjob"]):
                message = "a heterogeneous job cannot be elastic: an elastic job is one application of like ranks"
                refusals.append(Refusal(where, message))
                break  # what follows describes other components
            words += [Word(text, where) for text in split_words(rest, where)]
        elif line.startswith(_SLURM):
            raise invalid(where, "#SLURM is not a directive", "write #SBATCH")
        elif line.startswith(_EJB) and (len(line) == len(_EJB) or line[len(_EJB)] in _SPACE):
            ejb += [_ejb_setting(text, where) for text in split_words(line[len(_EJB) :], where)]
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return Directives((*parse_options(words), *ejb), tuple(refusals))


def split_words(line: str, where: str) -> list[str]:
    """The words of a directive line, as sbatch splits it. Raises EjbError for a quote that is not closed."""
    words: list[str] = []
    word: list[str] = []
    begun = False
    quote = ""
    characters = iter(line)
    for c in characters:
        if not begun and not quote:
            if c in _SPACE:
                continue
            if c == ":":
                raise invalid(where, "a ':' (the separator of heterogeneous jobs) is not allowed here")
        if c == "\\":
            word.append(next(characters, ""))
            begun = True
        elif quote:
            if c == quote:
                quote = ""
            else:
                word.append(c)
                begun = True
        elif c in "\"'":
            quote = c
            begun = True
        elif c == "#":
            break
        elif c in _SPACE:
            words.append("".join(word))
            word, begun = [], False
        else:
            word.append(c)
            begun = True
    if quote:
        raise invalid(where, f"the quote {quote} is not closed", "close it on the same line")
    if begun:
        words.append("".join(word))
    return words


def parse_options(words: Iterable[Word]) -> Iterator[Given]:
    """Options and their arguments, as getopt_long pairs them. Raises EjbError naming the line."""
    queue = iter(words)
    for word in queue:
        text, where = word.text, word.where
        if text.startswith("--") and len(text) > 2:
            name, equals, value = text[2:].partition("=")
            option = _long(name, where)
            yield from _long_value(option, value if equals else None, queue, where)
        elif text.startswith("-") and len(text) > 1 and text != "--":
            yield from _letters(text[1:], queue, where)
        else:
            hint = "options begin with - or --; a value with spaces needs quotes"
            raise invalid(where, f"{shortened(text)} is not an option of sbatch", hint)


def _long(name: str, where: str) -> Option:
    options = matching(name)
    if not options:
        raise invalid(where, f"sbatch has no option {shortened('--' + name)}", "see `man sbatch`, or remove it")
    if len(options) > 1:
        names = ", ".join(option.spelling for option in options[:6])
        raise invalid(where, f"{shortened('--' + name)} may mean {names}", "write the whole name")
    return options[0]


def _long_value(option: Option, value: str | None, queue: Iterator[Word], where: str) -> Iterator[Given]:
    if option.argument is Argument.NONE and value is not None:
        raise invalid(where, f"{option.spelling} takes no value, but {shortened(value)} is given")
    if option.argument is Argument.REQUIRED and value is None:
        value = _next_value(option.spelling, queue, where)
    yield Given(option.name, value, where)


def _letters(letters: str, queue: Iterator[Word], where: str) -> Iterator[Given]:
    """A cluster such as -Hn3: letters without an argument, and at most one with its argument at the end."""
    for at, letter in enumerate(letters, start=1):
        option = BY_LETTER.get(letter)
        if option is None:
            raise invalid(where, f"sbatch has no option {shortened('-' + letter)}", "see `man sbatch`, or remove it")
        if option.argument is Argument.REQUIRED:
            value = letters[at:] or _next_value(f"-{option.short}", queue, where)
            yield Given(option.name, value, where)
            return
        if option.argument is Argument.OPTIONAL:
            yield Given(option.name, letters[at:] or None, where)
            return
        yield Given(option.name, None, where)


def _next_value(spelling: str, queue: Iterator[Word], where: str) -> str:
    word = next(queue, None)
    if word is None:
        raise invalid(where, f"{spelling} needs a value")
    return word.text


def _ejb_setting(text: str, where: str) -> Given:
    key, equals, value = text.partition("=")
    return given_setting(key, value if equals else None, where)
