"""A profile's texts with what stands for their names: what a command line says, and what a line of a file says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from ejbd.errors import Code, EjbError
from ejbd.profiles.command import Command
from ejbd.profiles.profile import Profile

_BRACES = re.compile(r"\{([A-Za-z][A-Za-z ]*)\}")


ReadsFile = Callable[[str], str | None]
"""The text of a file in the folder in which the application runs, or None where there is none."""


def values_of(profile: Profile, command: Command, reads: ReadsFile) -> dict[str, str]:
    """What the profile's names stand for. Raises EjbError where one stands for nothing, and says where it was looked
    for."""
    found: dict[str, str] = {}
    for name, one in profile.names.items():
        value: str | None
        if one.option:
            value, where = command.option(one.option), f"the command has no option {one.option}"
        else:
            path = filled(one.file, found)
            text = reads(path)
            match = re.search(one.line, text, re.MULTILINE) if text is not None else None
            value = match[match.lastindex or 0] if match else None
            where = f"{path} is not there" if text is None else f"no line of {path} is like {one.line!r}"
        if value is None and one.otherwise is None:
            raise EjbError(Code.INVALID, f"the profile {profile.name} does not find its {name}: {where}")
        found[name] = str(one.otherwise) if value is None else value
    return found


def filled(text: str, values: Mapping[str, str], *, for_shell: bool = False) -> str:
    """The text with its names replaced; what has no value stays. `for_shell`: values are quoted."""

    def value(match: re.Match[str]) -> str:
        known = values.get(match[1])
        if known is None:
            return match[0]
        return shlex.quote(known) if for_shell else known

    return _BRACES.sub(value, text)


def edited(text: str, assignments: Mapping[str, str]) -> str:
    """An input with `key = value` put in: in the place of the key's own line, else behind the first line that opens a
    namelist (`&control`), else at its beginning."""
    for key, value in assignments.items():
        line = re.search(rf"^([ \t]*){re.escape(key)}[ \t]*=.*?(,?[ \t]*)$", text, re.MULTILINE | re.IGNORECASE)
        if line:
            text = f"{text[: line.start()]}{line[1]}{key} = {value}{line[2]}{text[line.end() :]}"
        else:
            opens = re.search(r"^\s*&\w+.*\n", text, re.MULTILINE)
            at = opens.end() if opens else 0
            text = f"{text[:at]}  {key} = {value}\n{text[at:]}"
    return text
