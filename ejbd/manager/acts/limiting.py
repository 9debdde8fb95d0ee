"""Walltimes of batch jobs that are lowered to a plan while they wait, and raised to the request before that is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from ejbd.errors import BatchError
from ejbd.manager.acts import intents
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.raised import under_way
from ejbd.manager.rules.learning import raising
from ejbd.store import queries
from ejbd.store.models import Intent, Job, Subjob
from ejbd.wire.kinds import IntentKind

if TYPE_CHECKING:
    from ejbd.manager.acts.executor import Executor

KINDS = (IntentKind.LOWER, IntentKind.RAISE)


async def change(executor: Executor, intent: Intent) -> None:
    """Carry out one of these intents. A refusal of the first step of a plan leaves the request as it is."""
    targets = await executor.store.write(lambda s: intents.begin_actions(executor.context(s), [intent.id]))
    if not targets:
        return
    identity, batch_ids = next(iter(targets.items()))
    id, lowers = batch_ids[intent.id], intent.kind == IntentKind.LOWER
    request_s, first_s, quantum_s = await executor.store.read(lambda s: _walltimes(executor.context(s), intent))
    try:
        if lowers:  # it can be raised at all: otherwise nothing is lowered that would be killed by it
            await executor.change(identity, intent, id, walltime_s=request_s + quantum_s)
            await executor.change(identity, intent, id, walltime_s=first_s)
        else:
            await executor.change(identity, intent, id, walltime_s=request_s)
    except BatchError as error:
        message, again = error.sentence(), error.transient
        if again:
            await executor.record(
                [intent.id], lambda s: intents.repeat_later(s, [intent.id], message, executor.clock())
            )
        else:
            await executor.record([intent.id], lambda s: _refused(executor.context(s), intent.id, message))
        return
    await executor.record([intent.id], lambda s: _done(executor.context(s), intent.id))


def _walltimes(ctx: Context, intent: Intent) -> tuple[float, float, float]:
    """The request, the plan, and a quantum of the batch system."""
    job = _job(ctx.session, intent)
    plan = under_way(job)
    quantum_s = ctx.view.walltime_quantum_s if ctx.view is not None else 60.0
    return job.walltime_s, plan["first_s"] if plan is not None else job.walltime_s, quantum_s


def _job(session: Session, intent: Intent) -> Job:
    return queries.job(session, intent.job_id)


def _done(ctx: Context, id: int) -> None:
    session = ctx.session
    intents.done(session, [id], ctx.now)
    intent = session.get_one(Intent, id)
    subjob, job = session.get_one(Subjob, intent.subjob_id), _job(session, intent)
    carry_out(ctx, (raising.lowered if intent.kind == IntentKind.LOWER else raising.raised)(job, subjob))


def _refused(ctx: Context, id: int, message: str) -> None:
    session = ctx.session
    intents.failed(session, id, message, ctx.now)
    intent = session.get_one(Intent, id)
    if intent.kind == IntentKind.LOWER:
        carry_out(ctx, raising.not_lowered(ctx, _job(session, intent), message))
