"""The number that a job goes by: SLURM_JOB_ID, `%j`, and what tools for Slurm are told (ejbd.wire.numbers).

It is that of the job's first J0, or of the first batch job of one that is passed through. Once told it never changes: a
J0 that is asked for again has another one, by which the job is found, too.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.facts import queues
from ejbd.manager.facts.context import Context
from ejbd.store.models import Dependency, Job, Subjob
from ejbd.store.states import JobState
from ejbd.wire.kinds import JobKind
from ejbd.wire.numbers import own_number


def number_of(job: Job) -> str:
    """What a job goes by: one of EJB's own where the batch system has given it none yet."""
    return job.number if job.number is not None else own_number(job.seq)


def may_come(ctx: Context, job: Job) -> bool:
    """Whether the batch system is about to give a job its number, so that it is worth waiting for."""
    if job.number is not None or JobState(job.state).terminal:
        return False
    if ctx.session.get(Dependency, job.id) is not None:
        return False  # it is handed on once that is met
    return not queues.kept_back(ctx.session, ctx.now).wholly_of(job)


def is_slurms(session: Session, job: Job, number: str) -> bool:
    """Whether this number of a job is one by which the batch system itself knows all of the job."""
    if job.elastic:
        return False
    if job.kind == JobKind.ARRAY or job.array_id is not None:
        return False
    return session.scalar(select(Subjob.id).where(Subjob.job_id == job.id, Subjob.batch_id == number)) is not None
