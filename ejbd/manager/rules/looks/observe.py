"""What a poll saw against what the store believes. Absence is not an end (architecture: The live world)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import defer

from ejbd.batch.base import BatchEnd
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.effects import (
    AdoptAlone,
    Advance,
    Apart,
    CameToNothing,
    Conclude,
    Effects,
    EndByTime,
    EnsurePlaceholder,
    GapBegun,
    GiveUp,
    KeepIn,
    KeepOnly,
    LeaveSubjob,
    LostWorker,
    MoveJob,
    MoveSubjob,
    NoteGivenBack,
    PlanStandby,
    Release,
    TakeLeftBehind,
    Want,
    note,
    tell,
)
from ejbd.manager.effects.ends import CANCELLED_THERE, SUBJOB_ENDED_AS, CancelAsked, PassedThroughEnded
from ejbd.manager.facts import arrays
from ejbd.manager.facts.attempts import is_attempt
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.homes import lives_elsewhere
from ejbd.manager.facts.jobworld import JobWorld, begins_again
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.manager.facts.operations import leaves
from ejbd.manager.facts.tags import is_ours
from ejbd.manager.facts.times import CLOCKS_S, planned_end
from ejbd.manager.hands import orders
from ejbd.manager.rules.looks import changes, heard, suspensions
from ejbd.store.models import Job, Subjob, Worker
from ejbd.store.states import STARTED_SUBJOB, TERMINAL_JOB, TERMINAL_SUBJOB, EpochState, JobState, SubjobState
from ejbd.wire.kinds import AS_ASKED, EventKind, JobKind, OperationKind, SubjobRole

FORGOTTEN_S = 60.0  # after which a batch system may have forgotten a job that has ended (Slurm's MinJobAge: 300 s)
COMPLETING_S = 300.0  # how long an Epilog may take before the silence of a subjob's workers counts all the same
PUT_BACK = "the batch system has put it back into the queue"
SILENT_BEATS = 1.5  # heartbeats that a worker may miss before its silence is worth a note


def seen_of(subjob: Subjob | SubjobRow, listed: Mapping[str, BatchJobView]) -> BatchJobView | None:
    """What the view shows of a subjob. Not another job that has got its id since."""
    seen = listed.get(subjob.batch_id or "")
    return seen if seen is not None and is_ours(seen, subjob) else None


def _note_plan(subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    # A value that is set is flushed, the same one too.
    if subjob.planned_start_s != seen.planned_start_s:
        yield note(subjob, planned_start_s=seen.planned_start_s)
    if subjob.reason != seen.reason:
        yield note(subjob, reason=seen.reason)


def look(world: JobWorld, subjob: Subjob, seen: BatchJobView | None, outcome: BatchEnd | None) -> Effects[None]:
    ctx = world.ctx
    if outcome is not None or seen is None or seen.state.ended or seen.state.holds_processors:
        yield AdoptAlone(subjob)
    if seen is None:
        if outcome is not None:
            yield from _ended(world, subjob, outcome)
        elif subjob.missing_since_s is None:
            yield note(subjob, missing_since_s=ctx.now)
            yield tell(EventKind.SUBJOB_MISSING, job_id=world.job.id, subjob_id=subjob.id)
        elif ctx.hands.own.trouble:
            pass  # how it ended may stand there
        elif ctx.now - subjob.missing_since_s > ctx.settings.limits.missing_grace_s and not _speaks(world, subjob):
            if subjob.role == SubjobRole.RIGID and not JobState(world.job.state).terminal:
                yield from _nobody_knows(world, subjob)
            else:
                yield from _ended(
                    world, subjob, BatchEnd(BatchState.NODE_FAIL, None, None, "unknown to the batch system")
                )
        return
    told_s = subjob.told_submit_s if seen.submit_s is None else seen.submit_s
    yield note(subjob, missing_since_s=None, told_submit_s=told_s)
    if subjob.role == SubjobRole.RIGID and seen.start_s is not None and ("," in world.job.queue or not world.job.queue):
        yield note(world.job, queue=seen.queue)  # of several the one in which it runs
    if world.job.state == JobState.UNKNOWN and not seen.state.ended:
        back = JobState.WAITING if subjob.state == SubjobState.PENDING else JobState.RUNNING
        yield MoveJob(world.job, back, setback=True, reason="the batch system knows it again")
    if seen.state.ended:
        if subjob.start_s is None and subjob.role in _WHOLE and seen.state in _RAN:
            yield note(subjob, start_s=_start(ctx, subjob, seen))  # it began and ended between two looks
        yield from _ended(world, subjob, _end_of(seen))
    elif seen.state is BatchState.ENDING and subjob.role != SubjobRole.RIGID:
        pass  # its processes are gone or going, and its end is "now" from one look to the next: how it ended comes soon
    elif seen.state.holds_processors:
        if subjob.state in (SubjobState.PLANNED, SubjobState.PENDING):
            yield from _started(world, subjob, seen)
        elif subjob.heard_s is not None:
            yield from heard.shown(world, subjob, _start(ctx, subjob, seen), seen)
        else:
            if (end_s := planned_end(subjob.start_s, seen)) is not None:
                yield note(subjob, end_s=end_s)
            if subjob.elements is not None:
                yield note(subjob, processors=seen.processors, nodes=list(seen.nodes), reason=seen.reason)
                yield note(world.job, reason=seen.reason)
        yield from suspensions.look(world, subjob, seen)
    elif ctx.view is None or not heard.is_news_to(ctx.view, subjob):
        if subjob.state in STARTED_SUBJOB and subjob.role == SubjobRole.RIGID:
            yield from _waits_again(world, subjob)
        elif subjob.state == SubjobState.RUNNING:
            why = "it is set aside" if subjob.role == SubjobRole.ASIDE else PUT_BACK
            yield MoveSubjob(subjob, SubjobState.PENDING, reason=why, setback=True)
            yield LeaveSubjob(subjob, why)
        yield from _still_pending(world, subjob, seen)


def _waits_again(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """The batch system has put a passed-through job back into its queue: its node died, or a user said so."""
    job, why = world.job, PUT_BACK
    yield MoveSubjob(subjob, SubjobState.PENDING, reason=why, setback=True)
    if job.state == JobState.RUNNING:
        yield MoveJob(job, JobState.WAITING, reason=why, setback=True)


def _start(ctx: Context, subjob: Subjob, seen: BatchJobView) -> float:
    """When a subjob started, by our own clock, whatever the batch system's clock shows.

    It was not before the subjob was asked for or last seen waiting, and not later than now.
    """
    if seen.start_s is None:
        return ctx.now
    asked_s = subjob.submit_s if subjob.submit_s is not None else subjob.created_s
    earliest_s = asked_s if ctx.looked_s is None else max(asked_s, ctx.looked_s)
    return min(max(seen.start_s, earliest_s - CLOCKS_S), ctx.now)


def _nobody_knows(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """A passed-through job is gone, and neither a listing, accounts nor its exit file say how it ended."""
    if world.job.state == JobState.UNKNOWN:
        return
    if world.job.state == JobState.ENDING:
        yield Conclude(CancelAsked(world.job.reason))
        return
    reason = f"its batch job {subjob.batch_id} is gone, and how it ended is not known"
    yield MoveJob(world.job, JobState.UNKNOWN, reason=reason)


def _speaks(world: JobWorld, subjob: Subjob) -> bool:
    """Whether a worker of an unlisted subjob is heard of, before the subjob's time is over: then it is not lost."""
    if subjob.state != SubjobState.RUNNING or (subjob.end_s is not None and world.ctx.now > subjob.end_s):
        return False
    return any(_is_heard(world.ctx, worker) for worker in world.workers_of(subjob.id))


