"""Speculative backfill, live: a waiting job asks for too long for a window, and is sent into it all the same.

It is sent with the window's walltime, where the room is expected to be used best (`ejbd.core.speculation.backfill`).
Its own batch job stays where it is in the queue, and is kept from beginning first. Only once the batch system has taken
that (`IntentKind.STAY`), it stands by, and the attempt is submitted. So the two never run both, and a job that has
begun meanwhile is not sent anywhere. What becomes of the attempt is seen as of any other run. A time-out, or a window
that was lost, lets the waiting one begin with its old request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.progress import ROUNDING_SLACK_S
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.effects import Act, Apart, Ask, Effects, Release, note, tell
from ejbd.manager.effects.ends import Again, Outcome, PassedThroughEnded
from ejbd.manager.facts.attempts import _wide, is_attempt, under_way
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.pastruns import Application, learned, newest
from ejbd.manager.facts.room.windows import Room
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.manager.rules.learning import standby
from ejbd.store.models import Intent, Job, PastRun, Subjob
from ejbd.store.states import TERMINAL_SUBJOB, IntentState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

if TYPE_CHECKING:
    from ejbd.core.speculation.laws import Law

log = structlog.get_logger(__name__)

MOST = 3  # attempts of one job, whatever became of them; and one a window
JOBS_AT_ONCE = 500  # of a queue that are looked at, the first to come
_NOT_BEGUN = (SubjobState.PLANNED, SubjobState.PENDING)
_OPEN = [state.value for state in SubjobState if state not in TERMINAL_SUBJOB]
TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that may be sent into a gap. `tried_s`: the longest gap that was not enough (seconds; 0: none)."""

    job: str
    processors: int
    request_s: float
    tried_s: float
    runs: tuple[PastRun, ...]
    application: Application


@dataclass(frozen=True, slots=True)
class Gaps:
    """The windows of a queue that end, and the jobs that wait for room in it.

    A window is (processors, walltime that fits, seconds from `now` until it ends).
    """

    queue: str
    now: float
    windows: tuple[tuple[int, float, float], ...]
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """Which job goes into which gap, and why."""

    job: str
    processors: int
    walltime_s: float
    until_s: float
    utilisation: float
    finishes: float
    why: str


# -- what waits, and for what -----------------------------------------------------------------------------------------


def look(ctx: Context) -> list[Gaps]:
    """Read only. Gaps of each queue that its settings let be used, where no job is on the way to one."""
    view = ctx.view
    if view is None or not ctx.settings.traits.withholds:
        return []
    room = Room(ctx)
    found = []
    for queue in view.queues:
        if ctx.queue_settings(queue.name).gaps == "off":
            continue
        slots = [slot for slot in room.windows(queue.name).slots() if _ends(slot, queue.max_walltime_s)]
        pending = [job for job in view.jobs if job.queue == queue.name and job.state is BatchState.PENDING]
        pending = [job for job in pending if not job.blocked]
        windows = tuple(
            (slot.processors, walltime_s, ctx.now + slot.duration_s)
            for slot in slots
            if (walltime_s := _fits(ctx, slot.duration_s)) > 0.0 and not _somebody_fits(pending, slot)
        )
        if windows and not _on_the_way(ctx, queue.name) and (waiting := _waiting(ctx, queue.name, pending)):
            found.append(Gaps(queue.name, ctx.now, windows, tuple(waiting)))
    return found


def _ends(slot: BackfillSlot, max_walltime_s: float | None) -> bool:
    return slot.duration_s < (UNLIMITED if max_walltime_s is None else max_walltime_s)


def _fits(ctx: Context, duration_s: float) -> float:
    """The longest walltime that still fits once the batch system has come to it: two looks of ours, one of its own."""
    assert ctx.view is not None
    quantum = ctx.view.walltime_quantum_s
    left_s = duration_s - 2 * ctx.settings.poll_s - ctx.view.pass_s
    return max(0.0, floor((left_s + ROUNDING_SLACK_S) / quantum) * quantum)


def _somebody_fits(pending: Sequence[BatchJobView], slot: BackfillSlot) -> bool:
    """Whether one of ours fits as it is: the batch system is about to start it. (Others' are taken off by the room.)"""
    return any(
        job.mark.startswith(TAG_PREFIX)
        and job.walltime_s is not None
        and job.walltime_s <= slot.duration_s
        and job.processors <= slot.processors
        for job in pending
    )


def _on_the_way(ctx: Context, queue: str) -> bool:
    """Whether a job was sent into a gap of the queue and has not begun there."""
    staying = select(Intent.id).join(Job, Intent.job_id == Job.id)
    staying = staying.where(
        Intent.kind == IntentKind.STAY, Intent.state.in_((IntentState.PENDING, IntentState.EXECUTING))
    )
    stands = select(Subjob.id).join(Job, Subjob.job_id == Job.id)
    stands = stands.where(Subjob.role == SubjobRole.STANDBY, Subjob.state.in_(_OPEN), Job.state == JobState.WAITING)
    queries = (staying.where(Job.queue == queue), stands.where(Job.queue == queue))
    return any(ctx.session.scalars(query.limit(1)).first() is not None for query in queries)


