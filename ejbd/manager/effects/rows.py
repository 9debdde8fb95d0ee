"""Effects on rows as such: columns that have no effect of their own, events, and topics to wake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Base, Job, Move, Obstacle, Overhead, Run, Speed
from ejbd.wire.kinds import EventKind
from ejbd.wire.toldruns import ToldRun


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """Put values into columns of a row. Not states, members or work, which have effects of their own."""

    row: Base
    columns: Mapping[str, Any]


def note(row: Base, **columns: Any) -> Note:
    return Note(row, columns)


@dataclass(frozen=True, slots=True)
class Insert(Effect):
    """Add a row, and answer it. Its defaults are known once it is flushed."""

    row: Base


@dataclass(frozen=True, slots=True)
class InsertRows(Effect):
    """Add many rows of the same columns by one statement."""

    model: type[Base]
    rows: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Delete(Effect):
    row: Base


@dataclass(frozen=True, slots=True)
class Flush(Effect):
    """Send what was written so far to the database: what is asked next sees it, and rows have their numbers."""


@dataclass(frozen=True, slots=True)
class Tell(Effect):
    """Append an event, `data` in plain JSON values."""

    kind: EventKind
    job_id: str | None
    subjob_id: str | None
    data: Mapping[str, Any]


def tell(kind: EventKind, *, job_id: str | None = None, subjob_id: str | None = None, **data: Any) -> Tell:
    return Tell(kind, job_id, subjob_id, data)


@dataclass(frozen=True, slots=True)
class TellAll(Effect):
    """Append many events by one statement: the columns of each, with its `job_id`."""

    events: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Wake(Effect):
    """Wake what waits for these topics, once the transaction is durable."""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class Remember(Effect):
    """Keep a row of what runs teach (ejbd.manager.facts.past.history)."""

    row: Move | Speed | Run | Obstacle | Overhead


@dataclass(frozen=True, slots=True)
class ForgetHistory(Effect):
    """What the transaction has read of the history is read anew."""


@dataclass(frozen=True, slots=True)
class KeepRun(Effect):
    """Keep a run of the past, unless it is known (ejbd.manager.facts.past.pastruns)."""

    run: ToldRun


@dataclass(frozen=True, slots=True)
class ForgetCutShort(Effect):
    """Forget what an earlier attempt told of the same run, where this one tells more: it would count twice."""

    run: ToldRun


@dataclass(frozen=True, slots=True)
class SettleNumber(Effect):
    """The numbers that a job and its array go by are about to be told, and never change from now on."""

    job: Job