def _is_heard(ctx: Context, worker: Worker, within_s: float | None = None) -> bool:
    limit_s = ctx.settings.limits.worker_silence_s if within_s is None else within_s
    return ctx.now - ctx.seen.get(worker.id, worker.last_seen_s) <= limit_s


def _runs_on(world: JobWorld, subjob: Subjob, end: BatchEnd) -> Effects[bool]:
    """Whether what runs in a subjob that was given up with its node may live on: the batch system ends nothing there.

    The workers are told to; until they have, it has not ended for us, and nothing begins elsewhere. The batch system
    does not reach the node either: workers that live call within a heartbeat, and others are not waited for.
    """
    if subjob.role == SubjobRole.RIGID or subjob.state != SubjobState.RUNNING:
        return False
    limits = world.ctx.settings.limits
    within_s = min(limits.worker_silence_s, SILENT_BEATS * limits.heartbeat_s)
    gone = {o.worker_id for o in world.operations(OperationKind.EXIT, OperationKind.UNLEAD) if leaves(o)}
    if not any(_is_heard(world.ctx, w, within_s) for w in world.workers_of(subjob.id) if w.id not in gone):
        return False
    said = ", ".join(filter(None, (end.state.name, end.why)))
    why = f"the batch system has given it up with its node ({said})"
    yield note(subjob, reason=why)
    yield GiveUp(subjob, why)
    return True


