"""J0s that are not needed any more: their number was taken for the job's.

A batch job that waits for a job in the batch system waits for its J0. J0 therefore ends as the job did, or is cancelled
where nothing waits for it. One that starts while the job goes on without it is set aside until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from ejbd.batch.base import Identity
from ejbd.errors import BatchError, EjbError
from ejbd.manager.acts import intents
from ejbd.manager.acts.subjobs import release
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts.endcode import end_code
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store import queries
from ejbd.store.models import Intent, Subjob
from ejbd.store.states import STARTED_SUBJOB, JobState
from ejbd.wire.kinds import SubjobRole

if TYPE_CHECKING:
    from ejbd.manager.acts.executor import Executor


@dataclass(frozen=True, slots=True)
class _AsItsJob:
    """A J0 of a job that is over. `held`: it has to be released to begin. `runs`: as far as is known."""

    job: str
    subjob: str
    code: int
    held: bool
    runs: bool


def _as_its_job(session: Session, id: int) -> _AsItsJob:
    intent = session.get_one(Intent, id)
    subjob = session.get_one(Subjob, intent.subjob_id)
    job = queries.job(session, intent.job_id)
    aside = subjob.role == SubjobRole.ASIDE  # back in the queue, though no look may have shown that yet
    runs = subjob.state in STARTED_SUBJOB and not aside
    return _AsItsJob(job.id, subjob.id, end_code(job) or 0, job.held or aside, runs)


async def end(executor: Executor, ends: Sequence[Intent]) -> None:
    """J0s of jobs that are over: cancelled, or left to end as their job did where another job waits for them.

    What waits is asked at this moment: a job's last line may have submitted what depends on it.
    """
    for identity, batch_ids in (await executor.begin_to_cancel(ends)).items():
        begun = list(batch_ids)
        try:
            awaited = await executor.batch.waited_for(identity, sorted(set(batch_ids.values())))
        except BatchError as error:
            message = error.sentence()
            await executor.record(begun, lambda s, b=begun, m=message: intents.repeat_later(s, b, m, executor.clock()))  # type: ignore[misc]
            continue
        reach(CrashPoint.END_AFTER_ASKING)
        if unawaited := {id: batch_id for id, batch_id in batch_ids.items() if batch_id not in awaited}:
            await executor.cancel_of(identity, unawaited)
        for id in begun:
            if id not in unawaited:
                await _end_as_job(executor, identity, id, batch_ids[id])


async def _end_as_job(executor: Executor, identity: Identity, id: int, batch_id: str) -> None:
    """The code goes to where J0's script looks when it begins; then J0 is made so small that it begins soon.

    Where the batch system does not make it smaller J0 ends so all the same, once its turn comes.
    """
    found = await executor.store.read(lambda s: _as_its_job(s, id))
    if found.runs:  # its workers did not leave
        await executor.cancel_of(identity, {id: batch_id})
        return
    spool = executor.hands.spool_of(identity.user)
    file = spool.end_file(found.job, found.subjob)
    try:
        await asyncio.to_thread(spool.files.put, file, f"{found.code}\n".encode())
        await executor.look_at_one(identity, id, batch_id)
        await executor.batch.reduce(identity, batch_id, held=found.held)
    except (BatchError, EjbError) as error:
        message = error.sentence()
        if not isinstance(error, BatchError) or error.transient:
            await executor.record([id], lambda s: intents.repeat_later(s, [id], message, executor.clock()))
        else:
            await executor.record([id], lambda s: intents.ends_as_job(s, id, found.code, message, executor.clock()))
        return
    reach(CrashPoint.END_AFTER_CALL)
    await executor.record([id], lambda s: intents.ends_as_job(s, id, found.code, "", executor.clock()))


async def set_aside(executor: Executor, intent: Intent) -> None:
    targets = await executor.store.write(lambda s: intents.begin_actions(executor.context(s), [intent.id]))
    if not targets:
        return
    identity, batch_ids = next(iter(targets.items()))
    batch_id = batch_ids[intent.id]
    try:
        await executor.look_at_one(identity, intent.id, batch_id)
        await executor.batch.set_aside(identity, batch_id)
    except BatchError as error:
        message, awaited = error.sentence(), False
        if not error.transient:
            try:
                awaited = batch_id in await executor.batch.waited_for(identity, [batch_id])
            except BatchError as unanswered:
                error = unanswered
        if error.transient:
            await executor.record(
                [intent.id], lambda s: intents.repeat_later(s, [intent.id], message, executor.clock())
            )
        else:
            await executor.record([intent.id], lambda s: _stays_where_it_is(executor, s, intent.id, message, awaited))
        return
    reach(CrashPoint.ASIDE_AFTER_CALL)
    await executor.record([intent.id], lambda s: intents.done(s, [intent.id], executor.clock()))


def _stays_where_it_is(executor: Executor, session: Session, id: int, message: str, awaited: bool) -> None:
    """J0 cannot go back into the queue. It stays to its job's end where another job waits for it."""
    intents.failed(session, id, message, executor.clock())
    intent = session.get_one(Intent, id)
    job = queries.job(session, intent.job_id)
    world = JobWorld(executor.context(session), job)
    j0 = world.subjob(intent.subjob_id or "")
    if j0 is not None and not awaited and not JobState(job.state).terminal:
        release(world, j0, "the job completes earlier without J0")
