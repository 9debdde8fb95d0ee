"""Effects on rows as such: columns that have no effect of their own, events, and topics to wake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Base
from ejbd.wire.kinds import EventKind


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """Put values into columns of a row. Not states, members or work, which have effects of their own."""

    row: Base
    columns: Mapping[str, Any]


def note(row: Base, **columns: Any) -> Note:
    return Note(row, columns)


@dataclass(frozen=True, slots=True)
class Insert(Effect):
    """Add a row, and answer it."""

    row: Base


@dataclass(frozen=True, slots=True)
class Delete(Effect):
    row: Base


@dataclass(frozen=True, slots=True)
class Tell(Effect):
    """Append an event. `job_id` "": the job that the rule is about. `data`: plain JSON values."""

    kind: EventKind
    data: Mapping[str, Any]
    subjob_id: str | None = None
    job_id: str | None = ""


def tell(kind: EventKind, *, subjob_id: str | None = None, job_id: str | None = "", **data: Any) -> Tell:
    return Tell(kind, data, subjob_id, job_id)


@dataclass(frozen=True, slots=True)
class Wake(Effect):
    """Wake what waits for these topics, once the transaction is durable."""

    topics: tuple[str, ...]
