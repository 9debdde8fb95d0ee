"""What is told of one job: every decision about it with its reasons, and why it is where it is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from ejbd.core.decision import Decision, ReasonCode
from ejbd.core.timeline import PlannedTimeline
from ejbd.errors import Code, EjbError
from ejbd.manager.facts import attempts, auto, queues, raised
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld, begins_again
from ejbd.manager.facts.past.history import latest, move_json, run_json, runs_of, speed_json
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing.widths import told_application
from ejbd.manager.facts.room import limits
from ejbd.manager.facts.room.evolving import in_words
from ejbd.manager.facts.room.outlook import planned
from ejbd.manager.facts.times import work_now
from ejbd.manager.jobspec.ownwords import told
from ejbd.manager.rules.learning import standby
from ejbd.manager.rules.linked import dependencies, elements
from ejbd.manager.rules.planning import turns
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.rules.signals import periodic
from ejbd.manager.telling.told import ToldDecision, ToldExplanation
from ejbd.store.models import Event, Intent, Job, Move, Speed, Subjob
from ejbd.store.states import TERMINAL_JOB, IntentState, JobState, SubjobState
from ejbd.wire.kinds import DECISION, EventKind, IntentKind, JobKind, SubjobRole

# Decisions about a job that would not take processors, whatever is free.
_TAKES_NONE = (ReasonCode.FULL_WIDTH, ReasonCode.ON_PLACEHOLDER, ReasonCode.NOT_MOVABLE, ReasonCode.NEARLY_DONE)
_ASKED = {IntentKind.CANCEL: "cancelled", IntentKind.HOLD: "held", IntentKind.RELEASE: "released"}


def _off(ctx: Context, job: Job) -> str:
    """Why a waiting job is not started early at all, for now."""
    if not job.elastic or job.state != JobState.WAITING or job.members or ctx.view is None:
        return ""
    rests = "" if ctx.view.schedules else "the batch system's scheduling is switched off"
    why = rests or ctx.view.blind or auto.why_off(ctx, job.queue)
    return f"; it is not started early: {why}" if why else ""


def _in_turn(ctx: Context, job: Job) -> str:
    """That J0 stays in the queue until its turn."""
    said = turns.told(ctx, job) if job.elastic and JobState(job.state) not in TERMINAL_JOB else ""
    return f"; {said}" if said else ""


def _kept(ctx: Context, job: Job, present: Decision | None) -> str:
    """That room is kept for another job, said of a job that would take it."""
    if present is None or present.code in _TAKES_NONE or ctx.view is None:
        return ""
    to = ctx.promises.kept_for(ctx.view, job.queue)
    if to is None:
        return ""
    return f"; room is kept for job {to.to} of {to.who}: elastic jobs have given theirs back for it"


def _shell(job: Job) -> str:
    """That a script is not begun again when its shell is lost with its node."""
    if not job.elastic or job.kind != JobKind.SCRIPT or JobState(job.state) in TERMINAL_JOB:
        return ""
    if begins_again(job):
        return ""
    return "; its script begins only once: where the shell is lost with its node, the job has failed"


def explain(ctx: Context, job_id: str, batch_error: str) -> ToldExplanation:
    """Every decision about a job with its reasons, and what the policy says right now.

    `batch_error`: why the batch system does not answer, "" where it does. Raises EjbError (NOT_FOUND).
    """
    session = ctx.session
    job = session.scalars(select(Job).where(Job.id == job_id)).first()
    if job is None:
        raise EjbError(Code.NOT_FOUND, f"there is no job {job_id}")
    rows = session.scalars(
        select(Event).where(Event.job_id == job_id, Event.kind.startswith(DECISION)).order_by(Event.id)
    )
    decisions: list[ToldDecision] = [
        {
            "at_s": row.at_s,
            "kind": row.kind.removeprefix(DECISION),
            "decision": row.data.get("decision", row.data),
            "cost": row.data.get("cost"),
            "penalty": row.data.get("penalty"),
            "overheads": row.data.get("overheads"),
        }
        for row in rows
    ]
    world = JobWorld(ctx, job)
    present, awaits = _present(world)
    received = _received(ctx, job)
    code = "" if job.elastic else received.get("code", "")
    return {
        "state": job.state,
        "now": _why(ctx, job, present.reason if present else awaits, batch_error)
        + (f"; not elastic ({code}): {received.get('reason', '')}" if code else "")
        + _resubmission(ctx, job)
        + _postponed(ctx, job)
        + _not_done(ctx, job)
        + _paused(ctx, job)
        + _off(ctx, job)
        + _in_turn(ctx, job)
        + _limits(world, present)
        + _kept(ctx, job, present)
        + _shell(job)
        + _memory(world)
        + _words(ctx, job),
        "notes": list(received.get("notes", ())),
        "decisions": decisions,
        "present": present.to_json() if present else None,
        "planned": [interval.to_json() for interval in planned(world)],
        "cost": world.cost.to_json() if job.elastic else None,
        "penalty": world.penalty.to_json() if job.elastic else None,
        "deltas": [one.to_json() for one in world.deltas] if job.elastic else [],
        "overheads": world.overheads.to_json() if job.elastic else None,
        "checkpoints": periodic.told(world) if job.elastic else None,
        "movable": moving.told(world) if job.elastic else None,
        "moves": [move_json(move) for move in latest(session, Move, job.application)] if job.elastic else [],
        "speeds": [speed_json(speed) for speed in latest(session, Speed, job.application)] if job.elastic else [],
        "runs": [run_json(run) for run in runs_of(session, job.application)] if job.elastic else [],
        "walltimes": job.walltimes,
        "application": told_application(world, max(0.0, job.walltime_s - work_now(job, ctx.now))),
    }


def _postponed(ctx: Context, job: Job) -> str:
    """Why the files of a job's next batch job could not be made, so that it was not submitted: a spool that is full."""
    waits = (Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING, Intent.attempts == 0)
    query = select(Intent).where(Intent.job_id == job.id, *waits, Intent.error != "")
    intent = ctx.session.scalars(query.limit(1)).first()
    if intent is None:
        return ""
    return (
        f"; it could not be submitted: {intent.error}; tried again in {max(0.0, intent.not_before_s - ctx.now):.0f} s"
    )


