"""What a poll saw against what the store believes. Absence is not an end (architecture: The live world)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import defer

from ejbd.batch.base import BatchEnd
from ejbd.core.policy import Situation
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.acts.guard import guarded
from ejbd.manager.acts.subjobs import release
from ejbd.manager.effects.ends import CANCELLED_THERE, SUBJOB_ENDED_AS, CancelAsked, PassedThroughEnded
from ejbd.manager.facts import arrays
from ejbd.manager.facts.attempts import is_attempt
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.homes import lives_elsewhere
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.roster import SubjobRow
from ejbd.manager.facts.operations import finished
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.tags import is_ours
from ejbd.manager.facts.times import CLOCKS_S
from ejbd.manager.rules.ends.concluding import conclude
from ejbd.manager.rules.learning import gaps, standby
from ejbd.manager.rules.learning.overheads import note_given_back
from ejbd.manager.rules.looks import changes, suspensions
from ejbd.manager.rules.placements import alone, application, setbacks
from ejbd.manager.rules.requests import reports as workers
from ejbd.store.models import Job, Subjob, Worker
from ejbd.store.states import STARTED_SUBJOB, TERMINAL_JOB, EpochState, JobState, SubjobState
from ejbd.store.transitions import add_event, move_job, move_subjob
from ejbd.wire.kinds import AS_ASKED, EventKind, OperationKind, SubjobRole

FORGOTTEN_S = 60.0  # after which a batch system may have forgotten a job that has ended (Slurm's MinJobAge: 300 s)
SILENT_BEATS = 1.5  # heartbeats that a worker may miss before its silence is worth a note


def seen_of(subjob: Subjob | SubjobRow, listed: Mapping[str, BatchJobView]) -> BatchJobView | None:
    """What the view shows of a subjob. Not another job that has got its id since."""
    seen = listed.get(subjob.batch_id or "")
    return seen if seen is not None and is_ours(seen, subjob) else None


def _note_plan(subjob: Subjob, seen: BatchJobView) -> None:
    # A value that is set is flushed, the same one too.
    if subjob.planned_start_s != seen.planned_start_s:
        subjob.planned_start_s = seen.planned_start_s
    if subjob.reason != seen.reason:
        subjob.reason = seen.reason


def look(world: JobWorld, subjob: Subjob, seen: BatchJobView | None, outcome: BatchEnd | None) -> None:
    ctx = world.ctx
    if outcome is not None or seen is None or seen.state.ended or seen.state.holds_processors:
        alone.adopt(world, subjob)
    if seen is None:
        if outcome is not None:
            _ended(world, subjob, outcome)
        elif subjob.missing_since_s is None:
            subjob.missing_since_s = ctx.now
            add_event(ctx.session, EventKind.SUBJOB_MISSING, ctx.now, job_id=world.job.id, subjob_id=subjob.id)
        elif ctx.now - subjob.missing_since_s > ctx.settings.limits.missing_grace_s and not _speaks(world, subjob):
            if subjob.role == SubjobRole.RIGID and not JobState(world.job.state).terminal:
                _nobody_knows(world, subjob)
            else:
                _ended(world, subjob, BatchEnd(BatchState.NODE_FAIL, None, None, "unknown to the batch system"))
        return
    subjob.missing_since_s = None
    if subjob.role == SubjobRole.RIGID and seen.start_s is not None and ("," in world.job.queue or not world.job.queue):
        world.job.queue = seen.queue  # of several the one in which it runs
    if world.job.state == JobState.UNKNOWN and not seen.state.ended:
        back = JobState.WAITING if subjob.state == SubjobState.PENDING else JobState.RUNNING
        move_job(ctx.session, world.job, back, ctx.now, setback=True, reason="the batch system knows it again")
    if seen.state.ended:
        if subjob.start_s is None and subjob.role in _WHOLE and seen.state in _RAN:
            subjob.start_s = _start(ctx, subjob, seen)  # it began and ended between two looks
        _ended(world, subjob, BatchEnd(seen.state, seen.exit_code, seen.end_s, "listing", seen.reason))
    elif seen.state is BatchState.ENDING and subjob.role != SubjobRole.RIGID:
        pass  # its processes are gone or going, and its end is "now" from one look to the next: how it ended comes soon
    elif seen.state.holds_processors:
        if subjob.state in (SubjobState.PLANNED, SubjobState.PENDING):
            _started(world, subjob, seen)
        else:
            if (end_s := planned_end(subjob.start_s, seen)) is not None:
                subjob.end_s = end_s
            if subjob.elements is not None:
                subjob.processors, subjob.nodes = seen.processors, list(seen.nodes)
                subjob.reason = world.job.reason = seen.reason
        suspensions.look(world, subjob, seen)
    else:
        if subjob.state in STARTED_SUBJOB and subjob.role == SubjobRole.RIGID:
            _waits_again(world, subjob)
        elif subjob.state == SubjobState.RUNNING and subjob.role == SubjobRole.ASIDE:
            move_subjob(ctx.session, subjob, SubjobState.PENDING, ctx.now, reason="it is set aside", setback=True)
            setbacks.leave_subjob(world, subjob, "it is set aside")
        _still_pending(world, subjob, seen)


def _waits_again(world: JobWorld, subjob: Subjob) -> None:
    """The batch system has put a passed-through job back into its queue: its node died, or somebody said so."""
    ctx, job, why = world.ctx, world.job, "the batch system has put it back into the queue"
    move_subjob(ctx.session, subjob, SubjobState.PENDING, ctx.now, reason=why, setback=True)
    if job.state == JobState.RUNNING:
        move_job(ctx.session, job, JobState.WAITING, ctx.now, reason=why, setback=True)


def _start(ctx: Context, subjob: Subjob, seen: BatchJobView) -> float:
    """When a subjob started, by our own clock: not before it was asked for or was last seen waiting, and not later than
    now, whatever the batch system's clock shows."""
    if seen.start_s is None:
        return ctx.now
    asked_s = subjob.submit_s if subjob.submit_s is not None else subjob.created_s
    earliest_s = asked_s if ctx.looked_s is None else max(asked_s, ctx.looked_s)
    return min(max(seen.start_s, earliest_s - CLOCKS_S), ctx.now)


