"""Writes the numbers that jobs go by."""

from __future__ import annotations

from sqlalchemy.orm import Session

from ejbd.manager.effects import SettleNumber
from ejbd.manager.facts.batchjob.numbers import number_of
from ejbd.manager.facts.context import Context
from ejbd.store import queries
from ejbd.store.models import Job, Subjob
from ejbd.wire.kinds import SubjobRole
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


def settle_both(ctx: Context, effect: SettleNumber) -> None:
    settled(effect.job)
    settle_array(ctx.session, effect.job)


def settle_array(session: Session, job: Job) -> None:
    """That of the array of which a job is an element."""
    if job.array_id is not None and job.array_index is not None:
        settled(queries.job(session, job.array_id))
