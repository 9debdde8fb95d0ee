"""What is wrong with a request, in words for its sender; the validator's own are about types of Python."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

_SHOWN = 60

_Fault = Mapping[str, Any]
_Context = Mapping[str, Any]


def place_and_sentence(fault: _Fault) -> tuple[str, str]:
    """Where a fault of pydantic's list is (`query.state`, `body.overrides.time`), and one sentence about it."""
    kind, context = str(fault["type"]), fault.get("ctx") or {}
    parts = [str(part) for part in fault["loc"] if not isinstance(part, int) or kind == "json_invalid"]
    if kind == "json_invalid":
        parts = parts[:1]
    say = SENTENCES.get(kind)
    message = say(fault.get("input"), context) if say is not None else _plain(str(fault["msg"]))
    return ".".join(parts), message


def _value(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float)) or value is None else reprlib.repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _number(context: _Context, key: str) -> str:
    return f"{context[key]:g}" if isinstance(context[key], float) else str(context[key])


def _not_a(what: str) -> Callable[[Any, _Context], str]:
    return lambda value, context: f"{_value(value)} is not {what}"


def _bound(key: str, words: str) -> Callable[[Any, _Context], str]:
    return lambda value, context: f"{_value(value)} is not {words} {_number(context, key)}"


def _length(key: str, words: str) -> Callable[[Any, _Context], str]:
    return lambda value, context: f"this may have {words} {_number(context, key)}"


def _one_of(value: Any, context: _Context) -> str:
    words = str(context["expected"]).replace("'", "").replace(" or ", ", ")
    return f"{_value(value)} is none of: {words}"


def _plain(message: str) -> str:
    """A sentence of our own validators comes with pydantic's prefix; all others begin with a capital."""
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


_WHOLE, _NUMBER, _TEXT = "a whole number", "a number", "text"
SENTENCES: dict[str, Callable[[Any, _Context], str]] = {
    "missing": lambda value, context: "this is needed, and missing",
    "extra_forbidden": lambda value, context: "there is no such field",
    "enum": _one_of,
    "literal_error": _one_of,
    "int_parsing": _not_a(_WHOLE),
    "int_from_float": _not_a(_WHOLE),
    "int_parsing_size": _not_a("a number of a sensible size"),
    "int_type": _not_a(_WHOLE),
    "float_parsing": _not_a(_NUMBER),
    "float_type": _not_a(_NUMBER),
    "finite_number": _not_a("a finite number"),
    "bool_parsing": _not_a("true or false"),
    "bool_type": _not_a("true or false"),
    "string_type": _not_a(_TEXT),
    "string_unicode": lambda value, context: "this is not UTF-8",
    "list_type": _not_a("a list"),
    "tuple_type": _not_a("a list"),
    "dict_type": _not_a("an object"),
    "model_type": _not_a("an object"),
    "model_attributes_type": _not_a("an object"),
    "greater_than": _bound("gt", "above"),
    "greater_than_equal": _bound("ge", "at least"),
    "less_than": _bound("lt", "below"),
    "less_than_equal": _bound("le", "at most"),
    "string_too_long": _length("max_length", "no more characters than"),
    "string_too_short": _length("min_length", "no fewer characters than"),
    "too_long": _length("max_length", "no more entries than"),
    "too_short": _length("min_length", "no fewer entries than"),
    "string_pattern_mismatch": lambda value, context: f"{_value(value)} is not spelt like this: {context['pattern']}",
    "json_invalid": lambda value, context: f"this is not JSON: {context.get('error', '')}",
}
