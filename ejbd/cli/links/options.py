"""Options of Slurm's commands on a line, as getopt_long takes them."""

from __future__ import annotations

import getopt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ejbd.errors import Code, EjbError


@dataclass(frozen=True, slots=True)
class Known:
    """The options of a command: spelling -> its name. `valued` are followed by a value, `flags` are not."""

    valued: Mapping[str, str]
    flags: Mapping[str, str]

    @property
    def short(self) -> str:
        letters = [one[1] for one in self.flags if not one.startswith("--")]
        return "".join([*letters, *(f"{one[1]}:" for one in self.valued if not one.startswith("--"))])

    @property
    def long(self) -> list[str]:
        flags = [one[2:] for one in self.flags if one.startswith("--")]
        return [*flags, *(f"{one[2:]}=" for one in self.valued if one.startswith("--"))]


@dataclass(slots=True)
class Line:
    """What was typed: `given` option by option, as (name, value), and the `words` beside them."""

    given: list[tuple[str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return any(one == name for one, _ in self.given)

    def value(self, name: str) -> str | None:
        """The last value that was given."""
        return next((value for one, value in reversed(self.given) if one == name), None)

    def values(self, name: str) -> list[str]:
        """What is in all lists that were given: commas or blanks divide their parts."""
        said = [value for one, value in self.given if one == name]
        return [part for value in said for part in _parts(value)]


def read(known: Known, words: Sequence[str], command: str) -> Line:
    """Read a line. Raises EjbError (INVALID) for an option that is not known, or that lacks its value."""
    try:
        options, rest = getopt.gnu_getopt(list(words), known.short, known.long)
    except getopt.GetoptError as error:
        spellings = ", ".join(sorted({*known.valued, *known.flags} - {""}))
        hint = f"EJB's {command} knows {spellings}"
        raise EjbError(Code.INVALID, error.msg, hint=hint) from None
    names = {**known.flags, **known.valued}
    return Line([(names[spelling], value) for spelling, value in options], rest)


def with_variables(known: Known, variables: Mapping[str, str], words: Sequence[str]) -> list[str]:
    """The line with the options that the environment gives in front, so that those of the line count."""
    found: list[str] = []
    for variable, option in variables.items():
        value = os.environ.get(variable)
        if value is not None:
            found.append(option if option in known.flags else f"{option}={value}")
    return [*found, *words]


def without(known: Known, words: Sequence[str], name: str) -> list[str]:
    """The options of a line without those of this name and without the words beside them, to be typed again."""
    options, _ = getopt.gnu_getopt(list(words), known.short, known.long)
    kept: list[str] = []
    for spelling, value in options:
        if {**known.flags, **known.valued}[spelling] == name:
            continue
        if spelling not in known.valued:
            kept.append(spelling)
        elif spelling.startswith("--"):
            kept.append(f"{spelling}={value}")
        else:
            kept += [spelling, value]
    return kept


def _parts(value: str) -> list[str]:
    """Commas within brackets are a list of elements' own (`12_[1,3]`)."""
    parts, depth = [""], 0
    for c in value:
        depth += (c == "[") - (c == "]")
        if c in ", " and depth <= 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part for part in parts if part]