def _started(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    ctx, job = world.ctx, world.job
    start_s = _start(ctx, subjob, seen)
    end_s = planned_end(start_s, seen)
    end_s = end_s if end_s is not None else start_s + subjob.walltime_s
    yield note(subjob, start_s=start_s, end_s=end_s, nodes=list(seen.nodes), heard_s=None)
    yield MoveSubjob(subjob, SubjobState.RUNNING, data={"nodes": list(seen.nodes)})
    yield from heard.lose_misplaced_workers(world, subjob, seen)
    if subjob.role == SubjobRole.STANDBY:
        yield Release(subjob, "it was let begin at the batch system, and it is not its turn")
        return
    if subjob.role == SubjobRole.RIGID:
        yield note(subjob, reason="", processors=seen.processors or subjob.processors)
        if not job.walltime_s and seen.walltime_s:
            yield note(subjob, walltime_s=seen.walltime_s)
        if job.state == JobState.WAITING:
            yield from _rigid_runs(world, subjob)
            yield GapBegun(job, subjob)
            yield PlanStandby()
        return
    yield from heard.joins(world, subjob)


def _rigid_runs(world: JobWorld, subjob: Subjob) -> Effects[None]:
    if world.job.start_s is None:  # of a job that was put back into the queue the first one stays
        yield note(world.job, start_s=subjob.start_s)
    yield MoveJob(world.job, JobState.RUNNING)


def _still_pending(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    ctx, job = world.ctx, world.job
    yield from _note_plan(subjob, seen)
    yield from changes.look(world, subjob, seen)
    if subjob.role == SubjobRole.PLACEHOLDER and job.rigid_start_s is None and seen.promised_s is not None:
        yield note(job, rigid_start_s=seen.promised_s)
        yield tell(EventKind.PLACEHOLDER_PLANNED, job_id=job.id, subjob_id=subjob.id, start_s=seen.promised_s)
    if subjob.role != SubjobRole.SUBJOB or subjob.releasing or world.evolving is not None:
        return  # what a job is to hold at its time is waited for
    grace_s = ctx.settings.limits.start_grace_s
    waited = ctx.now - (subjob.submit_s if subjob.submit_s is not None else subjob.created_s)
    until_s = seen.planned_start_s if seen.blocked else None
    if seen.limited:  # what it would have to wait for is no window's affair, and J0 may need what it waits for, too
        why, until_s = f"cannot start ({seen.reason})", None
    elif until_s is not None and until_s > ctx.now + grace_s:  # a reservation is in its way that no window told of
        why = f"cannot start ({seen.reason})"
    elif waited > grace_s:
        why, until_s = f"did not start within {grace_s:g} s", None
    else:
        return
    yield CameToNothing(subjob, why, started=False, until_s=until_s)
    yield Release(subjob, why)


def _end_of(seen: BatchJobView) -> BatchEnd:
    return BatchEnd(seen.state, seen.exit_code, seen.end_s, "listing", seen.reason, seen.exit_signal)


def _ended(world: JobWorld, subjob: Subjob, end: BatchEnd) -> Effects[None]:
    """One of our batch jobs has ended."""
    ctx, job, state = world.ctx, world.job, end.state
    if state is BatchState.NODE_FAIL and (yield from _runs_on(world, subjob, end)):
        return
    yield note(subjob, exit_code=end.exit_code)
    was_running = subjob.state in STARTED_SUBJOB
    if state is BatchState.PREEMPTED:
        yield from _preempted(world, subjob)
    yield MoveSubjob(subjob, SUBJOB_ENDED_AS[state], data={"source": end.source, "exit_code": end.exit_code})
    if end.end_s is not None and subjob.start_s is not None:  # its processors were free before this look
        yield note(subjob, end_s=min(ctx.now, max(subjob.start_s, end.end_s)))
    if subjob.role in AS_ASKED:
        if subjob.role == SubjobRole.RIGID:
            yield from _rigid_ended(world, subjob, end)
        elif state is BatchState.CANCELLED and not (subjob.releasing or job.elastic):
            yield from _standby_cancelled(world)
        return
    yield NoteGivenBack(subjob, end.end_s)
    if not subjob.releasing:
        why = f"ended as {subjob.state} before any rank ran"
        yield CameToNothing(subjob, why, started=was_running and state not in _TAKEN_AWAY)
    yield TakeLeftBehind(subjob)
    lives_on_it = subjob.id in job.members or not job.members
    anchor = lives_elsewhere(world, subjob) if subjob.role == SubjobRole.PLACEHOLDER else None
    if anchor is not None and subjob.id in job.members:
        yield Want(job, [anchor.id])
    elif subjob.role == SubjobRole.PLACEHOLDER and state is BatchState.TIMEOUT and lives_on_it and not subjob.releasing:
        yield EndByTime(subjob)  # also where its workers have left before, and the job waits again
    yield LeaveSubjob(subjob, end.why)
    if JobState(job.state).terminal or job.state == JobState.ENDING:
        return
    if subjob.role == SubjobRole.ASIDE and state is BatchState.CANCELLED and not subjob.releasing:
        yield Conclude(CancelAsked(CANCELLED_THERE))  # its number is the job's
        return
    if subjob.role == SubjobRole.PLACEHOLDER and not subjob.releasing:
        never_ran = not was_running or subjob.state == SubjobState.LOST
        if state is BatchState.CANCELLED or (never_ran and job.state == JobState.RUNNING and job.members):
            yield EnsurePlaceholder()  # the job runs elsewhere, and keeps its way back
    yield Advance()


_WHOLE = (SubjobRole.RIGID, SubjobRole.PLACEHOLDER)  # the job in its own shape
_RAN = (BatchState.COMPLETED, BatchState.FAILED, BatchState.TIMEOUT)  # a batch job that ends so has run
_TAKEN_AWAY = (BatchState.CANCELLED, BatchState.PREEMPTED)
_TAKEN_BACK = (BatchState.NODE_FAIL, BatchState.PREEMPTED)


def _preempted(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """Without a grace its workers may have told of their end before the reason was known: that was no setback."""
    epoch = world.epoch
    warned = subjob.warned
    yield note(subjob, warned_s=world.ctx.now)
    if warned or epoch is None:
        return
    if epoch.state == EpochState.FAILED and subjob.id in epoch.members and not world.workers_of(subjob.id):
        yield note(world.job, setbacks=max(0, world.job.setbacks - 1))


def _rigid_ended(world: JobWorld, subjob: Subjob, end: BatchEnd) -> Effects[None]:
    """A passed-through job ends as its batch job does."""
    job = world.job
    if JobState(job.state).terminal:
        return
    if job.start_s is None:
        yield note(job, start_s=subjob.start_s)
    said = f"its batch job {subjob.batch_id} ended as {subjob.state}" + (f" ({end.why})" if end.why else "")
    elements = arrays.rest_ended(subjob, end.state)
    if elements != subjob.elements:
        yield note(subjob, elements=elements)
    if subjob.elements is not None and subjob.elements["ended"]:
        said = arrays.counted(subjob.elements, 0)
        yield note(subjob, reason=said)
    again = job.kind == JobKind.COMMAND or begins_again(job)
    lost = end.state in _TAKEN_BACK and again and orders.begun_at_once(world.spool, job.id, subjob.id)
    ended = PassedThroughEnded(end.state, end.exit_code, said, subjob.start_s, end.end_s, subjob.id)
    yield Conclude(replace(ended, lost=lost, setbacks=job.setbacks, exit_signal=end.exit_signal))


def _standby_cancelled(world: JobWorld) -> Effects[None]:
    """What stands by was cancelled at the batch system.

    While an attempt in a gap is under way, that is the job's own batch job, and so the job is cancelled. Otherwise the
    next run is submitted after the time-out.
    """
    attempt = next((subjob for subjob in world.open_subjobs if is_attempt(world.job, subjob)), None)
    if attempt is None or JobState(world.job.state).terminal:
        return
    yield Release(attempt, "the job was cancelled at the batch system")
    if SubjobState(attempt.state).terminal:
        yield Conclude(CancelAsked(CANCELLED_THERE))


def find_empty_subjobs(ctx: Context, looked_at: Sequence[tuple[JobWorld, Subjob]]) -> Effects[None]:
    """Subjobs that run without workers, as these do not come: nothing could ever be launched there."""
    limit = ctx.settings.limits.launch_timeout_s
    for world, subjob in looked_at:
        if world.job.state not in (JobState.WAITING, JobState.RUNNING):
            continue
        if subjob.role == SubjobRole.RIGID or subjob.state != SubjobState.RUNNING or subjob.releasing or subjob.joined:
            continue
        if subjob.role == SubjobRole.ASIDE:
            continue  # on its way back into the queue, which this look does not show yet
        if ctx.waited_s(subjob.start_s or ctx.now) <= limit or world.ready(subjob):
            continue

        def give_up(world: JobWorld, subjob: Subjob = subjob) -> Effects[None]:
            yield Want(world.job, [m for m in world.job.members if m != subjob.id])
            yield CameToNothing(subjob, f"ran, and its workers did not come within {limit:g} s")
            yield Release(subjob, f"its workers did not come within {limit:g} s")

        yield Apart(world, give_up)


def _is_silent(ctx: Context, silent_s: float) -> bool:
    """Whether a worker that has said nothing for so long has missed some of its beats."""
    limits = ctx.settings.limits
    return silent_s > min(SILENT_BEATS * limits.heartbeat_s, limits.worker_silence_s / 4)


def _note_silence(ctx: Context, worker: Worker, silent_s: float) -> Effects[None]:
    """Keep how long a worker has been silent for the next daemon, lest it begin to count anew. One that is heard of, as
    nearly all are, costs nothing."""
    if _is_silent(ctx, silent_s):
        yield note(worker, silent_s=silent_s)
    elif worker.silent_s is not None:
        yield note(worker, silent_s=None)


def _suspended(ctx: Context) -> frozenset[str]:
    """Subjobs that the batch system has suspended: their processes are stopped for a while."""
    return frozenset(ctx.session.scalars(select(Subjob.id).where(Subjob.state == SubjobState.SUSPENDED)))


def _is_ended_there(ctx: Context, worker: Worker) -> bool:
    """Whether the batch system is ending a worker's subjob (Slurm: COMPLETING). How it ended is told soon: where a user
    has cancelled J0, silence that was taken for a loss would submit the job again."""
    if ctx.view is None:
        return False
    tag = ctx.session.scalar(select(Subjob.tag).where(Subjob.id == worker.subjob_id))
    return any(job.mark == tag and job.state is BatchState.ENDING for job in ctx.view.jobs)


def find_silent_workers(ctx: Context) -> Effects[None]:
    """Workers that have not been heard of for too long, though their subjob is said to run."""
    limit = ctx.settings.limits.worker_silence_s
    living = Worker.alive, Job.state.in_((JobState.WAITING, JobState.RUNNING, JobState.ENDING))
    stopped = _suspended(ctx)
    yield KeepOnly("seen", frozenset(ctx.session.scalars(select(Worker.id).where(Worker.alive))))
    if known := list(ctx.memory.reported):
        jobs = select(Job.id).where(Job.id.in_(known), Job.state.not_in(TERMINAL_JOB))
        subjobs = select(Subjob.id).where(Subjob.id.in_(known), Subjob.state.not_in(TERMINAL_SUBJOB))
        yield KeepOnly("reported", {*ctx.session.scalars(jobs), *ctx.session.scalars(subjobs)})
    columns = select(Worker.id, Worker.subjob_id, Worker.silent_s).join(Job, Worker.job_id == Job.id)
    silent = [
        row.id
        for row in ctx.session.execute(columns.where(*living))
        if row.silent_s is not None
        or row.subjob_id in stopped
        or _is_silent(ctx, ctx.now - ctx.seen.get(row.id, ctx.now))
    ]
    query = select(Worker, Job).join(Job, Worker.job_id == Job.id).options(defer(Job.spec))
    for worker, job in list(ctx.session.execute(query.where(*living, Worker.id.in_(silent)))) if silent else ():
        if worker.subjob_id in stopped:  # it cannot speak: its silence begins when it may run on
            yield KeepIn("seen", worker.id, ctx.now)
        silent_s = ctx.now - ctx.seen.get(worker.id, ctx.now)
        yield from _note_silence(ctx, worker, silent_s)
        if silent_s <= limit or (silent_s <= limit + COMPLETING_S and _is_ended_there(ctx, worker)):
            continue
        world = JobWorld(ctx, job)

        def lose(world: JobWorld, worker: Worker = worker) -> Effects[None]:
            subjob = world.subjob(worker.subjob_id)
            yield LostWorker(worker, f"silent for more than {limit:g} s")
            if subjob is not None:
                yield Want(world.job, [m for m in world.job.members if m != subjob.id])
                # Its ranks may still run there: the batch system ends them with the subjob.
                if not subjob.releasing:
                    yield CameToNothing(subjob, f"ran, and its worker on {worker.node} fell silent")
                yield note(subjob, releasing=False)
                yield Release(subjob, f"its worker on {worker.node} is silent")

        yield Apart(world, lose)
