"""Asking for subjobs and giving them back. Nothing here talks to the batch system: it writes intents."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import Row, select

from ejbd.core.room.walltimes import asked_walltime, length_for_ranks
from ejbd.core.view import BatchJobView
from ejbd.manager.actions.operations import add_operation
from ejbd.manager.context import Context
from ejbd.manager.learning.speculating import placeholder_s
from ejbd.manager.linked import arrays
from ejbd.manager.planning.jobworld import JobWorld
from ejbd.manager.times import work_now
from ejbd.store.models import Intent, Subjob
from ejbd.store.states import IntentState, SubjobState
from ejbd.store.transitions import INTENTS_TOPIC, add_event, move_intent, move_subjob, wake
from ejbd.wire.kinds import AS_ASKED, EventKind, IntentKind, OperationKind, SubjobRole

TAG_PREFIX = "ejb-"
RELEASE_GRACE_S = 20.0  # workers told to leave get this long before their batch job is cancelled


CLOCKS_APART_S = 5.0  # that the batch system's clock and ours may be


def is_ours(seen: BatchJobView, subjob: Subjob | Row[Any]) -> bool:
    """Whether the batch job that bears a subjob's id is the subjob: a controller that lost its state gives ids again.

    Its tag says so, whatever it is called by now. One whose comment somebody has changed is known by its age: what got
    the id later was submitted later.
    """
    if seen.foreign:
        return False
    if seen.mark.startswith(TAG_PREFIX):
        return seen.mark == subjob.tag
    if subjob.role not in AS_ASKED or seen.submit_s is None or subjob.submit_s is None:
        return False
    return seen.submit_s <= subjob.submit_s + CLOCKS_APART_S


def add_subjob(
    world: JobWorld,
    role: SubjobRole,
    places: int,
    length_s: float,
    *,
    slack_s: float = 0.0,
    limit_s: float = math.inf,
    anchor: bool = False,
    delay_s: float = 0.0,
) -> Subjob:
    """Plan a subjob of so many places (ejbd.core.needs), whose ranks may run for `length_s`.

    Up to `slack_s` more is asked for, and never more than `limit_s`. The slack is for what the plan does not count:
    workers that come up, and an application that is slower than was thought. Its last lambda, or what the last
    checkpoint is expected to take if that is more, is not for ranks but for that checkpoint, so that none is killed by
    its subjob's end.
    """
    ctx, job = world.ctx, world.job
    quantum = ctx.view.walltime_quantum_s if ctx.view else 1.0
    processors = places * (world.spec.threads if role in AS_ASKED else world.needs.processors)
    walltime_s = asked_walltime(length_s, slack_s, limit_s, quantum)
    ordinal = len(world.subjobs)
    id = f"{job.id}.{ordinal}"
    subjob = Subjob(
        id=id,
        job_id=job.id,
        ordinal=ordinal,
        role=role.value,
        tag=TAG_PREFIX + id,
        state=SubjobState.PLANNED,
        processors=processors,
        walltime_s=walltime_s,
        usable_s=length_for_ranks(walltime_s, length_s, world.cost.kept_s) if slack_s else walltime_s,
        anchor=anchor,
        created_s=ctx.now,
        nodes=[],
        releasing=False,
        joined=False,
        worker_secret="",
        reason="",
        elements=arrays.new_elements((job.spec.get("asked") or {}).get("array")) if role == SubjobRole.RIGID else None,
    )
    ctx.session.add(subjob)
    world.subjobs.append(subjob)
    add_event(
        ctx.session,
        EventKind.SUBJOB_PLANNED,
        ctx.now,
        job_id=job.id,
        subjob_id=id,
        role=role.value,
        processors=processors,
        walltime_s=walltime_s,
        usable_s=subjob.usable_s,
    )
    add_intent(ctx, IntentKind.SUBMIT, job.id, subjob=subjob, delay_s=delay_s)
    return subjob


def add_whole(world: JobWorld, *, delay_s: float = 0.0) -> Subjob:
    """Plan the job's whole batch job: J0 for what is left of an elastic one, or the job itself."""
    job = world.job
    if not job.elastic:
        return add_subjob(world, SubjobRole.RIGID, job.processes, job.walltime_s, delay_s=delay_s)
    length_s, slack_s = placeholder_s(job, work_now(job, world.ctx.now))
    return add_subjob(world, SubjobRole.PLACEHOLDER, job.processes, length_s, slack_s=slack_s, delay_s=delay_s)


def add_intent(
    ctx: Context,
    kind: IntentKind,
    job: str,
    *,
    subjob: Subjob | None = None,
    batch_id: str | None = None,
    delay_s: float = 0.0,
) -> Intent:
    """One action on the batch system, to be carried out after this transaction."""
    intent = Intent(
        kind=kind.value,
        job_id=job,
        subjob_id=subjob.id if subjob else None,
        batch_id=batch_id or (subjob.batch_id if subjob else None),
        state=IntentState.PENDING,
        attempts=0,
        absences=0,
        not_before_s=ctx.now + delay_s,
        created_s=ctx.now,
        error="",
    )
    ctx.session.add(intent)
    wake(ctx.session, INTENTS_TOPIC)
    return intent


def release(world: JobWorld, subjob: Subjob, why: str) -> None:
    """Give a subjob back: its workers are told to leave; one that never started, or does not leave, is cancelled."""
    if subjob.releasing or SubjobState(subjob.state).terminal:
        return
    ctx = world.ctx
    subjob.releasing = True
    add_event(ctx.session, EventKind.SUBJOB_RELEASED, ctx.now, job_id=world.job.id, subjob_id=subjob.id, reason=why)
    if subjob.state == SubjobState.PLANNED and _drop_submission(world, subjob, why):
        return
    workers = world.workers_of(subjob.id) if subjob.state == SubjobState.RUNNING else []
    for worker in workers:
        add_operation(ctx, worker, OperationKind.EXIT, {})
    add_intent(ctx, IntentKind.CANCEL, world.job.id, subjob=subjob, delay_s=RELEASE_GRACE_S if workers else 0.0)


def _drop_submission(world: JobWorld, subjob: Subjob, why: str) -> bool:
    """Take back a submission that has not been tried yet. A tried one must be found and cancelled instead."""
    query = select(Intent).where(
        Intent.subjob_id == subjob.id, Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING
    )
    intent = world.ctx.session.scalars(query).first()
    if intent is None or intent.attempts:
        return False
    move_intent(world.ctx.session, intent, IntentState.DROPPED, world.ctx.now)
    move_subjob(world.ctx.session, subjob, SubjobState.CANCELLED, world.ctx.now, reason=why)
    return True