def _not_done(ctx: Context, job: Job) -> str:
    """Why what its user has asked for is not done yet: the batch system, or `ejb-as`, does not do it now."""
    waits = (Intent.kind.in_(_ASKED), Intent.state == IntentState.PENDING, Intent.attempts > 0, Intent.error != "")
    intent = ctx.session.scalars(select(Intent).where(Intent.job_id == job.id, *waits).limit(1)).first()
    if intent is None:
        return ""
    again_s = max(0.0, intent.not_before_s - ctx.now)
    return f"; it could not be {_ASKED[IntentKind(intent.kind)]} yet: {intent.error}; tried again in {again_s:.0f} s"


def _received(ctx: Context, job: Job) -> dict[str, Any]:
    """What was said of a job when it was submitted; empty where that is no longer known."""
    query = select(Event.data).where(Event.job_id == job.id, Event.kind == EventKind.JOB_RECEIVED)
    return dict(ctx.session.scalars(query.limit(1)).first() or {})


def plan_of(ctx: Context, job_id: str) -> PlannedTimeline:
    """What is to come of a job; empty where nothing is planned or there is no such job."""
    job = ctx.session.scalars(select(Job).where(Job.id == job_id)).first()
    return planned(JobWorld(ctx, job)) if job is not None else ()


def _present(world: JobWorld) -> tuple[Decision | None, str]:
    """What the policy says now, of a job that it may be asked about; else None, and what the job waits for."""
    job = world.job
    if not job.elastic or job.held or job.state not in (JobState.WAITING, JobState.RUNNING):
        return None, ""
    if job.kind == JobKind.ARRAY or world.evolving is not None:
        return None, ""
    return Decider(world.ctx).present(world)


