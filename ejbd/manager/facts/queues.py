"""Queues that are left alone for a while: what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from sqlalchemy import ColumnElement, and_, false, not_, or_, select, true
from sqlalchemy.orm import Session

from ejbd.manager.facts.context import Context
from ejbd.store.models import Intent, Job, QueuePause
from ejbd.store.states import IntentState
from ejbd.wire.kinds import IntentKind
from ejbd.wire.limited import limited_to, text_of

DIFFERENT_USERS = 3  # that wait for an answer, until it is no longer taken for the doing of one of them
DIFFERENT_JOBS = 2  # of that many it is the queue's fault, as far as one can tell


class Failing(StrEnum):
    """What fails."""

    SUBMISSIONS = "submissions"
    STARTS = "starts"
    PROMISES = "promises"  # of J0s, by elastic jobs that end later (ejbd.manager.facts.losing)


class ToldPause(TypedDict):
    """Why and until when a queue is left alone. `what` fails; `whose`: `user/account/QOS`; "" for all users."""

    what: str
    whose: str
    reason: str
    failures: int
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class KeptBack:
    """Queues that get no submissions now, each with the user, account and QOS of the pause ("": of all jobs).

    `wholly`: no job is submitted. `but_for_new`: only jobs that were tried before wait.

    `until_s`: when the first of them is tried again.
    """

    wholly: tuple[tuple[str, str], ...] = ()
    but_for_new: tuple[tuple[str, str], ...] = ()
    until_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.wholly or self.but_for_new)

    def of(self, job: Job) -> bool:
        """Whether a job that was refused has to wait for the end of a pause."""
        return any((job.queue, part) in (*self.wholly, *self.but_for_new) for part in ("", whose_is(job)))

    def wholly_of(self, job: Job) -> bool:
        """Whether not even a job that was never tried is submitted."""
        return any((job.queue, part) in self.wholly for part in ("", whose_is(job)))

    def takes(self, *, tried: bool = False) -> ColumnElement[bool]:
        """Of jobs: those of which anything is submitted now (`tried`: again)."""
        kept = (and_(Job.queue == name, is_of(part)) for name, part in (self.but_for_new if tried else self.wholly))
        return not_(or_(false(), *kept))


def whose_is(job: Job) -> str:
    """A job may wait for a pause of its own user in its own account and QOS, beside a pause for all: what names it."""
    return text_of(job.user, job.account, job.qos)


def is_of(part: str) -> ColumnElement[bool]:
    """Of jobs: whether they wait for a pause of this user, account and QOS ("": all do)."""
    return true() if not part else Job.user + "/" + Job.account + "/" + Job.qos == part


_PAUSED = (
    select(QueuePause.name)
    .where(QueuePause.what == Failing.SUBMISSIONS.value, QueuePause.until_s.is_not(None))
    .limit(1)
)


def any_paused(session: Session) -> bool:
    """Whether any queue's submissions are paused, or being tried again."""
    return session.scalars(_PAUSED).first() is not None


def kept_back(session: Session, now: float) -> KeptBack:
    """To which queues nothing is to be submitted now."""
    query = select(QueuePause).where(QueuePause.what == Failing.SUBMISSIONS.value, QueuePause.until_s > now)
    rows = list(session.scalars(query))
    wholly = tuple((row.name, row.whose) for row in rows if len(row.jobs) >= DIFFERENT_JOBS)
    but_for_new = tuple((row.name, row.whose) for row in rows if (row.name, row.whose) not in wholly)
    return KeptBack(wholly, but_for_new, min((row.until_s for row in rows if row.until_s is not None), default=None))


def own_part(ctx: Context, job: Job) -> str:
    """For which user's jobs a queue is paused where subjobs of `job` come to nothing, or no answer comes ("": for all).

    Where each user's jobs run as that user, a user's own files or program may be the reason.
    """
    return whose_is(job) if ctx.hands.by_user else ""


def users_without_answer(session: Session, queue: str) -> set[str]:
    """Users with submissions to a queue of which it is not known now whether they were taken."""
    query = select(Job.user).join(Intent, Intent.job_id == Job.id)
    unknown = query.where(Job.queue == queue, Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.UNKNOWN)
    return set(session.scalars(unknown.distinct()))


def start_pauses(session: Session) -> dict[tuple[str, str], float]:
    """Until when no subjob is asked for in the queues where they keep coming to nothing (absolute seconds).

    By the queue and by the user, account and QOS that it is paused for ("": all).
    """
    query = select(QueuePause).where(QueuePause.what == Failing.STARTS.value, QueuePause.until_s.is_not(None))
    return {(row.name, row.whose): row.until_s for row in session.scalars(query) if row.until_s is not None}


def pauses_of(session: Session, queue: str, *, default: bool = False) -> list[ToldPause]:
    """What is told of a queue's pauses. `default`: it is where jobs go that name none."""
    rows = session.scalars(select(QueuePause).where(QueuePause.until_s.is_not(None)).order_by(QueuePause.what))
    return [
        {
            "what": row.what,
            "whose": row.whose,
            "reason": row.reason,
            "failures": row.failures,
            "since_s": row.since_s,
            "until_s": row.until_s,
        }
        for row in rows
        if row.until_s is not None and (queue in row.name.split(",") or (default and not row.name))
    ]


def sentence(session: Session, job: Job, now: float) -> str:
    """What keeps a waiting job of a paused queue back, for its user; "" where nothing does."""
    for told in pauses_of(session, job.queue) if job.queue else pauses_of(session, "", default=True):
        if told["what"] in (Failing.STARTS, Failing.PROMISES) and not job.elastic:
            continue
        if told["whose"] not in ("", whose_is(job)):
            continue
        again = max(0.0, told["until_s"] - now)
        queue = job.queue or "(the default)"
        if told["what"] == Failing.PROMISES:
            return f"no job of queue {queue} is started early: {told['reason']}; tried again in {again:.0f} s"
        return (
            f"queue {queue} is paused{limited_to(told['whose'])}, since {told['what']} keep failing: {told['reason']}; "
            f"tried again in {again:.0f} s, or at once by `ejb queue resume {queue}`"
        )
    return ""
