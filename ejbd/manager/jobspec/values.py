"""Single values of options, each refused with the place where it stands."""

from __future__ import annotations

import math
import re

from ejbd.core.rungs import parse_widths
from ejbd.core.walltime import parse_walltime
from ejbd.errors import EjbError
from ejbd.manager.jobspec.findings import CONTROL_HINT, Given, has_control, invalid, shortened
from ejbd.plugins.engines import known_engines

MOST_PROCESSES = 1_000_000
LONGEST_NAME = 200
LONGEST_APPLICATION, LONGEST_CLASS = 256, 128
_LONGEST_TEXT = 1024
_YES, _NO = ("on", "yes", "true", "1"), ("off", "no", "false", "0")
_COUNT = re.compile(r"[0-9]+", re.ASCII)
_NODES = re.compile(r"(?P<least>[0-9]{1,12})(?P<unit>[kKmM]?)", re.ASCII)
_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


def count(given: Given, what: str, most: int = MOST_PROCESSES) -> int:
    """A whole number from 1 to `most`."""
    text = (given.value or "").strip()
    if not _COUNT.fullmatch(text):
        raise invalid(given.where, f"{what} must be a whole number above 0, not {shortened(text)}")
    number = int(text.lstrip("0")[:19] or "0")  # what is longer is too much anyway
    if number < 1:
        raise invalid(given.where, f"{what} must be at least 1, not {number}")
    if number > most:
        raise invalid(given.where, f"{what} cannot be more than {most}, and {shortened(text)} is asked for")
    return number


def node_count(given: Given) -> int | None:
    """Nodes as in -N (4, 4-4, 1k); None for a range or a list, which only the batch system itself can choose from."""
    text = (given.value or "").strip()
    least, dash, most = text.partition("-")
    numbers = [_node_number(part, given) for part in ([least, most] if dash else text.split(","))]
    return numbers[0] if len(set(numbers)) == 1 else None


def _node_number(text: str, given: Given) -> int:
    match = _NODES.fullmatch(text)
    number = int(match["least"]) * _UNITS[match["unit"].lower()] if match else 0
    if not 1 <= number <= MOST_PROCESSES:
        raise invalid(
            given.where, f"{shortened(given.value or '')} is not a number of nodes from 1 to {MOST_PROCESSES}"
        )
    return number


def number(given: Given, what: str, least: float, most: float) -> float:
    """A finite number within limits."""
    text = (given.value or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or "_" in text:
        raise invalid(given.where, f"{what} must be a number from {least:g} to {most:g}, not {shortened(text)}")
    return value


def every(given: Given) -> str:
    """How often to checkpoint: `off`, `auto`, or seconds."""
    text = (given.value or "").strip().lower()
    if text in ("off", "auto"):
        return text
    try:
        return f"{number(given, 'checkpoint', 1, 31 * 86400):.12g}"
    except EjbError:
        what = f"checkpoint must be off, auto or seconds from 1 to {31 * 86400}, not {shortened(text)}"
        raise invalid(given.where, what) from None


def application(given: Given) -> str:
    """An application and, behind a colon, the class of its input."""
    name, _, kind = (given.value or "").strip().partition(":")
    if not name or len(name) > LONGEST_APPLICATION or len(kind) > LONGEST_CLASS or has_control(name + kind):
        what = f"app is NAME or NAME:CLASS, of at most {LONGEST_APPLICATION} and {LONGEST_CLASS} characters"
        raise invalid(given.where, f"{what}, not {shortened(given.value or '')}")
    return f"{name}:{kind}" if kind else name


def widths(given: Given) -> str:
    """The widths at which an application can be restarted: a shape, or a list."""
    text = (given.value or "").strip().lower()
    try:
        parse_widths(text)
    except ValueError as error:
        raise invalid(given.where, f"widths are {error}, not {shortened(text)}") from None
    return text


def learned_walltime(given: Given) -> bool:
    """Whether the walltime is learned from earlier runs (`auto`), or stands as it was asked for (`own`)."""
    if given.value in ("auto", "own"):
        return given.value == "auto"
    what = f"walltime is auto (learned from earlier runs) or own (as asked for), not {shortened(given.value or '')}"
    raise invalid(given.where, what, "a time is given by -t")


def switch(given: Given) -> bool:
    """on/off, yes/no, true/false; a setting without a value is on."""
    if given.value is None or given.value.lower() in _YES:
        return True
    if given.value.lower() in _NO:
        return False
    name = given.name.removeprefix("ejb:")
    raise invalid(given.where, f"{name} is on or off, not {shortened(given.value)}")


def keeps_output(given: Given) -> bool:
    """--open-mode: whether what stands in the output files stays."""
    word = (given.value or "").lower()
    if word[:1] not in ("a", "t"):
        raise invalid(given.where, f"--open-mode is append or truncate, not {shortened(given.value or '')}")
    return word.startswith("a")


def elastic(given: Given) -> bool | None:
    """As :func:`switch`; `auto` is None: as the queue says."""
    return None if given.value is not None and given.value.lower() == "auto" else switch(given)


def engine(given: Given) -> str:
    """The name of a checkpoint engine."""
    known = known_engines()
    if given.value not in known:
        raise invalid(
            given.where,
            f"there is no checkpoint engine {shortened(given.value or '')}",
            f"{', '.join(known[:-1])} and {known[-1]} are known",
        )
    return given.value


def walltime(given: Given) -> float | None:
    """Seconds; None is unlimited."""
    try:
        return parse_walltime(given.value or "")
    except ValueError as error:
        raise invalid(given.where, str(error)) from None


def text(given: Given, what: str, longest: int = _LONGEST_TEXT, *, empty: bool = False) -> str:
    """A text that is handed on as it is, whatever quotes, bars or dollars it holds; nothing at all only if `empty`."""
    value = given.value or ""
    if not value.strip() and not (empty and not value):
        raise invalid(given.where, f"{what} is empty")
    if has_control(value):
        raise invalid(given.where, f"{what} {shortened(value)} holds a control character", CONTROL_HINT)
    if len(value) > longest:
        raise invalid(given.where, f"{what} of {len(value)} characters is longer than {longest}")
    return value
