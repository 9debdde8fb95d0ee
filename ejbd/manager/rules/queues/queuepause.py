"""A queue is left alone for a while where submissions or early starts keep failing, and is tried again by itself.

Two things can fail, each on its own account:

- `submissions`: the batch system refuses for the moment, or does not answer. Then nothing is submitted to the queue but
  one trial when the pause is over. What is taken opens it, and whatever was refused before is submitted at once.
- `starts`: subjobs, or place holders, that the batch system starts and on which no rank ever runs. Then no further
  subjob is asked for, but for one when the pause is over; place holders and passed-through jobs go on being submitted.
  Where each job runs as its own user, that is so for one user, account and QOS alone.

The pause begins with the third failure in a row. A refusal that is the job's own fault (an option, an account, a size
that is not allowed) is none of the queue's. A limit of a user's in an account or a QOS (`whose`) pauses the queue for
that user, account and QOS alone. So does a submission without an answer where each job runs as its own user. Nor is a
subjob that did not start in time the queue's fault: its window may have been taken. While one job alone was refused,
the first submission of another is not held up.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Delete, Effects, Flush, Insert, SubmitNow, Wake, note, tell
from ejbd.manager.effects.ends import End, NothingCameOfIt, Outcome, PlaceholderEnded, SubmissionRefused, TimeUsedUp
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.pauses import PAUSES_S, QUEUE_PAUSE_S, SUBMISSION_PAUSE_S, pause_s
from ejbd.manager.facts.queues import (
    DIFFERENT_JOBS,
    DIFFERENT_USERS,
    Failing,
    own_part,
    users_without_answer,
    whose_is,
)
from ejbd.store.models import Job, QueuePause
from ejbd.store.states import SubjobState
from ejbd.store.transitions import INTENTS_TOPIC
from ejbd.wire.kinds import EventKind, SubjobRole

FAILURES = 3  # in a row, until the queue is paused


# -- what happens to a queue ------------------------------------------------------------------------------------------


def note_end(world: JobWorld, end: End, decided: Outcome) -> Effects[None]:
    """A subscriber to all ends: some of them are failures of the queue."""
    job, ctx = world.job, world.ctx
    if isinstance(end, SubmissionRefused) and end.transient and not end.own_fault:
        if not end.of_account:
            yield from failed(ctx, job, Failing.SUBMISSIONS, end.said)
        elif end.role is not SubjobRole.SUBJOB:  # which may be charged to another account, and waits by itself
            yield from failed(ctx, job, Failing.SUBMISSIONS, end.said, whose_is(job))
    elif isinstance(end, NothingCameOfIt) and end.started:
        yield from failed(ctx, job, Failing.STARTS, end.said, own_part(ctx, job))
    elif isinstance(end, PlaceholderEnded) and _broke(end):
        why = f"{end.id} ended as {end.state} before any rank ran"
        yield from failed(ctx, job, Failing.STARTS, why, own_part(ctx, job))
    elif isinstance(end, TimeUsedUp) and not end.began and not end.away:
        why = f"a J0 of {job.id} timed out before any rank ran"
        yield from failed(ctx, job, Failing.STARTS, why, own_part(ctx, job))


def _broke(end: PlaceholderEnded) -> bool:
    """Whether a J0 came to nothing by itself."""
    return end.state is not SubjobState.CANCELLED and not end.released and not end.counted


def failed(ctx: Context, job: Job, what: Failing, why: str, part: str = "") -> Effects[None]:
    """One more failure in a row. One that was begun before the pause was known makes the pause no longer."""
    row = ctx.session.get(QueuePause, (job.queue, what.value, part))
    if row is None:
        row = QueuePause(name=job.queue, what=what.value, whose=part, failures=0, jobs=[], since_s=ctx.now, reason=why)
        yield Insert(row)
    yield note(row, reason=why)
    if job.id not in row.jobs and len(row.jobs) < DIFFERENT_JOBS:
        yield note(row, jobs=[*row.jobs, job.id])
    paused = row.until_s is not None
    if paused and row.trial != job.id:
        return
    yield note(row, failures=row.failures + 1, trial=None)
    if row.failures < FAILURES:
        return
    pause = _pause_s(row)
    yield note(row, until_s=ctx.now + pause)
    if not paused:
        kind = EventKind.QUEUE_PAUSED
        yield tell(kind, queue=job.queue, what=what.value, whose=part, reason=why, pause_s=pause)


def not_answered(ctx: Context, job: Job, why: str) -> Effects[None]:
    """Whether a submission was taken is not known. Where it ran as the job's user that user may have stopped it.

    So it counts for that user, account and QOS alone. Where several users wait to know it, it counts for all, too.
    """
    part = own_part(ctx, job)
    yield from failed(ctx, job, Failing.SUBMISSIONS, why, part)
    if part and len(users_without_answer(ctx.session, job.queue)) >= DIFFERENT_USERS:
        yield from failed(ctx, job, Failing.SUBMISSIONS, why)


def succeeded(ctx: Context, job: Job, what: Failing) -> Effects[None]:
    """A submission was taken, or ranks run where they were to start: whatever was wrong with the queue is over."""
    for part in ("", whose_is(job)):
        row = ctx.session.get(QueuePause, (job.queue, what.value, part))
        if row is not None:
            yield from _open(row, "it works again")


def may_submit(ctx: Context, job: Job, *, tried: bool) -> Effects[bool]:
    """Whether to go on with a submission that is due. Where a pause is over, the first that asks is the trial."""
    found = (ctx.session.get(QueuePause, (job.queue, Failing.SUBMISSIONS.value, part)) for part in ("", whose_is(job)))
    rows = [row for row in found if row is not None and row.until_s is not None]
    if any(ctx.now < (row.until_s or 0.0) and (tried or len(row.jobs) >= DIFFERENT_JOBS) for row in rows):
        return False
    for row in rows:
        if ctx.now >= (row.until_s or 0.0):
            yield from _try_with(row, job, ctx.now)
    return True


def try_start(ctx: Context, job: Job) -> Effects[float]:
    """A queue's pause is over, and subjobs of `job` are its trial. Until when the others wait (absolute seconds)."""
    row = ctx.session.get(QueuePause, (job.queue, Failing.STARTS.value, own_part(ctx, job)))
    return 0.0 if row is None else (yield from _try_with(row, job, ctx.now))


