"""Asking for subjobs and giving them back. Nothing here talks to the batch system: it writes intents."""

from __future__ import annotations

import math

from sqlalchemy import select, update

from ejbd.core.continuation import next_link
from ejbd.core.evolving.course import base_of
from ejbd.core.room.walltimes import asked_walltime, length_for_ranks
from ejbd.manager.acts.operations import add_operation
from ejbd.manager.acts.unsubmitted import never_submitted
from ejbd.manager.effects import Act, Ask, MoveSubjob, SubmitNow
from ejbd.manager.facts import arrays
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.endcode import exit_payload, is_cancelled
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.speculating import placeholder_s
from ejbd.manager.facts.queues import is_of
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.manager.facts.times import work_now
from ejbd.manager.hands import orders
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import LIVING_JOB, IntentState, JobState, SubjobState
from ejbd.store.transitions import INTENTS_TOPIC, add_event, move_subjob, wake
from ejbd.wire.kinds import AS_ASKED, J0_ROLES, EventKind, IntentKind, OperationKind, SubjobRole

RELEASE_GRACE_S = 20.0  # workers told to leave get this long before their batch job is cancelled


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
    """Plan a subjob of so many places (ejbd.core.needs). Its ranks may run for `length_s`.

    Up to `slack_s` more is asked for, and never more than `limit_s`. The slack is for what the plan does not count:
    workers that come up, and an application that is slower than was thought. Its last lambda is not for ranks but for
    the last checkpoint, or as long as that is expected to take, if that is more. So none is killed by its subjob's end.
    """
    ctx, job = world.ctx, world.job
    quantum = ctx.view.walltime_quantum_s if ctx.view else 1.0
    processors = places * (world.spec.threads if role in AS_ASKED and not job.elastic else world.needs.processors)
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
    """Plan the job's whole batch job: J0 for what is left of an elastic one, or the job itself.

    Of an evolving job J0 is what all of its steps have in common.
    """
    job = world.job
    if not job.elastic:
        return add_subjob(world, SubjobRole.RIGID, job.processes, job.walltime_s, delay_s=delay_s)
    done_s, limit_s = work_now(job, world.ctx.now), math.inf
    length_s, slack_s = placeholder_s(job, done_s)
    if (chain := job.spec.get("chain")) is not None:
        limit_s = chain["limit_s"]
        restart_s = (world.cost.restart_s or world.cost.lambda_s) if done_s else 0.0
        link = next_link(max(0.0, job.walltime_s - done_s), limit_s, restart_s, 0.0)
        length_s, slack_s = link.length_s, link.slack_s
    places = job.processes if world.evolving is None else base_of(world.evolving)
    return add_subjob(
        world, SubjobRole.PLACEHOLDER, places, length_s, slack_s=slack_s, limit_s=limit_s, delay_s=delay_s
    )


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
    if subjob.releasing or SubjobState(subjob.state).terminal or _has_begun(world, subjob):
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


def _has_begun(world: JobWorld, subjob: Subjob) -> bool:
    """Whether a J0 that is to be given back has begun the job by itself: then it is taken up at the next look instead.
    Otherwise it cannot any more. The end of the job counts in any case."""
    if subjob.role != SubjobRole.PLACEHOLDER:
        return False
    withdrawn = orders.withdraw(world.spool, world.job.id, subjob.id)
    return not withdrawn and world.job.elastic and world.job.state in (JobState.WAITING, JobState.RUNNING)


def release_at_end(world: JobWorld, subjob: Subjob, why: str) -> None:
    """Give a subjob back at the end of its job.

    Jobs of the batch system may wait for J0, since the job goes by its number. J0 ends in the job's state and with its
    code, unless the job has none of its own.
    """
    j0 = subjob.role in J0_ROLES and subjob.state != SubjobState.PLANNED
    if subjob.releasing or SubjobState(subjob.state).terminal or not j0:
        release(world, subjob, why)
        return
    ctx = world.ctx
    orders.withdraw(world.spool, world.job.id, subjob.id)
    subjob.releasing = True
    add_event(ctx.session, EventKind.SUBJOB_RELEASED, ctx.now, job_id=world.job.id, subjob_id=subjob.id, reason=why)
    if is_cancelled(world.job, subjob):
        add_intent(ctx, IntentKind.CANCEL, world.job.id, subjob=subjob)
        return
    running = subjob.state == SubjobState.RUNNING
    for worker in world.workers_of(subjob.id) if running else ():
        add_operation(ctx, worker, OperationKind.EXIT, exit_payload(world.job, subjob))
    add_intent(ctx, IntentKind.END, world.job.id, subjob=subjob, delay_s=RELEASE_GRACE_S if running else 0.0)


def set_aside(world: JobWorld, j0: Subjob, why: str) -> None:
    """The job goes on without J0, which has started: off its processors it keeps the job's number to the job's end."""
    j0.role = SubjobRole.ASIDE.value
    add_event(
        world.ctx.session, EventKind.SUBJOB_ASIDE, world.ctx.now, job_id=world.job.id, subjob_id=j0.id, reason=why
    )
    add_intent(world.ctx, IntentKind.ASIDE, world.job.id, subjob=j0)


def _drop_submission(world: JobWorld, subjob: Subjob, why: str) -> bool:
    """Take back a submission that has not been tried yet. One that was refused is due at once, and then not wanted."""
    query = select(Intent).where(
        Intent.subjob_id == subjob.id, Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING
    )
    intent = world.ctx.session.scalars(query).first()
    if intent is None:
        return False
    if intent.attempts:
        intent.not_before_s = world.ctx.now
        wake(world.ctx.session, INTENTS_TOPIC)
        return False
    never_submitted(world.ctx.session, intent, IntentState.DROPPED, world.ctx.now)
    move_subjob(world.ctx.session, subjob, SubjobState.CANCELLED, world.ctx.now, reason=why)
    return True


def ask(world: JobWorld, effect: Ask) -> Subjob:
    return add_subjob(
        world,
        effect.role,
        effect.places,
        effect.length_s,
        slack_s=effect.slack_s,
        limit_s=effect.limit_s,
        anchor=effect.anchor,
        delay_s=effect.delay_s,
    )


def move(ctx: Context, effect: MoveSubjob) -> None:
    more = effect.data or {}
    move_subjob(ctx.session, effect.subjob, effect.state, ctx.now, reason=effect.reason, setback=effect.setback, **more)


def act(ctx: Context, effect: Act) -> Intent:
    return add_intent(
        ctx, effect.kind, effect.job_id, subjob=effect.subjob, batch_id=effect.batch_id, delay_s=effect.delay_s
    )


def submit_now(ctx: Context, effect: SubmitNow) -> None:
    refused = (Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING, Intent.attempts > 0)
    jobs = select(Job.id).where(Job.state.in_(LIVING_JOB), Job.queue == effect.queue, is_of(effect.whose))
    due = update(Intent).where(*refused, Intent.job_id.in_(jobs), Intent.not_before_s > ctx.now)
    ctx.session.execute(due.values(not_before_s=ctx.now))
