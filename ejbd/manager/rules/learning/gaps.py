"""Rule A, live: jobs that wait are sent into windows that are shorter than their request.

Which ones is core's rule (`ejbd.core.speculation.sending`). Runs like it have to have been over by then often enough.
The job's own batch job stays where it is in the queue, and is kept from beginning first. Only once the batch system has
taken that (`IntentKind.STAY`), it stands by, and the attempt is submitted. So the two never run both, and a job that
has begun meanwhile is not sent anywhere. What becomes of the attempt is seen as of any other run. A time-out, or a
window that was lost, lets the waiting one begin with its request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ejbd.core.progress import ROUNDING_SLACK_S
from ejbd.core.room.claims import less_what_is_coming
from ejbd.core.room.windows import Windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.speculation.sending import LONGER, TRIES, Sent, Waiter, chance_of, least_chance, may_try, sent
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.effects import Act, Apart, Ask, Effects, Release, note, tell
from ejbd.manager.effects.ends import Again, Outcome, PassedThroughEnded
from ejbd.manager.facts.attempts import TIMED_OUT, is_attempt, noted, under_way, wide
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past import classes
from ejbd.manager.facts.past.pastruns import application_of_job
from ejbd.manager.facts.past.speculating import not_again
from ejbd.manager.facts.room.windows import Room
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.rules.learning import standby
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import TERMINAL_SUBJOB, IntentState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

JOBS_AT_ONCE = 500  # of a queue that are looked at, the first to come
_NOT_BEGUN = (SubjobState.PLANNED, SubjobState.PENDING)
_OPEN = [state.value for state in SubjobState if state not in TERMINAL_SUBJOB]


@dataclass(frozen=True, slots=True)
class Gaps:
    """The windows of a queue that end, and the jobs that wait for room in it.

    A window is (processors, walltime that fits); until it is over, so much is lost of it (`lost_s`, seconds).
    """

    queue: str
    now: float
    windows: tuple[tuple[int, float], ...]
    waiting: tuple[Waiter, ...]
    lost_s: float


@dataclass(frozen=True, slots=True)
class Goes:
    """A job that goes into a window, which is over at `until_s`, and why."""

    sent: Sent
    until_s: float
    why: str


# -- what waits, and for what -----------------------------------------------------------------------------------------


def look(ctx: Context) -> list[Gaps]:
    """Read only. Gaps of each queue that its settings let be used."""
    view = ctx.view
    if view is None or not ctx.settings.traits.withholds:
        return []
    room = Room(ctx)
    found = []
    past: classes.Classes | None = None
    for queue in view.queues:
        if ctx.queue_settings(queue.name).gaps == "off":
            continue
        pending = [job for job in view.jobs if job.queue == queue.name and job.state is BatchState.PENDING]
        pending = [job for job in pending if not job.blocked]
        windows = _windows(ctx, room.windows(queue.name), queue.name, queue.max_walltime_s, pending)
        if not windows:
            continue
        past = past or classes.newest(ctx.session)
        if waiting := _waiting(ctx, queue.name, pending, past):
            found.append(Gaps(queue.name, ctx.now, windows, tuple(waiting), _lost_s(ctx)))
    return found


def _windows(
    ctx: Context, found: Windows, queue: str, max_walltime_s: float | None, pending: Sequence[BatchJobView]
) -> tuple[tuple[int, float], ...]:
    found = less_what_is_coming(found, _on_the_way(ctx, queue))
    endless_s = UNLIMITED if max_walltime_s is None else max_walltime_s
    slots = [slot for slot in found.slots() if slot.duration_s < endless_s]
    fits = [(slot.processors, _fits(ctx, slot.duration_s)) for slot in slots if not _somebody_fits(pending, slot)]
    return tuple((processors, walltime_s) for processors, walltime_s in fits if walltime_s > 0.0)


def _lost_s(ctx: Context) -> float:
    """Of a window, until the batch system has come to an attempt: two looks of ours, one of its own."""
    assert ctx.view is not None
    return 2 * ctx.settings.poll_s + ctx.view.pass_s


def _fits(ctx: Context, duration_s: float) -> float:
    """The longest walltime that still fits once the batch system has come to it."""
    assert ctx.view is not None
    quantum = ctx.view.walltime_quantum_s
    return max(0.0, floor((duration_s - _lost_s(ctx) + ROUNDING_SLACK_S) / quantum) * quantum)


def _somebody_fits(pending: Sequence[BatchJobView], slot: BackfillSlot) -> bool:
    """Whether one of ours fits as it is: the batch system is about to start it. (Others' are taken off by the room.)"""
    return any(
        job.mark.startswith(TAG_PREFIX)
        and job.walltime_s is not None
        and job.walltime_s <= slot.duration_s
        and job.processors <= slot.processors
        for job in pending
    )


def _on_the_way(ctx: Context, queue: str) -> list[tuple[int, float]]:
    """Processors and seconds of attempts that have not begun: their room is taken."""
    staying = select(Intent.job_id).where(
        Intent.kind == IntentKind.STAY, Intent.state.in_((IntentState.PENDING, IntentState.EXECUTING))
    )
    stands = select(Subjob.job_id).where(Subjob.role == SubjobRole.STANDBY, Subjob.state.in_(_OPEN))
    query = select(Job).where(Job.queue == queue, Job.state == JobState.WAITING, Job.elastic.is_(False))
    jobs = ctx.session.scalars(query.where(or_(Job.id.in_(staying), Job.id.in_(stands))))
    return [(job.processes, gap["walltime_s"]) for job in jobs if (gap := under_way(job)) is not None]


def _waiting(ctx: Context, queue: str, pending: Sequence[BatchJobView], past: classes.Classes) -> list[Waiter]:
    """Jobs that may be run again, and have not begun, in the order of the queue.

    Not the head of the queue: its reservation would move. Not one that has lost a window which is not over.
    """
    place = {job.mark: at for at, job in enumerate(pending) if at > 0}
    query = (
        select(Job.id, Job.user, Job.spec, Job.walltimes, Job.start_s, Subjob.tag, Subjob.processors, Subjob.walltime_s)
        .join(Subjob, Subjob.job_id == Job.id)
        .where(Job.state == JobState.WAITING, Job.elastic.is_(False), Job.held.is_(False), Job.queue == queue)
        .where(Subjob.role == SubjobRole.RIGID, Subjob.state == SubjobState.PENDING, Subjob.releasing.is_(False))
        .where(Job.spec["rerunnable"].as_boolean().is_(True))
        .order_by(Job.seq)
        .limit(JOBS_AT_ONCE)
    )
    found: dict[int, Waiter] = {}
    for row in ctx.session.execute(query):
        before = (row.walltimes or {}).get("gaps", [])
        tried_s = max((gap["walltime_s"] for gap in before if gap["end"] == TIMED_OUT), default=0.0)
        begun = row.start_s is not None and not tried_s
        if row.tag not in place or begun or (row.walltimes or {}).get("at") or not row.walltime_s:
            continue
        if (row.walltimes or {}).get("raised") or any(
            gap["until_s"] > ctx.now and gap["end"] != TIMED_OUT for gap in before
        ):
            continue
        spec = JobSpec.from_json(row.spec)
        if spec.learned is False or not_again(spec) or standby.is_several(spec):
            continue
        known = past.of(application_of_job(row.user, spec), row.walltime_s)
        found[place[row.tag]] = Waiter(row.id, row.processors, row.walltime_s, known, tried_s, len(before))
    return [found[at] for at in sorted(found)]


# -- what is sent -----------------------------------------------------------------------------------------------------


def choose_all(found: Sequence[Gaps]) -> tuple[list[Goes], dict[str, str]]:
    """The jobs that go into windows, and of each waiting job why it does or does not."""
    goes, told = [], {}
    for gaps in found:
        chosen = {one.job: one for one in sent(gaps.waiting, gaps.windows)}
        for one in gaps.waiting:
            told[one.job] = _verdict(one, gaps.windows)
            if one.job in chosen:
                into = chosen[one.job]
                goes.append(Goes(into, gaps.now + into.window_s + gaps.lost_s, told[one.job]))
            elif may_go(one, gaps.windows):
                told[one.job] += "; others that wait before it take the room"
    return goes, told


def may_go(waiter: Waiter, windows: Iterable[tuple[int, float]]) -> bool:
    """Whether it would be sent if no other job were."""
    return bool(sent([waiter], windows))


def _verdict(waiter: Waiter, windows: Sequence[tuple[int, float]]) -> str:
    """`4 processors can be had for 600 s; 90% of 12 runs of its application were over within 600 s`."""
    room = next((window for window in windows if window[0] >= waiter.processors), None)
    if room is None:
        return f"no window that ends has {wide(waiter.processors)}"
    processors, window_s = room
    had = f"{wide(processors)} can be had for {window_s:g} s"
    if not may_try(waiter, window_s):
        if waiter.tries >= TRIES:
            return f"{had}; it was sent {waiter.tries} times already"
        if window_s >= waiter.request_s:
            return f"{had}; it fits by its request"
        return f"{had}; {waiter.tried_s:g} s were not enough, and the next window has to be {LONGER:g} times as long"
    chance, by = chance_of(waiter, window_s)
    if by is None:
        return f"{had}; too few runs are known that are like it"
    told = f"{had}; {Sent(waiter.job, waiter.processors, window_s, chance, by).reason}"
    least = least_chance(waiter)
    return told if chance >= least else f"{told}, which is less than {least:.0%}"


# -- there and back ---------------------------------------------------------------------------------------------------


def send(ctx: Context, goes: Goes) -> Effects[bool]:
    """Have the job's own batch job stay where it is; the attempt comes once the batch system has taken that."""
    into = goes.sent
    job = ctx.session.scalars(select(Job).where(Job.id == into.job)).first()
    if job is None or job.state != JobState.WAITING or job.held:
        return False
    world = JobWorld(ctx, job)
    waits = world.open_subjobs
    if len(waits) != 1 or waits[0].state != SubjobState.PENDING or waits[0].releasing or standby.is_apart(world):
        return False
    gap = {
        "walltime_s": into.window_s, "processors": into.processors, "until_s": goes.until_s,
        "finishes": into.chance, "by": into.reason, "end": "",
    }  # fmt: skip
    yield note(job, walltimes=noted(world, gap))
    yield tell(EventKind.JOB_GAP, job_id=job.id, walltime_s=into.window_s, finishes=into.chance, reason=goes.why)
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


_STANDS = (
    select(Subjob.id)
    .join(Job, Subjob.job_id == Job.id)
    .where(Job.state == JobState.WAITING, Subjob.role == SubjobRole.STANDBY, Subjob.state.in_(_OPEN))
    .limit(1)
)


def any_stands(session: Session) -> bool:
    """Whether the batch job of any waiting job stands by."""
    return session.scalars(_STANDS).first() is not None


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


def _ended(job: Job, how: str) -> Effects[None]:
    known = job.walltimes or {}
    gaps = known.get("gaps", [])
    if gaps and not gaps[-1]["end"]:
        yield note(job, walltimes={**known, "gaps": [*gaps[:-1], {**gaps[-1], "end": how}]})
