"""What elastic jobs were worth that have ended: hours earlier than J0's promise, and processor-seconds spent for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Numeric, Select, Text, and_, case, cast, func, select
from sqlalchemy.orm import Session

from ejbd.store.models import Job, Subjob
from ejbd.store.states import TERMINAL_JOB, JobState
from ejbd.wire.kinds import JobKind

DAY_S = 86400.0


class By(StrEnum):
    """What jobs are put together by."""

    DAY = "day"
    USER = "user"
    QUEUE = "queue"


def take_in(into: Any, other: object) -> None:
    """Add to each figure of `into` the one of the same name; its key stays."""
    for one in fields(into):
        if one.name != "key":
            setattr(into, one.name, getattr(into, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class Saved:
    """Jobs together. Seconds; processor-seconds.

    A job's promise is the start that the batch system first promised to J0, and the full-width seconds of its work from
    there on (Eq. 3). `earlier_s` and `later_s` are by how much jobs ended before and behind it. `uncounted`: elastic
    jobs that did not complete, or had no promise; they are in no other figure.
    """

    key: str
    jobs: int = 0
    earlier_s: float = 0.0
    later: int = 0
    later_s: float = 0.0
    charged_processor_s: float = 0.0
    alone_processor_s: float = 0.0
    uncounted: int = 0

    @property
    def saved_s(self) -> float:
        return self.earlier_s - self.later_s

    @property
    def spent_processor_s(self) -> float:
        """What was charged beyond what the jobs would have been at full width."""
        return self.charged_processor_s - self.alone_processor_s

    def add(self, other: Saved) -> None:
        """Take in what other jobs come to."""
        take_in(self, other)


def savings(session: Session, user: str | None, since_s: float, until_s: float, by: tuple[By, ...]) -> list[Saved]:
    """Of jobs that ended in [`since_s`, `until_s`), of one user or all; rows in the order of their keys.

    By several, a key has each, a space apart. The database adds up: no job is read by itself.
    """
    keys = [_BY[what].label(f"key_{at}") for at, what in enumerate(by)]
    jobs = _by_job(keys, user, since_s, until_s).subquery()
    counted = and_(jobs.c.promised_s.is_not(None), jobs.c.charged_s.is_not(None), jobs.c.state == JobState.COMPLETED)
    by_s = jobs.c.promised_s + jobs.c.full_s - jobs.c.end_s

    def total(value: ColumnElement[Any] | int, *also: ColumnElement[bool]) -> ColumnElement[Any]:
        return func.sum(case((and_(counted, *also), value), else_=0))

    figures = (
        *(total(1), total(by_s, by_s > 0), total(1, by_s < 0), total(-by_s, by_s < 0)),
        *(total(jobs.c.charged_s), total(jobs.c.processes * jobs.c.full_s), func.sum(case((counted, 0), else_=1))),
    )
    own = [jobs.c[key.name] for key in keys]
    found = [
        Saved(" ".join(_key(what, value) for what, value in zip(by, row, strict=False)), *row[len(by) :])
        for row in session.execute(select(*own, *figures).group_by(*own))
    ]
    return sorted(found, key=lambda row: row.key)


def together(rows: list[Saved]) -> Saved:
    """All of it in one row."""
    whole = Saved("all")
    for row in rows:
        whole.add(row)
    return whole


_BY: Mapping[By, ColumnElement[Any]] = {
    By.DAY: func.round(cast(Job.end_s / DAY_S - 0.5, Numeric)),  # the floor, which not every SQLite has
    By.USER: Job.user.expression,
    By.QUEUE: Job.queue.expression,
}


def _key(by: By, value: Any) -> str:
    return datetime.fromtimestamp(float(value) * DAY_S, UTC).strftime("%Y-%m-%d") if by is By.DAY else str(value)


def _by_job(keys: Sequence[ColumnElement[Any]], user: str | None, since_s: float, until_s: float) -> Select[Any]:
    """A row each: seconds of work at full width (W of Eq. 3), and processor-seconds where each batch job tells them."""
    held_s = case((Subjob.end_s > Subjob.start_s, Subjob.end_s - Subjob.start_s), else_=0.0)
    untold = func.count(case((cast(Subjob.elements, Text) != "null", 1)))
    charged_s = select(case((untold == 0, func.coalesce(func.sum(held_s * Subjob.processors), 0.0))))
    worked_s = case((Job.end_s > Job.work_as_of_s, Job.end_s - Job.work_as_of_s), else_=0.0)
    wanted = select(
        *keys,
        *(Job.state, Job.end_s, Job.processes, Job.rigid_start_s.label("promised_s")),
        (Job.work_s + Job.work_rate * worked_s).label("full_s"),
        charged_s.where(Subjob.job_id == Job.id).scalar_subquery().label("charged_s"),
    )
    wanted = wanted.where(Job.elastic, Job.kind != JobKind.ARRAY, Job.state.in_(TERMINAL_JOB))
    wanted = wanted.where(Job.end_s >= since_s, Job.end_s < until_s)
    wanted = wanted if user is None else wanted.where(Job.user.concat("") == user)  # found by its end, not by its user
    return wanted.limit(2**62)  # else SQLite puts it into each of the sums, and works a job's hours out for each anew
