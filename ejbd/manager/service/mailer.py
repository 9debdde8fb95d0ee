"""The mails of elastic jobs: one for the job, not one for each of its subjobs, and each at most once.

They follow the events. How far that has come is stored before a mail is sent: a daemon that is killed in between sends
it never rather than twice. What sends them is a program, called as slurmctld calls it: `PROGRAM -s SUBJECT RECIPIENT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import Exists, exists, or_, select
from sqlalchemy.orm import Session, aliased

from ejbd.batch.base import BatchSystem, Mailing, mailing
from ejbd.batch.process import CommandResult, Commands
from ejbd.config import Settings
from ejbd.core.walltime import exact_walltime
from ejbd.errors import BatchError, EjbError
from ejbd.manager.jobspec import mail as asked
from ejbd.manager.jobspec.mail import Mail
from ejbd.manager.service.news import newest_event
from ejbd.store import marks
from ejbd.store.models import Event, Job
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.store.transitions import EVENTS_TOPIC, add_event
from ejbd.wire.kinds import JOB_EVENT, EventKind, JobKind

log = structlog.get_logger(__name__)

SEND_S = 30.0  # a program that takes longer is ended
REST_S = 1.0  # between two looks at what has happened
RETRY_S = 30.0  # after a look that failed: the batch system is asked what sends mails
AT_ONCE = 500  # events in one look
NOTED_EVENTS = 1000  # that asked for no mail, after which the database is told how far this has come
_ENDS = {
    JOB_EVENT[JobState.COMPLETED]: "COMPLETED",
    JOB_EVENT[JobState.CANCELLED]: "CANCELLED",
    JOB_EVENT[JobState.FAILED]: "FAILED",
    JOB_EVENT[JobState.TIMEOUT]: "TIMEOUT",
}
_KINDS = (JOB_EVENT[JobState.RUNNING], EventKind.JOB_AGAIN, *_ENDS)


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail: its event and job, its subject (a word of --mail-type), and the user that gets it."""

    event: int
    job_id: str
    about: str
    to: str
    subject: str


