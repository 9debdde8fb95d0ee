"""What users ask of the manager: submit, cancel, hold, release, settings of queues. Each is one transaction."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from ejbd.core.policy import Situation
from ejbd.errors import Code, EjbError
from ejbd.manager.admission import Admission, admit
from ejbd.manager.asking import ask
from ejbd.manager.concluding import conclude
from ejbd.manager.context import Context
from ejbd.manager.history import application_of
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.manager.jobworld import JobWorld
from ejbd.manager.outcomes import CancelAsked
from ejbd.manager.room import Room
from ejbd.manager.subjobs import add_intent, release
from ejbd.store.models import Event, IdempotencyKey, Job
from ejbd.store.states import JobState, SubjobState
from ejbd.store.transitions import INTENTS_TOPIC, add_event, insert_row, wake
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

_ANSWERED = select(IdempotencyKey.request_hash, IdempotencyKey.job_id).where(
    IdempotencyKey.user == bindparam("user"), IdempotencyKey.key == bindparam("key")
)
_TAKEN = select(Job.seq).where(Job.id == bindparam("id"))


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a submission is answered with. `created`: not before, under the same key. `notes` are for its user."""

    id: str
    created: bool
    elastic: bool
    why: str
    notes: tuple[str, ...] = ()


def answered(ctx: Context, user: str, key: str | None, request_hash: str) -> Accepted | None:
    """What was answered before to this key and body. Raises EjbError (KEY_REUSED) where the body was another."""
    if key is None:
        return None
    known = ctx.session.connection().execute(_ANSWERED, {"user": user, "key": key}).first()
    if known is None:
        return None
    if known.request_hash != request_hash:
        raise EjbError(
            Code.KEY_REUSED,
            "this Idempotency-Key was used with another request",
            hint="a new request needs a new key",
        )
    query = select(Event.data).where(Event.job_id == known.job_id, Event.kind == EventKind.JOB_RECEIVED)
    told = ctx.session.scalars(query).first() or {}
    return Accepted(known.job_id, False, bool(told.get("elastic")), str(told.get("reason", "")))


def look(
    ctx: Context, job: Reading, user: str, key: str | None, request_hash: str
) -> tuple[Accepted | None, Admission]:
    """What :func:`submit` would answer again, and how it would take the job now."""
    return answered(ctx, user, key, request_hash), admit(ctx, job)


def submit(ctx: Context, job: Reading, user: str, key: str | None, request_hash: str) -> Accepted:
    """Store a job. The same key and body from the same user get the same job."""
    session = ctx.session
    before = answered(ctx, user, key, request_hash)
    if before is not None:
        return before
    taken = admit(ctx, job)
    spec = replace(taken.spec, asked=None) if taken.elastic else taken.spec.passed_through()
    job_id = _new_id(session)
    columns = _columns(taken, spec, user, ctx.now)
    insert_row(session, Job, id=job_id, state=JobState.RECEIVED, incarnation=1, reason="", **columns)
    if key is not None:
        entry = {"user": user, "key": key, "request_hash": request_hash}
        insert_row(session, IdempotencyKey, **entry, job_id=job_id, created_s=ctx.now)
    add_event(
        session,
        EventKind.JOB_RECEIVED,
        ctx.now,
        job_id=job_id,
        queue=taken.queue,
        elastic=taken.elastic,
        reason=taken.why,
    )
    wake(session, INTENTS_TOPIC)
    return Accepted(job_id, True, taken.elastic, taken.why)


def _new_id(session: Session) -> str:
    """Short enough to be typed, so that among many jobs one does come twice: then another is taken."""
    while True:
        id = secrets.token_hex(4)
        if session.connection().execute(_TAKEN, {"id": id}).first() is None:
            return id


def _columns(taken: Admission, spec: JobSpec, user: str, now: float) -> dict[str, Any]:
    """What a submission says of its job's row."""
    return {
        "name": spec.name,
        "user": user,
        "queue": taken.queue,
        "elastic": taken.elastic,
        "kind": spec.kind.value,
        "engine": taken.engine,
        "application": application_of(user, spec, taken.engine),
        "processes": spec.processes,
        "walltime_s": spec.walltime_s,
        "spec": spec.to_json(),
        "held": spec.hold,
        "submit_s": now,
        "members": [],
    }


