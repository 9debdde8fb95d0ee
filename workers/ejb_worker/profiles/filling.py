"""A profile's texts with what stands for their names: what a command line says, and what a line of a file says."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

_ASSIGNED = r"""^((?:[^!#\n]*?[\s,;&])??)%s[ \t]*=[ \t]*(?:'[^'\n]*'|"[^"\n]*"|[^\s,;/!]*)"""
_BRACES = re.compile(r"\{([A-Za-z][A-Za-z ]*)\}")

ReadsFile = Callable[[str], Optional[str]]
"""The text of a file in the folder in which the application runs, or None where there is none."""


class NotFound(ValueError):
    """A name stands for nothing: one sentence, with where it was looked for."""


def values_of(profile: Any, words: Sequence[str], reads: ReadsFile) -> Dict[str, str]:
    """What the profile's names stand for, by a program's words. Raises NotFound."""
    found: Dict[str, str] = {}
    for name, one in profile.names.items():
        value: Optional[str]
        if one.option:
            value, where = option(words, one.option), "the command has no option %s" % one.option
        elif getattr(one, "argument", 0):  # a job of an older daemon's has none
            value, where = argument(words, one.argument), "the command has no argument %d" % one.argument
        elif getattr(one, "word", ""):
            value = next((word for word in words[1:] if fnmatchcase(word, one.word)), None)
            where = "the command has no word like %s" % one.word
        else:
            path = filled(one.file, found)
            text = reads(path)
            match = re.search(one.line, text, re.MULTILINE) if text is not None else None
            value = match[match.lastindex or 0] if match else None
            where = "%s is not there" % path if text is None else "no line of %s is like %r" % (path, one.line)
        if value is None and one.otherwise is None:
            raise NotFound("the profile %s does not find its %s: %s" % (profile.name, name, where))
        found[name] = filled(str(one.otherwise), found) if value is None else value
    return found


def filled(text: str, values: Mapping[str, str], *, for_shell: bool = False) -> str:
    """The text with its names replaced; what has no value stays. `for_shell`: values are quoted."""

    def value(match: "re.Match[str]") -> str:
        known = values.get(match[1])
        if known is None:
            return match[0]
        return shlex.quote(known) if for_shell else known

    return _BRACES.sub(value, text)


def edited(text: str, assignments: Mapping[str, str]) -> str:
    """An input with `key = value` put in: in the place of the key's own assignment, wherever in a line it stands, else
    behind the first line that opens a namelist (`&control`), else at its beginning. Of several all are changed."""
    for key, value in assignments.items():
        own = re.compile(_ASSIGNED % re.escape(key), re.MULTILINE | re.IGNORECASE)
        put: Callable[["re.Match[str]"], str] = lambda found: "%s%s = %s" % (found[1], key, value)  # noqa: E731, B023
        text, count = own.subn(put, text)
        if not count:
            opens = re.search(r"^\s*&\w+.*\n", text, re.MULTILINE)
            at = opens.end() if opens else 0
            text = "%s  %s = %s\n%s" % (text[:at], key, value, text[at:])
    return text


def option(words: Sequence[str], name: str) -> Optional[str]:
    """The value of a program's option, which may have several spellings (`-in|-i`); None where it is not there."""
    spellings = name.split("|")
    for at, word in enumerate(words):
        if word in spellings and at + 1 < len(words):
            return words[at + 1]
        head, equals, value = word.partition("=")
        if equals and head in spellings:
            return value
    return None


def argument(words: Sequence[str], number: int) -> Optional[str]:
    """The nth word behind the program that is no option; which options have values is not known. None: too few."""
    plain = [word for word in words[1:] if not word.startswith("-")]
    return plain[number - 1] if number <= len(plain) else None


def with_options(words: Sequence[str], options: Sequence[str]) -> List[str]:
    """A program's words with options (each up to its last value) in the place of the same ones, or behind the rest."""
    changed = list(words)
    for one in _each(options):
        head, value = one[:-1] or one, one[-1]
        at = _place(changed, head)
        if at < 0:
            changed += one
        elif len(one) > 1:
            changed[at + len(head)] = value
    return changed


def _each(options: Sequence[str]) -> List[List[str]]:
    """`-var a 0 -log x` as (-var a 0) and (-log x)."""
    found: List[List[str]] = []
    for word in options:
        if (word.startswith("-") and len(word) > 1 and not word[1].isdigit()) or not found:
            found.append([])
        found[-1].append(word)
    return found


def _place(words: Sequence[str], head: Sequence[str]) -> int:
    for at in range(1, len(words) - len(head) + 1):
        if list(words[at : at + len(head)]) == list(head):
            return at
    return -1