class Mailer:
    """`run` goes on until it is cancelled; `woken` is told of each commit."""

    def __init__(self, settings: Settings, store: Store, batch: BatchSystem, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._store = store
        self._batch = batch
        self._clock = clock
        self._commands = Commands()
        self._due = asyncio.Event()
        self._after = 0  # events up to this one have been looked at
        self._noted = 0  # as the database has it

    def woken(self, topics: frozenset[str]) -> None:
        if EVENTS_TOPIC in topics:
            self._due.set()

    async def begin(self) -> None:
        """From here on there are mails: of nothing that happened before this database knew of them."""
        self._after = self._noted = await self._store.write(marks.mailed)
        self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                while await self._look():
                    pass
                await asyncio.sleep(REST_S)
                continue
            except EjbError as error:
                log.warning("mails-wait", error=error.sentence())
            except Exception as error:  # no mail is worth that there are none any more
                log.error("mails-fault", error=repr(error), exc_info=error)
            self._due.set()
            await asyncio.sleep(RETRY_S)

    async def _look(self) -> bool:
        """Send what the next events ask for; whether there may be more."""
        letters, after, more = await self._store.read(lambda session: due(session, self._after))
        for letter in letters:
            with_what = await mailing(self._settings.mail_program, self._batch)
            await self._store.write(lambda session, letter=letter: marks.set_mailed(session, letter.event))  # type: ignore[misc]
            self._after = self._noted = letter.event
            await self._send(letter, with_what)
        self._after = max(self._after, after)
        if self._after - self._noted >= NOTED_EVENTS:
            self._noted = self._after
            await self._store.write(lambda session: marks.set_mailed(session, self._noted))
        return more

    async def _send(self, letter: Letter, mailing: Mailing) -> None:
        if not mailing.program:
            return  # its user was told at the submission
        to = letter.to
        if mailing.domain:
            to = ",".join(one if "@" in one or not one else f"{one}@{mailing.domain}" for one in to.split(","))
        error = "" if asked.is_recipient(to) else f"{to[:80]!r} is no address"  # an account may be called -u
        try:
            if not error:
                done: CommandResult = await self._commands.run(
                    [mailing.program, "-s", letter.subject, to], timeout_s=SEND_S
                )
                error = f"{mailing.program} ended with {done.code}: {done.stderr.strip()[:200]}" if done.code else ""
        except BatchError as failed:
            error = failed.sentence()
        if error:
            log.warning("mail-not-sent", job=letter.job_id, about=letter.about, error=error)
        await self._store.write(lambda session: self._tell(session, letter, to, error))

    def _tell(self, session: Session, letter: Letter, to: str, error: str) -> None:
        now, job_id = self._clock(), letter.job_id
        add_event(session, EventKind.JOB_MAIL, now, job_id=job_id, about=letter.about, to=to, error=error)


def due(session: Session, after: int) -> tuple[list[Letter], int, bool]:
    """The mails that the events behind number `after` ask for, the last event looked at, and whether more wait."""
    newest = newest_event(session)
    query = (
        select(
            Event.id, Event.kind, Job.id.label("job_id"), Job.name, Job.user, Job.kind.label("job_kind"), Job.array_id,
            Job.submit_s, Job.start_s, Job.end_s, Job.exit_code, Job.spec["mail"].label("mail"),
        )
        .join(Job, Event.job_id == Job.id)
        .where(Event.id > after, Event.kind.in_(_KINDS), or_(Job.elastic, _has_begun_alone()))
        .order_by(Event.id)
        .limit(AT_ONCE)
    )  # fmt: skip
    rows = session.execute(query).all()
    letters = [letter for row in rows if row.mail for letter in _letters(session, row, Mail.from_json(row.mail))]
    more = len(rows) == AT_ONCE
    return letters, rows[-1].id if more else newest, more


def _has_begun_alone() -> Exists:
    """Whether a job was elastic when the batch system was told of it, and so not of its mails."""
    told = aliased(Event)
    return exists().where(told.job_id == Job.id, told.kind == EventKind.JOB_ALONE)


def _letters(session: Session, row: Any, mail: Mail) -> list[Letter]:
    tasks = asked.TASKS in mail.kinds
    if (row.job_kind == JobKind.ARRAY and tasks) or (row.array_id is not None and not tasks):
        return []  # an array sends its mails as one, or each of its elements does
    found: list[tuple[str, str]] = []
    if row.kind == EventKind.JOB_AGAIN:
        found = [(asked.REQUEUE, "Requeued")]
    elif row.kind not in _ENDS:
        if not _ran_before(session, row):
            found = [(asked.BEGIN, f"Began, Queued time {_length(row.submit_s, row.start_s)}")]
    else:
        state, ran = _ENDS[row.kind], f"Run time {_length(row.start_s, row.end_s)}"
        if state == "TIMEOUT":
            found.append((asked.TIME_LIMIT, f"Reached time limit, {ran}"))
        # As slurmctld has it: one that was cancelled has ended, and of one that failed END says nothing.
        about, what = (asked.END, "Ended") if state in ("COMPLETED", "CANCELLED") else (asked.FAIL, "Failed")
        found.append((about, f"{what}, {ran}, {state}, ExitCode {row.exit_code or 0}"))
    return [
        Letter(row.id, row.job_id, about, mail.user or row.user, f"EJB Job_id={row.job_id} Name={row.name} {words}")
        for about, words in found
        if about in mail.kinds
    ]


def _ran_before(session: Session, row: Any) -> bool:
    """Whether it had begun before it was put back, or suspended."""
    earlier = select(Event.id).where(Event.job_id == row.job_id, Event.kind == row.kind, Event.id < row.id)
    return session.scalars(earlier.limit(1)).first() is not None


def _length(begin_s: float | None, end_s: float | None) -> str:
    return exact_walltime(end_s - begin_s) if begin_s is not None and end_s is not None else "00:00:00"
