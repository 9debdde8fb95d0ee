"""How `ejb` speaks: to people, as JSON, or hardly at all. Every command prints through here."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from ejbd.errors import EXIT_CODE, EjbError
from ejbd.wire.visible import visible


class Mode(StrEnum):
    HUMAN = "human"
    JSON = "json"  # one document on stdout; errors as a document on stderr
    QUIET = "quiet"  # the one word that a script wants, or nothing


class Output:
    """Results go to stdout; notes and errors to stderr."""

    def __init__(self, mode: Mode = Mode.HUMAN) -> None:
        self.mode = mode

    def result(self, value: Any, human: Callable[[], None], quiet: str | None = None) -> None:
        """A command's result: `value` as JSON, by `human` for people, `quiet` as the one word."""
        self.document(value)
        self.told(human, quiet)

    def document(self, value: Any) -> None:
        """The result as JSON, where that is asked for."""
        if self.mode is Mode.JSON:
            self.line(json_text(value, indent=2 if sys.stdout.isatty() else None))

    def told(self, human: Callable[[], None], quiet: str | None = None) -> None:
        """The result, or a part of it, in words: by `human` for people, `quiet` as the one word."""
        if self.mode is Mode.HUMAN:
            human()
        elif self.mode is Mode.QUIET and quiet is not None:
            self.line(quiet)

    def line(self, text: str = "") -> None:
        print(text, flush=True)

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def note(self, text: str) -> None:
        """Something to know beside the result."""
        if self.mode is Mode.HUMAN:
            print(f"ejb: {sentences(text)}", file=sys.stderr, flush=True)

    def failure(self, error: EjbError) -> int:
        """Tell an error; returns its exit code."""
        if self.mode is Mode.JSON:
            document = {
                "code": error.code.value,
                "detail": error.message,
                "hint": error.hint,
                "where": error.where,
                "transient": error.transient,
                "details": error.details,
                "exit_code": EXIT_CODE[error.code],
            }
            print(json_text({"error": document}), file=sys.stderr, flush=True)
        else:
            print(f"ejb: {sentences(as_typed(error).named())}", file=sys.stderr, flush=True)
            for other in error.details.get("also", ()):
                print(f"     also {sentences(str(other))}", file=sys.stderr, flush=True)
        return EXIT_CODE[error.code]

    def table(
        self, headings: Sequence[str] | None, rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
    ) -> None:
        """Columns as wide as what they hold; those in `right` are aligned there. The last one is not padded."""
        cells = [[visible(cell) for cell in row] for row in ([headings] if headings is not None else []) + list(rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for index, row in enumerate(cells):
            parts = [
                cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
                for column, cell in enumerate(row)
            ]
            text = "  ".join(parts).rstrip()
            self.line(f"\033[1m{text}\033[0m" if headings is not None and index == 0 and colours() else text)


def width() -> int:
    """Columns of the terminal."""
    import shutil  # `ejb submit` asks for none

    return shutil.get_terminal_size((100, 24)).columns


def ascii_only() -> bool:
    """Whether stdout takes no blocks and lines."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"


def as_typed(error: EjbError) -> EjbError:
    """A copy of the error. Its place in a request (`query.state`, `body.overrides.time`) is as typed (`--state`)."""
    where = error.where
    for prefix in ("query.", "body.overrides."):
        if where.startswith(prefix):
            name = where.removeprefix(prefix).partition(".")[0].removesuffix("_s").replace("_", "-")
            where = f"--{name}"
    place = where.removeprefix("body.")
    return EjbError(
        error.code, error.message, hint=error.hint, transient=error.transient, where=place, details=error.details
    )


def json_text(value: Any, indent: int | None = None) -> str:
    """Strict JSON, which has no word for infinity or for what is not a number: null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def printable(text: str) -> str:
    """A line of ours that has names and words of users in it; a line break in them is shown as its escape."""
    return visible(text)


def sentences(text: str) -> str:
    """What may have several lines of its own, as an error in the words of a command."""
    return visible(text, keep="\n")


def colours() -> bool:
    """Whether stdout is a terminal, and its user has nothing against colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_current = Output()


def current() -> Output:
    """The output of the command that runs."""
    return _current


def choose(*, as_json: bool = False, quiet: bool = False) -> Output:
    """Make the output of the command that runs."""
    global _current
    _current = Output(Mode.JSON if as_json else Mode.QUIET if quiet else Mode.HUMAN)
    return _current