def _why(ctx: Context, job: Job, present: str, batch_error: str) -> str:
    """Why a job is where it is, in one sentence."""
    if JobState(job.state) in TERMINAL_JOB:
        return f"{job.state}: {job.reason}" if job.reason else job.state
    if batch_error:
        return f"{job.state}; the batch system does not answer: {batch_error}"
    if job.kind == JobKind.ARRAY and job.state != JobState.RECEIVED:
        held = ", held" if job.held else ""
        return f"{job.state}{held}: {elements.in_words(elements.indices(ctx.session, job.id))}"
    if job.held:
        return "held; `ejb release` lets it start"
    if job.state == JobState.UNKNOWN:
        return f"unknown: {job.reason}; EJB goes on asking"
    if job.state == JobState.RECEIVED and dependencies.never_met(ctx.session, job):
        return f"received: {job.reason}; it stays until it is cancelled (as without --kill-on-invalid-dep=yes)"
    if job.state == JobState.RECEIVED and job.reason:
        return f"received: waits for other jobs ({job.reason}), and is handed to the batch system then"
    if job.state == JobState.RECEIVED:
        return f"received: in its turn to be submitted, {ctx.settings.limits.submits_per_s:g} a second at most"
    if not job.elastic:
        world = JobWorld(ctx, job)
        decides = ", the batch system decides" if job.state == JobState.WAITING else ""
        passed = f"{job.state}: passed through as an ordinary job{decides}{_there(world)}"
        waits = standby.of(world)
        told = [
            passed,
            attempts.told(job, ctx.gap_verdicts),
            raised.told(job),
            standby.told(waits) if waits is not None else "",
        ]
        return "; ".join(filter(None, told))
    pause = job.not_before_s - ctx.now
    if job.state == JobState.WAITING and pause > 0:
        return f"waiting: no further subjob for {pause:.0f} s, after {job.failed_starts} that came to nothing"
    world = JobWorld(ctx, job)
    ends = [s for s in world.open_subjobs if s.releasing and s.state == SubjobState.RUNNING and s.reason]
    lost = ends[0] if ends and world.live_epoch is None else None
    if lost is not None:
        return f"{job.state}: {lost.id} is lost: {lost.reason}; what may live on there is ended first"
    kept = f" with {job.work_s:.0f} s of work kept" if job.state == JobState.WAITING and job.work_s > 0 else ""
    if (steps := in_words(JobWorld(ctx, job))) and job.elastic:
        return f"{job.state}{kept}: {steps}"
    return f"{job.state}{kept}: {present}" if present else job.state + kept


def _there(world: JobWorld) -> str:
    """What the batch system says that keeps a passed-through job from starting: some of it waits for an operator."""
    own = {s.tag for s in world.open_subjobs if s.role == SubjobRole.RIGID and s.state == SubjobState.PENDING}
    jobs = world.ctx.view.jobs if world.ctx.view is not None and own else ()
    said = next((job.reason for job in jobs if job.mark in own and job.blocked and not job.limited), "")
    return f" ({said})" if said else ""


def _limits(world: JobWorld, present: Decision | None) -> str:
    """The limits of accounts that have to do with it, by their names."""
    job = world.job
    if JobState(job.state) not in (JobState.WAITING, JobState.RUNNING) or job.kind == JobKind.ARRAY:
        return ""
    takes = present is not None and present.code not in _TAKES_NONE
    by = Decider(world.ctx).room.allowed(world).by if takes else ()
    said = limits.told(world, by)
    return f"; {said}" if said else ""


def _memory(world: JobWorld) -> str:
    """That memory, and not what its queue allows, bounds how many of its ranks may share a processor; "" otherwise."""
    job, needs = world.job, world.needs
    if not job.elastic or JobState(job.state) in TERMINAL_JOB or needs.omax is None or not needs.memory_mb:
        return ""
    ranks = "rank" if needs.omax == 1 else "ranks"
    return (
        f"; memory is the bound: at most {needs.omax} {ranks} a processor, of {needs.memory_mb // needs.omax} MB each"
    )


def _words(ctx: Context, job: Job) -> str:
    """What the job says of the policy's parameters itself."""
    if not job.elastic or JobState(job.state) in TERMINAL_JOB:
        return ""
    said = told(job.spec, ctx.queue_settings(job.queue).policy)
    return f"; {said}" if said else ""


def _paused(ctx: Context, job: Job) -> str:
    """That its queue is paused, of a job that waits; "" otherwise."""
    if job.held or job.state not in (JobState.RECEIVED, JobState.WAITING):
        return ""
    said = queues.sentence(ctx.session, job, ctx.now)
    return f"; {said}" if said else ""


def _resubmission(ctx: Context, job: Job) -> str:
    """That a lost J0 comes again, and when; "" where it has not to be waited for."""
    if JobState(job.state) in TERMINAL_JOB or not job.setbacks:
        return ""
    query = select(Intent.not_before_s).join(Subjob, Intent.subjob_id == Subjob.id)
    query = query.where(
        Intent.job_id == job.id,
        Intent.kind == IntentKind.SUBMIT,
        Intent.state == IntentState.PENDING,
        Intent.not_before_s > ctx.now,
        Subjob.role == SubjobRole.PLACEHOLDER,
    )
    due_s = ctx.session.scalars(query).first()
    if due_s is None:
        return ""
    again = f"its whole batch job is submitted again in {due_s - ctx.now:.0f} s"
    return f"; {again}, after {job.setbacks} of at most {ctx.settings.limits.max_setbacks} setbacks"