def _waiting(ctx: Context, queue: str, pending: Sequence[BatchJobView]) -> list[Waiting]:
    """Jobs that chose a learned walltime, may be run again, and have not begun.

    Not the head of the queue: its reservation would move.
    """
    behind = {job.mark for job in pending[1:]}
    query = (
        select(Job.id, Job.user, Job.walltimes, Job.start_s, Subjob.tag, Subjob.processors, Subjob.walltime_s)
        .join(Subjob, Subjob.job_id == Job.id)
        .where(Job.state == JobState.WAITING, Job.elastic.is_(False), Job.held.is_(False), Job.queue == queue)
        .where(Subjob.role == SubjobRole.RIGID, Subjob.state == SubjobState.PENDING, Subjob.releasing.is_(False))
        .order_by(Job.seq)
        .limit(JOBS_AT_ONCE)
    )
    runs: dict[Application, tuple[PastRun, ...]] = {}
    found = []
    for row in ctx.session.execute(query):
        known = row.walltimes or {}
        before = known.get("gaps", [])
        tried_s = max((gap["walltime_s"] for gap in before if gap["end"] == TIMED_OUT), default=0.0)
        begun = row.start_s is not None and not tried_s
        if row.tag not in behind or not known.get("sequence_s") or known["at"] or begun:
            continue
        if len(before) >= MOST or any(gap["until_s"] > ctx.now for gap in before):
            continue
        of = Application(row.user, known["application"], known["processors"], known["input_class"])
        if of not in runs:
            runs[of] = tuple(newest(ctx.session, of))
        found.append(Waiting(row.id, row.processors, row.walltime_s, tried_s, runs[of], of))
    return found


# -- what is sent -----------------------------------------------------------------------------------------------------


def choose_all(found: Sequence[Gaps]) -> tuple[list[Sent], dict[str, str]]:
    """Of each queue the job that makes the most of a gap, and of each waiting job why it is that one or is not.

    It may take a while: not on the writer.
    """
    sent, told = [], {}
    for gaps in found:
        best, verdicts = _choose(gaps)
        told.update(verdicts)
        if best is not None:
            sent.append(best)
    return sent, told


def _choose(gaps: Gaps) -> tuple[Sent | None, dict[str, str]]:
    from ejbd.core.speculation.backfill import Candidate, GapChoice, choose, expected_utilisation

    laws = {one.job: _law(one.application, one.runs) for one in gaps.waiting}
    best: tuple[GapChoice, int, float, float] | None = None
    weighed: dict[str, tuple[GapChoice, int, float]] = {}
    for processors, walltime_s, until_s in gaps.windows:
        candidates = [
            Candidate(one.job, one.processors, law, one.tried_s)
            for one in gaps.waiting
            if (law := laws[one.job]) is not None and one.request_s > walltime_s
        ]
        for candidate in candidates:
            found = expected_utilisation(candidate, processors, walltime_s)
            if candidate.job not in weighed or found.utilisation > weighed[candidate.job][0].utilisation:
                weighed[candidate.job] = found, processors, walltime_s
        chosen = choose(candidates, processors, walltime_s)
        if chosen is not None and (best is None or chosen.utilisation > best[0].utilisation):
            best = chosen, processors, walltime_s, until_s
    told = {}
    for one in gaps.waiting:
        law = laws[one.job]
        if law is None:
            told[one.job] = "too little is known of its application by now"
        elif one.job not in weighed:
            told[one.job] = "its request fits every window that ends"
        else:
            choice, processors, walltime_s = weighed[one.job]
            why = (
                f"{_wide(processors)} can be had for {walltime_s:g} s, of which its run would use a share of "
                f"{choice.utilisation:.3f} and be done with probability {choice.finishes:.3f}, by {law.words()}"
            )
            other = "" if best is None or best[0].job == one.job else f"; job {best[0].job} is expected to use more"
            told[one.job] = why + (other or ("; it cannot be done there" if best is None else ""))
    if best is None:
        return None, told
    choice, processors, walltime_s, until_s = best
    why = told[choice.job]
    sent = Sent(choice.job, processors, walltime_s, until_s, choice.utilisation, choice.finishes, why)
    return sent, told


def _law(application: Application, runs: tuple[PastRun, ...]) -> Law | None:
    return _fitted(application, tuple((run.run_s, run.outcome) for run in runs))


@lru_cache(maxsize=64)
def _fitted(application: Application, runs: tuple[tuple[float, str], ...]) -> Law | None:
    rows = [PastRun(run_s=run_s, outcome=outcome) for run_s, outcome in runs]
    try:
        found = learned(application, rows).fitted
    except (ValueError, ArithmeticError) as error:
        log.error("gaps-fault", application=application.name, error=repr(error), exc_info=error)
        return None
    return found.law if found is not None else None


# -- there and back ---------------------------------------------------------------------------------------------------