def planned_end(start_s: float | None, seen: BatchJobView) -> float | None:
    """When the batch system means to end a subjob, by our own clock: what it grants is told by its clock alone."""
    if seen.end_s is None or seen.start_s is None or start_s is None:
        return seen.end_s
    return start_s + (seen.end_s - seen.start_s)


def _nobody_knows(world: JobWorld, subjob: Subjob) -> None:
    """A passed-through job is gone, and neither a listing, accounts nor its exit file say how it ended."""
    if world.job.state == JobState.UNKNOWN:
        return
    reason = f"its batch job {subjob.batch_id} is gone, and nobody knows how it ended"
    move_job(world.ctx.session, world.job, JobState.UNKNOWN, world.ctx.now, reason=reason)


def _speaks(world: JobWorld, subjob: Subjob) -> bool:
    """Whether a worker of an unlisted subjob is heard of, before the subjob's time is over: then it is not lost."""
    if subjob.state != SubjobState.RUNNING or (subjob.end_s is not None and world.ctx.now > subjob.end_s):
        return False
    return any(_is_heard(world.ctx, worker) for worker in world.workers_of(subjob.id))


def _is_heard(ctx: Context, worker: Worker) -> bool:
    return ctx.now - ctx.seen.get(worker.id, worker.last_seen_s) <= ctx.settings.limits.worker_silence_s


def _runs_on(world: JobWorld, subjob: Subjob) -> bool:
    """Whether what runs in a subjob that was given up with its node may live on: the batch system ends nothing there.

    The workers are told to; until they have, or have long been silent, it has not ended for us, and nothing begins
    elsewhere.
    """
    if subjob.role == SubjobRole.RIGID or subjob.state != SubjobState.RUNNING:
        return False
    gone = {o.worker_id for o in world.operations(OperationKind.EXIT) if finished([o])}
    if not any(_is_heard(world.ctx, w) for w in world.workers_of(subjob.id) if w.id not in gone):
        return False
    setbacks.give_up(world, subjob, "the batch system has given it up with its node")
    return True


