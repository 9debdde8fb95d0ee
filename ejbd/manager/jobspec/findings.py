"""What reading a job found, and the errors that it raises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ejbd.errors import Code, EjbError

_MOST_ALSO = 20  # further refusals that an error lists


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as it was given: its long name (`ejb:` before those of #EJB lines), value and place."""

    name: str
    value: str | None
    where: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job cannot be elastic. Passed through as an ordinary job it may run all the same.

    `doubt`: it may well be that it can, but that cannot be seen; a job that says elastic=on is believed.
    """

    where: str
    message: str
    hint: str = "remove it, or pass the job through with --elastic off"
    doubt: bool = False

    def error(self, others: tuple[Refusal, ...] = ()) -> EjbError:
        """The error that says this; `others` go into its details."""
        also = [f"{r.where}: {r.message}" for r in others[:_MOST_ALSO]]
        if len(others) > _MOST_ALSO:
            also.append(f"and {len(others) - _MOST_ALSO} more")
        details: dict[str, Any] = {"also": also} if also else {}
        return EjbError(Code.UNSUPPORTED, self.message, hint=self.hint, where=self.where, details=details)


def invalid(where: str, message: str, hint: str = "") -> EjbError:
    """An error in what the user wrote, at the place where it is written."""
    return EjbError(Code.INVALID, message, hint=hint, where=where)


def shortened(text: str, most: int = 60) -> str:
    """A value as a message quotes it: escaped (it may hold anything), and not endless."""
    quoted = ascii(text) if any(not c.isprintable() for c in text) else repr(text)
    return quoted if len(quoted) <= most else quoted[: most - 4] + "...'"


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
CONTROL_HINT = "control characters (newline, tab, escape, NUL, ...) are not allowed there"


def has_control(text: str) -> bool:
    """Whether a text holds control characters or halves of surrogate pairs, which no batch system passes on intact."""
    return _CONTROL.search(text) is not None
