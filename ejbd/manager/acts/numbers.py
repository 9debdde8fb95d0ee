"""Writes the numbers that jobs go by."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ejbd.manager.acts.subjobs import add_intent
from ejbd.manager.effects import SettleNumber
from ejbd.manager.facts.batchjob.begins import READ_S
from ejbd.manager.facts.batchjob.numbers import number_of
from ejbd.manager.facts.context import Context
from ejbd.store import queries
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState, JobState
from ejbd.store.transitions import INTENTS_TOPIC, wake
from ejbd.wire.kinds import IntentKind, SubjobRole
from ejbd.wire.numbers import batch_number

_ITS_OWN = (SubjobRole.PLACEHOLDER, SubjobRole.RIGID)


def known(session: Session, subjob: Subjob) -> None:
    """The batch system has said what it calls a batch job: the job, and the array that it is of, may be called so."""
    number = batch_number(subjob.batch_id)
    if subjob.role not in _ITS_OWN or number is None:
        return
    job = queries.job(session, subjob.job_id)
    if job.number is None:
        job.number = number
    if job.array_id is not None:
        array = queries.job(session, job.array_id)
        array.number = array.number or job.number


def settled(job: Job) -> str:
    """The number of a job, from now on, since it is about to be told: one of EJB's own where there is no other yet."""
    job.number = number_of(job)
    return job.number


def told_number(job: Job) -> str:
    """The same for a job's submitter. What the batch system refused goes by none: its submitter is told that."""
    never_taken = JobState(job.state) is JobState.FAILED and job.number is None and job.start_s is None
    return number_of(job) if never_taken else settled(job)


def let_begin_later(ctx: Context, subjob: Subjob) -> None:
    """The number of a batch job that is about to be submitted is to be read: it begins after that, or after READ_S."""
    begin = _begins(ctx.session, [subjob.job_id]) or [add_intent(ctx, IntentKind.BEGIN, subjob.job_id, subjob=subjob)]
    begin[0].not_before_s = ctx.now + READ_S


def number_read(ctx: Context, id: str) -> None:
    """A job's submitter has read its number: what of it waited for that begins now."""
    jobs = ctx.session.scalars(select(Job).where(or_(Job.id == id, Job.array_id == id), Job.unread)).all()
    for job in jobs:
        job.unread = False
    for begin in _begins(ctx.session, [job.id for job in jobs]):
        begin.not_before_s = min(begin.not_before_s, ctx.now)
        wake(ctx.session, INTENTS_TOPIC)


def _begins(session: Session, jobs: Sequence[str]) -> list[Intent]:
    waiting = select(Intent).join(Subjob, Intent.subjob_id == Subjob.id).where(Subjob.ordinal == 0)
    waiting = waiting.where(Intent.kind == IntentKind.BEGIN, Intent.state == IntentState.PENDING)
    return list(session.scalars(waiting.where(Intent.job_id.in_(jobs))))


def settle_both(ctx: Context, effect: SettleNumber) -> None:
    settled(effect.job)
    settle_array(ctx.session, effect.job)


def settle_array(session: Session, job: Job) -> None:
    """That of the array of which a job is an element."""
    if job.array_id is not None and job.array_index is not None:
        settled(queries.job(session, job.array_id))