def _started(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> None:
    ctx, job = world.ctx, world.job
    subjob.start_s = _start(ctx, subjob, seen)
    end_s = planned_end(subjob.start_s, seen)
    subjob.end_s = end_s if end_s is not None else subjob.start_s + subjob.walltime_s
    subjob.nodes = list(seen.nodes)
    move_subjob(ctx.session, subjob, SubjobState.RUNNING, ctx.now, nodes=list(seen.nodes))
    if subjob.role == SubjobRole.STANDBY:
        release(world, subjob, "somebody else has let it begin, and it is not its turn")
        return
    if subjob.role == SubjobRole.RIGID:
        subjob.reason = ""
        subjob.processors = seen.processors or subjob.processors
        if not job.walltime_s and seen.walltime_s:
            subjob.walltime_s = seen.walltime_s
        if job.state == JobState.WAITING:
            _rigid_runs(world, subjob)
            gaps.begun(job, subjob)
            standby.plan(world)
        return
    if subjob.role == SubjobRole.SUBJOB and not subjob.releasing:
        j0 = world.placeholder
        if JobState(job.state) in TERMINAL_JOB or (j0 is not None and j0.id in job.members):
            release(world, subjob, "it came too late")
        else:
            # What moves as a whole leaves the old place for the new one.
            whole = node_limit.node_room(world, Situation.RUNNING) is not None and node_limit.can_move(world)
            job.members = [subjob.id] if whole else [*job.members, subjob.id]


def _rigid_runs(world: JobWorld, subjob: Subjob) -> None:
    if world.job.start_s is None:  # of a job that was put back into the queue the first one stays
        world.job.start_s = subjob.start_s
    move_job(world.ctx.session, world.job, JobState.RUNNING, world.ctx.now)


def _still_pending(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> None:
    ctx, job = world.ctx, world.job
    _note_plan(subjob, seen)
    changes.look(world, subjob, seen)
    if subjob.role == SubjobRole.PLACEHOLDER and job.rigid_start_s is None and seen.planned_start_s is not None:
        job.rigid_start_s = seen.planned_start_s
        add_event(
            ctx.session,
            EventKind.PLACEHOLDER_PLANNED,
            ctx.now,
            job_id=job.id,
            subjob_id=subjob.id,
            start_s=seen.planned_start_s,
        )
    if subjob.role != SubjobRole.SUBJOB or subjob.releasing:
        return
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
    setbacks.came_to_nothing(world, subjob, why, started=False, until_s=until_s)
    release(world, subjob, why)


def _ended(world: JobWorld, subjob: Subjob, end: BatchEnd) -> None:
    """One of our batch jobs has ended."""
    ctx, job, state = world.ctx, world.job, end.state
    if state is BatchState.NODE_FAIL and _runs_on(world, subjob):
        return
    subjob.exit_code = end.exit_code
    was_running = subjob.state in STARTED_SUBJOB
    if state is BatchState.PREEMPTED:
        _preempted(world, subjob)
    move_subjob(ctx.session, subjob, SUBJOB_ENDED_AS[state], ctx.now, source=end.source, exit_code=end.exit_code)
    if end.end_s is not None and subjob.start_s is not None:  # its processors were free before this look
        subjob.end_s = min(ctx.now, max(subjob.start_s, end.end_s))
    if subjob.role in AS_ASKED:
        if subjob.role == SubjobRole.RIGID:
            _rigid_ended(world, subjob, end)
        elif state is BatchState.CANCELLED and not subjob.releasing:
            _standby_cancelled(world)
        return
    note_given_back(world, subjob, end.end_s)
    if not subjob.releasing:
        why = f"ended as {subjob.state} before any rank ran"
        setbacks.came_to_nothing(world, subjob, why, started=was_running and state not in _TAKEN_AWAY)
    workers.take_left_behind(world, subjob)
    lives_on_it = subjob.id in job.members or not job.members
    anchor = lives_elsewhere(world, subjob) if subjob.role == SubjobRole.PLACEHOLDER else None
    if anchor is not None and subjob.id in job.members:
        job.members = [anchor.id]
    elif subjob.role == SubjobRole.PLACEHOLDER and state is BatchState.TIMEOUT and lives_on_it and not subjob.releasing:
        setbacks.end_by_time(world, subjob)  # also where its workers have left before, and the job waits again
    setbacks.leave_subjob(world, subjob, end.why)
    if JobState(job.state).terminal or job.state == JobState.ENDING:
        return
    if subjob.role == SubjobRole.ASIDE and state is BatchState.CANCELLED and not subjob.releasing:
        conclude(world, CancelAsked(CANCELLED_THERE))  # its number is the job's
        return
    if subjob.role == SubjobRole.PLACEHOLDER and not subjob.releasing:
        never_ran = not was_running or subjob.state == SubjobState.LOST
        if state is BatchState.CANCELLED or (never_ran and job.state == JobState.RUNNING and job.members):
            setbacks.ensure_placeholder(world)  # the job runs elsewhere, and keeps its way back
    application.advance(world)


_WHOLE = (SubjobRole.RIGID, SubjobRole.PLACEHOLDER)  # the job in its own shape
_RAN = (BatchState.COMPLETED, BatchState.FAILED, BatchState.TIMEOUT)  # whoever ends so has run
_TAKEN_AWAY = (BatchState.CANCELLED, BatchState.PREEMPTED)


def _preempted(world: JobWorld, subjob: Subjob) -> None:
    """Without a grace its workers may have told of their end before anybody knew why: that was no setback."""
    epoch = world.epoch
    warned, subjob.warned_s = subjob.warned, world.ctx.now
    if warned or epoch is None:
        return
    if epoch.state == EpochState.FAILED and subjob.id in epoch.members and not world.workers_of(subjob.id):
        world.job.setbacks = max(0, world.job.setbacks - 1)


def _rigid_ended(world: JobWorld, subjob: Subjob, end: BatchEnd) -> None:
    """A passed-through job ends as its batch job does."""
    job = world.job
    if JobState(job.state).terminal:
        return
    if job.start_s is None:
        job.start_s = subjob.start_s
    said = f"its batch job {subjob.batch_id} ended as {subjob.state}" + (f" ({end.why})" if end.why else "")
    arrays.rest_ended(subjob, end.state)
    if subjob.elements is not None and subjob.elements["ended"]:
        said = subjob.reason = arrays.counted(subjob.elements, 0)
    conclude(world, PassedThroughEnded(end.state, end.exit_code, said, subjob.start_s, end.end_s, subjob.id))


def _standby_cancelled(world: JobWorld) -> None:
    """Somebody has cancelled what stands by. Where that is the job's own batch job, while an attempt in a gap is under
    way, he has cancelled the job; otherwise the next run is submitted after the time-out."""
    attempt = next((subjob for subjob in world.open_subjobs if is_attempt(world.job, subjob)), None)
    if attempt is None or JobState(world.job.state).terminal:
        return
    release(world, attempt, "the job was cancelled at the batch system")
    if SubjobState(attempt.state).terminal:
        conclude(world, CancelAsked(CANCELLED_THERE))


def find_empty_subjobs(ctx: Context, looked_at: Sequence[tuple[JobWorld, Subjob]]) -> None:
    """Subjobs that run, but whose workers do not come: nothing could ever be launched there."""
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

        def give_up(world: JobWorld, subjob: Subjob = subjob) -> None:
            world.job.members = [m for m in world.job.members if m != subjob.id]
            setbacks.came_to_nothing(world, subjob, f"ran, and its workers did not come within {limit:g} s")
            release(world, subjob, f"its workers did not come within {limit:g} s")

        guarded(world, give_up)


def _note_silence(ctx: Context, worker: Worker, silent_s: float) -> None:
    """Keep how long a worker has been silent for the next daemon, lest it begin to count anew. One that is heard of, as
    nearly all are, costs nothing."""
    limits = ctx.settings.limits
    if silent_s > min(SILENT_BEATS * limits.heartbeat_s, limits.worker_silence_s / 4):
        worker.silent_s = silent_s
    elif worker.silent_s is not None:
        worker.silent_s = None


def _suspended(ctx: Context) -> frozenset[str]:
    """Subjobs whose processes the batch system has stopped for a while."""
    return frozenset(ctx.session.scalars(select(Subjob.id).where(Subjob.state == SubjobState.SUSPENDED)))


def find_silent_workers(ctx: Context) -> None:
    """Workers that have not been heard of for too long, though their subjob is said to run."""
    limit = ctx.settings.limits.worker_silence_s
    query = (
        select(Worker, Job)
        .join(Job, Worker.job_id == Job.id)
        .where(Worker.alive, Job.state.in_((JobState.WAITING, JobState.RUNNING, JobState.ENDING)))
        .options(defer(Job.spec))
    )
    stopped = _suspended(ctx)
    for worker, job in list(ctx.session.execute(query)):
        if worker.subjob_id in stopped:  # it cannot speak: its silence begins when it may run on
            ctx.seen[worker.id] = ctx.now
        silent_s = ctx.now - ctx.seen.get(worker.id, ctx.now)
        _note_silence(ctx, worker, silent_s)
        if silent_s <= limit:
            continue
        world = JobWorld(ctx, job)

        def lose(world: JobWorld, worker: Worker = worker) -> None:
            subjob = world.subjob(worker.subjob_id)
            setbacks.lost_worker(world, worker, f"silent for more than {limit:g} s")
            if subjob is not None:
                world.job.members = [m for m in world.job.members if m != subjob.id]
                # Its ranks may still run there: the batch system ends them with the subjob.
                if not subjob.releasing:
                    setbacks.came_to_nothing(world, subjob, f"ran, and its worker on {worker.node} fell silent")
                subjob.releasing = False
                release(world, subjob, f"its worker on {worker.node} is silent")

        guarded(world, lose)
