"""Intents as rows: which are due, which are begun, and what became of them. Each a function of one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, and_, case, func, not_, or_, select
from sqlalchemy.orm import Session

from ejbd.batch.base import Identity, Mark
from ejbd.manager.facts import queues
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.pauses import pause_s
from ejbd.manager.facts.queues import KeptBack
from ejbd.manager.facts.tags import mark_of
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import STARTED_SUBJOB, IntentState, JobState, SubjobState
from ejbd.store.transitions import INTENTS_TOPIC, LEFT_TOPIC, add_event, move_intent, wake
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

# Anything else than a submission has nothing to act on while its submission is under way.
_OPEN = (
    Intent.state.in_((IntentState.PENDING, IntentState.UNKNOWN)),
    or_(Intent.kind == IntentKind.SUBMIT, Intent.batch_id.is_not(None)),
)
_FIRST = select(func.min(Intent.not_before_s)).where(*_OPEN)


def submissions_due(session: Session, now: float) -> int:
    """How many submissions have not been begun, and wait for nothing but their turn."""
    waiting = (Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING, Intent.not_before_s <= now)
    count = select(func.count()).select_from(Intent).where(*waiting)
    if kept_back := queues.kept_back(session, now):
        count = count.join(Job, Intent.job_id == Job.id).join(Subjob, Intent.subjob_id == Subjob.id)
        count = count.where(_submittable(kept_back))
    return session.scalar(count) or 0


def _submittable(kept_back: KeptBack) -> ColumnElement[bool]:
    """Of submissions joined with jobs and subjobs: those to queues that take them, and those that only have to end."""
    taken = and_(kept_back.takes(), or_(kept_back.takes(tried=True), Intent.attempts == 0))
    return or_(Subjob.releasing, taken)


def due(
    session: Session, now: float, submissions: int, without: Collection[str] = (), *, in_turn: bool = False
) -> tuple[list[Intent], float | None]:
    """What is due, of new submissions the most urgent `submissions`; and when there is more to do (`now`: at once).

    `without`: users for which nothing is begun now. `in_turn`: of submissions that are as urgent, one of each user
    comes before the next of any.
    """
    first_s = session.scalar(_FIRST)
    if (first_s is None or first_s > now) and not queues.any_paused(session):
        return [], first_s  # as nearly always
    open_ones = select(Intent).where(*_OPEN)
    next_s = session.scalar(select(func.min(open_ones.where(Intent.not_before_s > now).subquery().c.not_before_s)))
    ready = open_ones.where(Intent.not_before_s <= now)
    if without:
        ready = ready.where(Intent.job_id.not_in(select(Job.id).where(Job.user.in_(without))))
    new = and_(Intent.kind == IntentKind.SUBMIT, Intent.state == IntentState.PENDING)
    others = list(session.scalars(ready.where(not_(new)).order_by(Intent.id)))
    # Room that is free now goes before places in the queue, and those before places that may never be needed.
    urgent_first = case((Subjob.role == SubjobRole.SUBJOB, 0), (Subjob.role == SubjobRole.STANDBY, 2), else_=1)
    query = ready.where(new).join(Subjob, Intent.subjob_id == Subjob.id).join(Job, Intent.job_id == Job.id)
    if queues.any_paused(session):
        # Jobs that were not tried yet come before those that were refused, and a place in the queue before room.
        urgent_first = case((Subjob.role.in_((SubjobRole.SUBJOB, SubjobRole.STANDBY)), 1), else_=0)
        kept_back = queues.kept_back(session, now)
        query = query.where(_submittable(kept_back)).order_by(Intent.attempts)
        next_s = min((at for at in (next_s, kept_back.until_s) if at is not None), default=None)
    query = query.order_by(urgent_first)
    if in_turn:
        query = query.order_by(func.row_number().over(partition_by=[Job.user, urgent_first], order_by=Intent.id))
    submits = list(session.scalars(query.order_by(Intent.id).limit(submissions + 1)))
    if len(submits) > submissions:
        next_s = now
    return others + submits[:submissions], next_s


def by_job(session: Session, submits: Sequence[Intent]) -> list[list[Intent]]:
    """Submissions by their jobs, in the order in which the jobs come; of one job what lasts longest first."""
    query = select(Subjob.id, Subjob.walltime_s).where(Subjob.id.in_([intent.subjob_id for intent in submits]))
    lasts = {row.id: row.walltime_s for row in session.execute(query)}
    found: dict[str, list[Intent]] = {}
    for intent in submits:
        found.setdefault(intent.job_id, []).append(intent)
    return [sorted(group, key=lambda i: -lasts.get(i.subjob_id or "", 0.0)) for group in found.values()]


def by_user(session: Session, actions: Sequence[Intent]) -> dict[str, list[Intent]]:
    """Actions by the users of their jobs, in their order."""
    query = select(Job.id, Job.user).where(Job.id.in_({intent.job_id for intent in actions}))
    users = {row.id: row.user for row in session.execute(query)}
    found: dict[str, list[Intent]] = {}
    for intent in actions:
        found.setdefault(users.get(intent.job_id or "", ""), []).append(intent)
    return found


def tags_by_user(session: Session, subjobs: Sequence[str]) -> dict[Identity, dict[str, str]]:
    """By their users: subjob -> its tag."""
    found: dict[Identity, dict[str, str]] = {}
    query = select(Subjob.id, Subjob.tag, Job.user).join(Job, Subjob.job_id == Job.id).where(Subjob.id.in_(subjobs))
    for id, tag, user in session.execute(query):
        found.setdefault(Identity(user), {})[id] = tag
    return found


def begin_actions(ctx: Context, ids: Sequence[int]) -> dict[Identity, dict[int, str]]:
    """Updates and cancellations, by the users of the jobs: intent -> batch id, where there is something to act on."""
    session, now = ctx.session, ctx.now
    begun: dict[Identity, dict[int, str]] = {}
    for id in ids:
        intent = session.get_one(Intent, id)
        if intent.state != IntentState.PENDING or intent.batch_id is None:
            continue
        subjob = session.get(Subjob, intent.subjob_id) if intent.subjob_id else None
        of_what_waits = intent.kind in (IntentKind.STAY, IntentKind.BEGIN, IntentKind.LOWER)
        begun_already = of_what_waits and subjob is not None and subjob.state in STARTED_SUBJOB
        j0 = subjob is not None and subjob.role == SubjobRole.PLACEHOLDER
        # What was repeated later may be overtaken: a J0 stays or goes by what was decided last.
        if j0 and subjob is not None:
            begun_already |= intent.kind == (IntentKind.BEGIN if subjob.stays else IntentKind.STAY)
        too_late = intent.kind == IntentKind.ASIDE and subjob is not None and subjob.releasing
        if subjob is not None and (SubjobState(subjob.state).terminal or begun_already or too_late):
            move_intent(session, intent, IntentState.DROPPED, now)
            continue
        move_intent(session, intent, IntentState.EXECUTING, now)
        user = session.scalars(select(Job.user).where(Job.id == intent.job_id)).one()
        begun.setdefault(Identity(user), {})[id] = intent.batch_id
    return begun


def marks_of(session: Session, ids: Collection[int]) -> dict[int, list[Mark]]:
    """What the batch jobs of these intents are known by. A stray one has the tag of any subjob of its job."""
    found: dict[int, list[Mark]] = {}
    for intent in session.scalars(select(Intent).where(Intent.id.in_(ids))):
        own = Subjob.id == intent.subjob_id if intent.subjob_id is not None else Subjob.job_id == intent.job_id
        marks = map(mark_of, session.scalars(select(Subjob).where(own)))
        found[intent.id] = [mark if intent.subjob_id is not None else Mark(mark.tag) for mark in marks]
    return found


def done(session: Session, ids: Sequence[int], now: float) -> None:
    """They were carried out."""
    for id in ids:
        move_intent(session, session.get_one(Intent, id), IntentState.DONE, now)


def cancelled(session: Session, ids: Sequence[int], now: float) -> None:
    """The batch system has cancelled their batch jobs. How a passed-through job has ended is to be seen soon."""
    done(session, ids, now)
    jobs = select(Intent.job_id).where(Intent.id.in_(ids))
    ending = select(Job.id).where(Job.id.in_(jobs), Job.state == JobState.ENDING, Job.elastic.is_(False))
    if session.scalars(ending.limit(1)).first() is not None:
        wake(session, LEFT_TOPIC)


def ends_as_job(session: Session, id: int, code: int, message: str, now: float) -> None:
    """J0 was told how to end. `message`: why it was not made smaller ("" where it was)."""
    intent = session.get_one(Intent, id)
    move_intent(session, intent, IntentState.DONE, now)
    add_event(
        session,
        EventKind.SUBJOB_ENDS_AS_JOB,
        now,
        job_id=intent.job_id,
        subjob_id=intent.subjob_id,
        code=code,
        reduced=not message,
        reason=message,
    )


def failed(session: Session, id: int, message: str, now: float) -> None:
    """It was refused for good."""
    move_intent(session, session.get_one(Intent, id), IntentState.FAILED, now, reason=message)


def repeat_later(session: Session, ids: Sequence[int], message: str, now: float) -> None:
    """They were refused for the moment."""
    for id in ids:
        intent = session.get_one(Intent, id)
        intent.attempts += 1
        move_intent(session, intent, IntentState.PENDING, now, setback=True, reason=message)
        intent.not_before_s = now + pause_s(intent.attempts)


def delay(session: Session, ids: Sequence[int], until_s: float) -> None:
    """Nothing is known yet: they are looked at again at `until_s`."""
    wake(session, INTENTS_TOPIC)
    for id in ids:
        session.get_one(Intent, id).not_before_s = until_s