def _unstored(ctx: Context, taken: Admission, user: str) -> JobWorld:
    """The job that a submission would make, once its J0 waits."""
    nothing_yet = {"work_s": 0.0, "work_rate": 0.0, "script_run": 0, "not_movable": "", "not_before_s": 0.0}
    columns = _columns(taken, taken.spec, user, ctx.now)
    return JobWorld(ctx, Job(id="dry-run", state=JobState.WAITING, **columns, **nothing_yet), _subjobs=[])


def plan(ctx: Context, job: Reading, user: str) -> tuple[Admission, dict[str, Any]]:
    """How :func:`submit` would take the job, and what would be done with it now; nothing is stored."""
    taken = admit(ctx, job)
    queue, spec = taken.queue, taken.spec
    decision = cost = penalty = None
    room = Room(ctx)
    slots = room.windows(queue.partition(",")[0]).slots()
    if taken.elastic:
        world = _unstored(ctx, taken, user)
        cost, penalty = world.cost, world.penalty
        decision = ask(world, Situation.WAIT, room).answer().to_json()
    return taken, {
        "queue": queue,
        "elastic": taken.elastic,
        "why": taken.why,
        "engine": taken.engine,
        "slots": [
            {"processors": s.processors, "duration_s": None if s.duration_s == float("inf") else s.duration_s}
            for s in slots
        ],
        "decision": decision,
        "cost": cost.to_json() if cost is not None else None,
        "penalty": penalty.to_json() if penalty is not None else None,
        "placeholder": {"processors": spec.processes, "walltime_s": spec.walltime_s},
    }


def cancel(ctx: Context, job_id: str, by: str) -> None:
    """End a job for good, whatever it is doing."""
    world = _live(ctx, job_id, "cancelled")
    job = world.job
    add_event(ctx.session, EventKind.JOB_CANCEL_ASKED, ctx.now, job_id=job.id, by=by)
    if job.state == JobState.ENDING:
        return  # it is over already, and its output is being collected
    if not job.elastic and world.open_subjobs:
        for subjob in world.open_subjobs:
            release(world, subjob, f"cancelled by {by}")
        if world.open_subjobs and job.state != JobState.UNKNOWN:
            return  # the batch system has the last word
    conclude(world, CancelAsked(f"cancelled by {by}"))


def hold(ctx: Context, job_id: str, by: str) -> None:
    """Keep a waiting job from starting."""
    world = _live(ctx, job_id, "held")
    job = world.job
    if job.state not in (JobState.RECEIVED, JobState.WAITING) or job.members:
        raise EjbError(Code.CONFLICT, f"job {job.id} has started; only a waiting job can be held")
    if job.held:
        return
    job.held = True
    add_event(ctx.session, EventKind.JOB_HELD, ctx.now, job_id=job.id, by=by)
    for subjob in world.awaited:
        release(world, subjob, "the job is held")
    _tell_first(ctx, world, IntentKind.HOLD)


def unhold(ctx: Context, job_id: str, by: str) -> None:
    """Let a held job start again."""
    world = _live(ctx, job_id, "released")
    job = world.job
    if not job.held:
        raise EjbError(Code.CONFLICT, f"job {job.id} is not held")
    job.held = False
    add_event(ctx.session, EventKind.JOB_RELEASED, ctx.now, job_id=job.id, by=by)
    _tell_first(ctx, world, IntentKind.RELEASE)


def _tell_first(ctx: Context, world: JobWorld, kind: IntentKind) -> None:
    """The batch system holds or releases J0 (or the passed-through job), if it has it."""
    for subjob in world.open_subjobs:
        if subjob.role != SubjobRole.SUBJOB and subjob.state in (SubjobState.PLANNED, SubjobState.PENDING):
            add_intent(ctx, kind, world.job.id, subjob=subjob)


def _live(ctx: Context, job_id: str, what: str) -> JobWorld:
    job = ctx.session.scalars(select(Job).where(Job.id == job_id)).first()
    if job is None:
        raise EjbError(Code.NOT_FOUND, f"there is no job {job_id}")
    if JobState(job.state).terminal:
        raise EjbError(Code.CONFLICT, f"job {job.id} is {job.state} and cannot be {what}")
    return JobWorld(ctx, job)
