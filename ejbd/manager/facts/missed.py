"""Time of a J0 that passed without its job: it had started, and no daemon was there to tell its workers what to run."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.manager.facts.jobrows import UNFINISHED_OPERATION, JobRows
from ejbd.manager.facts.times import CLOCKS_S
from ejbd.store.models import Operation, Subjob, Worker
from ejbd.store.states import OperationState, SubjobState
from ejbd.wire.kinds import JobKind, OperationKind, SubjobRole


def began_s(world: JobRows, subjob: Subjob) -> float | None:
    """When the first rank or the script of the job began in `subjob` (absolute seconds). None: nothing did.

    What its workers were told and have not answered counts for as long as they may yet do it.
    """
    kinds = [OperationKind.LAUNCH] + [OperationKind.LEAD] * (world.job.kind == JobKind.SCRIPT)
    states = [OperationState.DONE]
    if not SubjobState(subjob.state).terminal:
        states += UNFINISHED_OPERATION
    query = (
        select(Operation.created_s, Operation.done_s, Operation.result)
        .join(Worker, Operation.worker_id == Worker.id)
        .where(Worker.subjob_id == subjob.id, Operation.kind.in_(kinds), Operation.state.in_(states))
    )
    found = []
    for created_s, done_s, result in world.ctx.session.execute(query):
        told_s = created_s if done_s is None else done_s - float((result or {}).get("seconds") or 0.0)
        found.append(max(created_s, told_s if done_s is not None else world.ctx.up_since))
    return min(found, default=None)


def was_away(world: JobRows, subjob: Subjob) -> bool:
    """Whether this daemon was started after `subjob` was, so that none may have been there when it began."""
    since_s = next(s for s in (subjob.start_s, subjob.submit_s, subjob.created_s) if s is not None)
    return world.ctx.up_since > since_s


def missed_s(world: JobRows, subjob: Subjob) -> float:
    """How much of a J0's time passed before its job began there, since no daemon was there (seconds).

    0 where it is no more than a job waits for its beginning anyway.
    """
    if subjob.role != SubjobRole.PLACEHOLDER or subjob.start_s is None or not was_away(world, subjob):
        return 0.0
    ctx = world.ctx
    over = SubjobState(subjob.state).terminal and subjob.end_s is not None
    begun_s = began_s(world, subjob)
    until_s = begun_s if begun_s is not None else subjob.end_s if over else ctx.now
    late_s = (until_s if until_s is not None else ctx.now) - subjob.start_s
    return late_s if late_s > ctx.settings.poll_s + CLOCKS_S else 0.0