def send(ctx: Context, sent: Sent) -> Effects[bool]:
    """Have the job's own batch job stay where it is; the attempt comes once the batch system has taken that."""
    job = ctx.session.scalars(select(Job).where(Job.id == sent.job)).first()
    if job is None or job.state != JobState.WAITING or job.held:
        return False
    world = JobWorld(ctx, job)
    waits = world.open_subjobs
    if len(waits) != 1 or waits[0].state != SubjobState.PENDING or waits[0].releasing or standby.is_apart(world):
        return False
    yield from _note(
        job,
        {
            "walltime_s": sent.walltime_s,
            "processors": sent.processors,
            "until_s": sent.until_s,
            "utilisation": sent.utilisation,
            "finishes": sent.finishes,
            "end": "",
        },
    )
    yield tell(
        EventKind.JOB_GAP,
        job_id=job.id,
        walltime_s=sent.walltime_s,
        utilisation=sent.utilisation,
        finishes=sent.finishes,
        reason=sent.why,
    )
    yield Act(IntentKind.STAY, job.id, subjob=waits[0])
    return True


def stays(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """The batch system keeps the job's own batch job from beginning: send the attempt, if there is still time."""
    job, gap = world.job, under_way(world.job)
    if SubjobState(subjob.state).terminal or subjob.releasing:
        return
    late = gap is None or world.ctx.now + gap["walltime_s"] > gap["until_s"]
    if gap is None or late or job.state != JobState.WAITING or job.held or subjob.state != SubjobState.PENDING:
        yield from _ended(job, "it came too late")
        yield Act(IntentKind.BEGIN, job.id, subjob=subjob)
        return
    yield note(subjob, role=SubjobRole.STANDBY.value)
    yield Ask(SubjobRole.RIGID, job.processes, gap["walltime_s"])


def cannot_stay(job: Job, why: str) -> Effects[None]:
    """The batch system did not keep it from beginning."""
    yield from _ended(job, why)


def begun(job: Job, subjob: Subjob) -> Effects[None]:
    """A batch job of a passed-through job runs. Its own was faster than the word that it stays."""
    if not is_attempt(job, subjob):
        yield from _ended(job, "its own batch job has begun")


def after(world: JobWorld, end: PassedThroughEnded) -> Effects[Outcome | None]:
    """What becomes of a job after its attempt: back to its old request, or None, what it would be anyway."""
    job, attempt = world.job, world.subjob(end.subjob)
    assert attempt is not None
    timed_out = end.state is BatchState.TIMEOUT
    yield from _ended(job, TIMED_OUT if timed_out else "it did not begin in time" if attempt.releasing else end.said)
    if timed_out and not attempt.releasing:
        why = f"{end.said} in a gap: {attempt.walltime_s:g} s were not enough, {job.walltime_s:g} s are asked for"
        return Again(reason=why, whole=True, walltime_s=job.walltime_s)
    if attempt.releasing and standby.of(world) is not None and end.state in (BatchState.CANCELLED, BatchState.TIMEOUT):
        return Again(reason="its room in a gap was gone", whole=True)
    return None


def any_stands(session: Session) -> bool:
    """Whether the batch job of any waiting job stands by."""
    query = select(Subjob.id).join(Job, Subjob.job_id == Job.id).where(Job.state == JobState.WAITING)
    query = query.where(Subjob.role == SubjobRole.STANDBY, Subjob.state.in_(_OPEN))
    return session.scalars(query.limit(1)).first() is not None


def mind(ctx: Context) -> Effects[None]:
    """Attempts that do not begin are taken back, and those that were refused are over."""
    query = select(Job).join(Subjob, Subjob.job_id == Job.id).where(Job.state == JobState.WAITING)
    query = query.where(Subjob.role == SubjobRole.STANDBY, Subjob.state.in_(_OPEN), Subjob.releasing.is_(False))
    for job in list(ctx.session.scalars(query).unique()):
        yield Apart(JobWorld(ctx, job), _mind)


def _mind(world: JobWorld) -> Effects[None]:
    job, ctx = world.job, world.ctx
    attempts = [subjob for subjob in world.subjobs if is_attempt(job, subjob)]
    if under_way(job) is None or not attempts:
        return  # what stands by is for after a time-out
    last = attempts[-1]
    if last.state in _NOT_BEGUN and ctx.now - last.created_s > ctx.settings.limits.start_grace_s:
        yield Release(last, "it did not begin in its gap")
    if SubjobState(last.state).terminal:
        yield from _ended(job, last.reason or "it did not begin in time")
        yield from standby.adopt(world, job.walltime_s, "its room in a gap was gone")


def _note(job: Job, gap: dict[str, Any]) -> Effects[None]:
    known = job.walltimes or {}
    yield note(job, walltimes={**known, "gaps": [*known.get("gaps", []), gap]})


def _ended(job: Job, how: str) -> Effects[None]:
    known = job.walltimes or {}
    gaps = known.get("gaps", [])
    if gaps and not gaps[-1]["end"]:
        yield note(job, walltimes={**known, "gaps": [*gaps[:-1], {**gaps[-1], "end": how}]})
