"""A YAML text as a tree in which everything has its line and column. Bounded, and without what could grow or call.

Scalars stay texts: what YAML 1.1 makes of `00:15:00` (900) or of `no` is not what a plan means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from ejbd.errors import Code, EjbError

MOST_CHARACTERS = 262_144
MOST_NODES = 20_000
MOST_DEPTH = 10
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


class Place(NamedTuple):
    """Where something stands, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text; `plain` where it stands without quotes."""

    text: str
    plain: bool
    place: Place

    @property
    def nothing(self) -> bool:
        return self.plain and self.text in _NOTHING


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys in their order, each once."""

    items: tuple[tuple[Scalar, Node], ...]
    place: Place

    def get(self, key: str) -> Node | None:
        return next((node for name, node in self.items if name.text == key), None)


Node = Scalar | Sequence | Mapping


class Faults:
    """Makes errors about one file: each has its name, line and column in front."""

    def __init__(self, name: str) -> None:
        self.name = name

    def at(self, place: Place | None, message: str, hint: str = "", code: Code = Code.INVALID) -> EjbError:
        where = self.name if place is None else f"{self.name}:{place.line}:{place.column}"
        return EjbError(code, message, hint=hint, where=where)


def read_tree(text: str, name: str) -> Node:
    """The one document of a YAML text. Raises EjbError (INVALID, TOO_LARGE) with the place in the file `name`."""
    faults = Faults(name)
    if len(text) > MOST_CHARACTERS:
        raise faults.at(None, f"a plan has at most {MOST_CHARACTERS} characters", code=Code.TOO_LARGE)
    try:
        found = _document(_Events(yaml.parse(text, yaml.SafeLoader), faults))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else Place(mark.line + 1, mark.column + 1)
        raise faults.at(place, f"this is not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise faults.at(place, "a character that no text has stands here", "save the file as UTF-8") from None
    if found is None:
        raise faults.at(None, "the file is empty", "it begins with `workflow:`")
    return found


class _Events:
    """YAML's events one after the other, counted."""

    def __init__(self, events: Iterator[Any], faults: Faults) -> None:
        self._events = events
        self.faults = faults
        self._count = 0

    def next(self) -> Any:
        event = next(self._events)
        self._count += 1
        if self._count > MOST_NODES:
            raise self.faults.at(_place(event), f"a plan has at most {MOST_NODES} parts", code=Code.TOO_LARGE)
        if isinstance(event, yaml.AliasEvent):
            raise self.faults.at(_place(event), "an alias (*) has no place in a plan", "write it out")
        if getattr(event, "tag", None) is not None and event.tag != "!":
            raise self.faults.at(_place(event), f"a tag ({event.tag}) has no place in a plan", "leave it out")
        return event


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _document(events: _Events) -> Node | None:
    found: Node | None = None
    while True:
        event = events.next()
        if isinstance(event, yaml.StreamEndEvent):
            return found
        if isinstance(event, yaml.DocumentStartEvent):
            if found is not None:
                raise events.faults.at(_place(event), "a second document begins here", "a plan is one document")
            found = _node(events, events.next(), 0)


def _node(events: _Events, event: Any, depth: int) -> Node:
    place = _place(event)
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(event.value, event.style is None, place)
    if depth == MOST_DEPTH:
        raise events.faults.at(place, f"more than {MOST_DEPTH} parts stand inside each other here")
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := events.next(), yaml.SequenceEndEvent):
            items.append(_node(events, event, depth + 1))
        return Sequence(tuple(items), place)
    pairs: dict[str, tuple[Scalar, Node]] = {}
    while not isinstance(event := events.next(), yaml.MappingEndEvent):
        key = _node(events, event, depth + 1)
        if not isinstance(key, Scalar):
            raise events.faults.at(key.place, "a key is one word")
        if key.text in pairs:
            first = pairs[key.text][0].place.line
            raise events.faults.at(key.place, f"the key {key.text!r} stands twice, first in line {first}")
        pairs[key.text] = key, _node(events, events.next(), depth + 1)
    return Mapping(tuple(pairs.values()), place)
