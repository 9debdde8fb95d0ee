"""Whether events are what the catalogue says of their kinds."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.store.models import Event
from ejbd.wire.events import CATALOGUE
from ejbd.wire.kinds import EventKind


@cache
def _fields(kind: EventKind) -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(hint) for name, hint in typing.get_type_hints(CATALOGUE[kind].data).items()}


def faults(kind: str, data: dict[str, Any]) -> list[str]:
    """What is wrong with the data of an event, in words."""
    fields = _fields(EventKind(kind))
    missing = CATALOGUE[EventKind(kind)].data.__required_keys__ - set(data)
    found = [f"{kind}: {name} is missing" for name in sorted(missing)]
    found += [f"{kind}: {name} is not in the catalogue" for name in sorted(set(data) - set(fields))]
    for name in set(data) & set(fields):
        try:
            fields[name].validate_python(data[name])
        except ValueError as error:
            found.append(f"{kind}: {name} is {data[name]!r}: {error}")
    return found


def check_events(session: Session) -> None:
    """Every event of a store is as the catalogue says."""
    rows = session.execute(select(Event.kind, Event.data)).all()
    assert sorted({fault for kind, data in rows for fault in faults(kind, data)}) == []
