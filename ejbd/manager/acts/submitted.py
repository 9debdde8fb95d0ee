"""What a submission came to, as it is recorded: taken, refused, unknown, absent, to be made later."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import defer

from ejbd.errors import BatchError, EjbError
from ejbd.manager.acts import intents, numbers
from ejbd.manager.acts.carrying import carry_out, do
from ejbd.manager.acts.unsubmitted import never_submitted
from ejbd.manager.effects import Conclude
from ejbd.manager.effects.ends import Again, CancelAsked, SubmissionRefused
from ejbd.manager.facts import queues
from ejbd.manager.facts.attempts import is_attempt
from ejbd.manager.facts.batchjob.begins import is_guaranteed
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.pauses import pause_s
from ejbd.manager.facts.queues import Failing
from ejbd.manager.rules.learning import gaps
from ejbd.manager.rules.planning import turns
from ejbd.manager.rules.queues import queuepause
from ejbd.store import queries
from ejbd.store.flows import WORKFLOWS_TOPIC
from ejbd.store.models import Intent, Job, Subjob, Worker, WorkflowRun
from ejbd.store.states import IntentState, JobState, SubjobState
from ejbd.store.transitions import INTENTS_TOPIC, STARTED_TOPIC, add_event, move_intent, move_subjob, wake
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

PROOFS_OF_ABSENCE = 2
POSTPONED_S = pause_s(3)  # after a submission for which files or a row could not be written


def submitted(ctx: Context, id: int, batch_id: str, how: str) -> None:
    session, now = ctx.session, ctx.now
    intent = session.get_one(Intent, id)
    subjob = session.get_one(Subjob, intent.subjob_id)
    move_intent(session, intent, IntentState.DONE, now, batch_id=batch_id, how=how)
    job = session.scalars(select(Job).where(Job.id == intent.job_id).options(defer(Job.spec))).one()
    carry_out(ctx, queuepause.succeeded(ctx, job, Failing.SUBMISSIONS))
    intent.batch_id = subjob.batch_id = batch_id
    numbers.known(session, subjob)
    if subjob.state == SubjobState.PLANNED:
        subjob.submit_s = now
        move_subjob(session, subjob, SubjobState.PENDING, now, batch_id=batch_id)
        if session.scalars(select(Worker.id).where(Worker.subjob_id == subjob.id, Worker.alive)).first():
            wake(session, STARTED_TOPIC)  # its worker was faster than the answer to its submission
        if (
            subjob.role in (SubjobRole.RIGID, SubjobRole.PLACEHOLDER)
            and session.scalar(select(WorkflowRun.stage).where(WorkflowRun.job_id == job.id)) is not None
        ):
            wake(session, WORKFLOWS_TOPIC)  # the next allocation can follow it by its number
    # A cancellation or a hold that came while the submission was under way could not name the batch job.
    waiting = select(Intent).where(Intent.subjob_id == subjob.id, Intent.batch_id.is_(None))
    for later in session.scalars(waiting):
        later.batch_id = batch_id
        wake(session, INTENTS_TOPIC)


def unknown(ctx: Context, id: int, message: str) -> None:
    session, now = ctx.session, ctx.now
    intent = session.get_one(Intent, id)
    move_intent(session, intent, IntentState.UNKNOWN, now, reason=message)
    job = queries.job(session, intent.job_id)
    carry_out(ctx, queuepause.not_answered(ctx, job, message))
    intent.not_before_s = now + ctx.settings.limits.settle_s
    intent.absences = 0
    wake(session, INTENTS_TOPIC)  # no task waits yet for the end of this pause


def refused(ctx: Context, id: int, error: BatchError) -> None:
    """The batch system surely has not taken it."""
    session, now, said = ctx.session, ctx.now, error.sentence()
    intent = session.get_one(Intent, id)
    subjob = session.get_one(Subjob, intent.subjob_id)
    job = queries.job(session, intent.job_id)
    if refused_as_standby(ctx, intent, job, subjob, error, now):
        return
    world = JobWorld(ctx, job)
    role = SubjobRole(subjob.role)
    end = SubmissionRefused(
        role,
        error.transient,
        error.own_fault,
        intent.attempts,
        job.failed_starts,
        bool(job.members),
        said,
        error.of_account,
        role is SubjobRole.SUBJOB and world.evolving is not None and world.course is None and is_guaranteed(job.spec),
    )
    if not error.transient:
        never_submitted(session, intent, IntentState.FAILED, now, said)
        move_subjob(session, subjob, SubjobState.FAILED, now, reason=said)
    decided = do(world, Conclude(end))
    if error.transient and isinstance(decided, Again) and not decided.whole:
        move_intent(session, intent, IntentState.PENDING, now, setback=True, reason=said)
        until_s = now + decided.after_s
        kept_back = queues.kept_back(session, now)
        if kept_back.of(job):
            until_s = min(until_s, kept_back.until_s or until_s)  # the queue's pause is what counts
        intent.not_before_s = until_s
    elif error.transient:
        never_submitted(session, intent, IntentState.FAILED, now, said)
        move_subjob(session, subjob, SubjobState.FAILED, now, reason=said)
    elif role is SubjobRole.SUBJOB and isinstance(decided, Again):
        job.failed_starts += 1
        job.not_before_s = now + decided.after_s


def not_wanted(world: JobWorld, intent: Intent, subjob: Subjob) -> None:
    """The submission is due, and its subjob was given back meanwhile."""
    session, job, now, why = world.ctx.session, world.job, world.ctx.now, "no longer wanted"
    if intent.attempts == 0:
        never_submitted(session, intent, IntentState.DROPPED, now)
    else:
        move_intent(session, intent, IntentState.EXECUTING, now)
        never_submitted(session, intent, IntentState.FAILED, now, why)
    move_subjob(session, subjob, SubjobState.CANCELLED, now, reason=why)
    if not (job.elastic or world.open_subjobs or JobState(job.state).terminal):
        # A passed-through job ends by the batch system's word. Of one that it never took there is none.
        do(world, Conclude(CancelAsked("cancelled before the batch system had taken it")))


def refused_as_standby(ctx: Context, intent: Intent, job: Job, subjob: Subjob, error: BatchError, now: float) -> bool:
    """What was to stand by, or to go into a gap. It is no harm to the job or its queue.

    The next run comes after the time-out then, and a job that stands by for a gap is let begin.

    One that was adopted in between is submitted as what it is now.
    """
    session, said = ctx.session, error.sentence()
    let = select(Intent).where(
        Intent.subjob_id == subjob.id, Intent.kind == IntentKind.BEGIN, Intent.batch_id.is_(None)
    )
    adopted = session.scalars(let.where(Intent.state == IntentState.PENDING)).first()
    if adopted is not None and subjob.ordinal:  # the first has stood by for none
        move_intent(session, adopted, IntentState.DROPPED, now)
        move_intent(session, intent, IntentState.PENDING, now, setback=True, reason=said)
    elif subjob.role == SubjobRole.STANDBY and error.transient:
        intents.repeat_later(session, [intent.id], said, now)
    elif subjob.role == SubjobRole.STANDBY or is_attempt(job, subjob):
        never_submitted(session, intent, IntentState.FAILED, now, said)
        move_subjob(session, subjob, SubjobState.FAILED, now, reason=said)
    else:
        return False
    return True


def stays(ctx: Context, id: int) -> None:
    session = ctx.session
    intents.done(session, [id], ctx.now)
    subjob = session.get_one(Subjob, session.get_one(Intent, id).subjob_id)
    if subjob.role == SubjobRole.PLACEHOLDER:
        return  # until its turn, which polls see
    job = queries.job(session, subjob.job_id)
    world = JobWorld(ctx, job)
    carry_out(world, gaps.stays(world, subjob))


def did_not_stay(ctx: Context, id: int, message: str) -> None:
    session = ctx.session
    intents.failed(session, id, message, ctx.now)
    intent = session.get_one(Intent, id)
    subjob = session.get_one(Subjob, intent.subjob_id)
    if subjob.role == SubjobRole.PLACEHOLDER:
        carry_out(ctx, turns.cannot_stay(ctx, subjob))
        return
    job = queries.job(session, intent.job_id)
    carry_out(ctx, gaps.cannot_stay(job, message))


def postpone(ctx: Context, id: int, error: EjbError) -> None:
    """The spool or the store did not take it: nothing has happened, try again later."""
    session, now = ctx.session, ctx.now
    intent = session.get_one(Intent, id)
    intent.error = error.sentence()
    intent.not_before_s = now + POSTPONED_S
    wake(session, INTENTS_TOPIC)
    add_event(
        session,
        EventKind.INTENT_POSTPONED,
        now,
        job_id=intent.job_id,
        subjob_id=intent.subjob_id,
        reason=intent.error,
    )


def absent(ctx: Context, id: int) -> None:
    session, now = ctx.session, ctx.now
    intent = session.get_one(Intent, id)
    intent.absences += 1
    intent.not_before_s = now + ctx.settings.limits.settle_s
    if intent.absences >= PROOFS_OF_ABSENCE:
        move_intent(session, intent, IntentState.PENDING, now, setback=True, reason="no job carries its tag")
        intent.not_before_s = now
        intent.absences = 0
    wake(session, INTENTS_TOPIC)