def _try_with(row: QueuePause, job: Job, now: float) -> Effects[float]:
    """The pause is over: this job is the trial, and the others wait for what becomes of it, or for another pause."""
    until_s = now + _pause_s(row)
    yield note(row, trial=job.id, until_s=until_s)
    return until_s


def _pause_s(row: QueuePause) -> float:
    most = SUBMISSION_PAUSE_S if row.what == Failing.SUBMISSIONS else PAUSES_S[-1]
    return pause_s(max(FAILURES, row.failures) - FAILURES + 1, first_s=QUEUE_PAUSE_S, most_s=most)


def _open(row: QueuePause, why: str) -> Effects[None]:
    if row.until_s is not None:
        yield tell(
            EventKind.QUEUE_RESUMED, queue=row.name, what=row.what, whose=row.whose, reason=why, failures=row.failures
        )
    yield Delete(row)
    yield Flush()
    if row.what == Failing.SUBMISSIONS:
        yield SubmitNow(row.name, row.whose)
    yield Wake((INTENTS_TOPIC,))


# -- what is asked about queues ---------------------------------------------------------------------------------------


def resume(ctx: Context, name: str, by: str) -> Effects[None]:
    """Try a paused queue again at once. Raises EjbError: there is no such queue (NOT_FOUND), or it is not paused."""
    found = ctx.view.queue(name) if ctx.view is not None else None
    if ctx.view is not None and found is None:
        names = ", ".join(q.name for q in ctx.view.queues)
        raise EjbError(Code.NOT_FOUND, f"there is no queue {name!r}", hint=f"the queues are: {names}")
    default = found is not None and found.default
    rows = [
        row
        for row in ctx.session.scalars(select(QueuePause))
        if name in row.name.split(",") or (default and not row.name)
    ]
    if not any(row.until_s is not None for row in rows):
        raise EjbError(Code.CONFLICT, f"queue {name} is not paused", hint="`ejb queue list` shows which are")
    for row in rows:
        yield from _open(row, f"resumed by {by}")
