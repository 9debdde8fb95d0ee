"""What elastic jobs were worth that have ended: hours earlier than J0's promise, and processor-seconds spent for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.facts.charges import processor_s
from ejbd.manager.facts.times import work_now
from ejbd.store.models import Job, Subjob
from ejbd.store.states import TERMINAL_JOB, JobState
from ejbd.wire.kinds import JobKind

_AT_ONCE = 500


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

    By several, a key has each, a space apart.
    """
    found: dict[str, Saved] = {}
    for job, one in _jobs(session, user, since_s, until_s):
        key = " ".join(_key(job, what) for what in by)
        found.setdefault(key, Saved(key)).add(one)
    return [found[key] for key in sorted(found)]


def together(rows: list[Saved]) -> Saved:
    """All of it in one row."""
    whole = Saved("all")
    for row in rows:
        whole.add(row)
    return whole


def _key(job: Job, by: By) -> str:
    if by is By.DAY:
        return datetime.fromtimestamp(job.end_s or 0.0, UTC).strftime("%Y-%m-%d")
    return job.user if by is By.USER else job.queue


def _jobs(session: Session, user: str | None, since_s: float, until_s: float) -> Iterator[tuple[Job, Saved]]:
    wanted = select(Job).where(Job.elastic, Job.kind != JobKind.ARRAY, Job.state.in_(TERMINAL_JOB))
    wanted = wanted.where(Job.end_s >= since_s, Job.end_s < until_s).order_by(Job.seq)
    if user is not None:
        wanted = wanted.where(Job.user == user)
    jobs = list(session.scalars(wanted))
    for at in range(0, len(jobs), _AT_ONCE):
        some = jobs[at : at + _AT_ONCE]
        charged = _charged(session, [job.id for job in some])
        yield from ((job, _of(job, charged.get(job.id, 0.0))) for job in some)


def _charged(session: Session, ids: list[str]) -> dict[str, float | None]:
    """Processor-seconds by job; None where one of its batch jobs does not tell."""
    found: dict[str, float | None] = {}
    columns = (Subjob.job_id, Subjob.processors, Subjob.start_s, Subjob.end_s, Subjob.elements)
    for row in session.execute(select(*columns).where(Subjob.job_id.in_(ids))):
        so_far, own = found.get(row.job_id, 0.0), processor_s(row, row.end_s or 0.0)
        found[row.job_id] = None if so_far is None or own is None else so_far + own
    return found


def _of(job: Job, charged: float | None) -> Saved:
    end_s, promised_s = job.end_s, job.rigid_start_s
    if job.state != JobState.COMPLETED or end_s is None or promised_s is None or charged is None:
        return Saved("", uncounted=1)
    full_s = work_now(job, end_s)
    by_s = promised_s + full_s - end_s
    return Saved(
        "",
        jobs=1,
        earlier_s=max(0.0, by_s),
        later=int(by_s < 0),
        later_s=max(0.0, -by_s),
        charged_processor_s=charged,
        alone_processor_s=job.processes * full_s,
    )
