"""What goes wrong with a placement, and the way back: the last checkpoint, the old place, or waiting again."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.manager.effects import (
    Abandon,
    AdoptStandby,
    AskWhole,
    Conclude,
    Effects,
    LoseWork,
    MoveEpoch,
    MoveJob,
    Order,
    Rate,
    Release,
    StopRanks,
    Want,
    note,
    tell,
)
from ejbd.manager.effects.ends import Again, NothingCameOfIt, PlaceholderEnded, PlacementFailed, ShellLost, TimeUsedUp
from ejbd.manager.facts.homes import lives_elsewhere
from ejbd.manager.facts.jobworld import JobWorld, begins_again, holds_shell
from ejbd.manager.facts.missed import began_s, missed_s, was_away
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing.lending import lends
from ejbd.manager.facts.times import CLOCKS_S
from ejbd.manager.rules.placements import generations, movability
from ejbd.store.models import Epoch, Subjob, Worker
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EpochCode, EventKind, OperationKind, SubjobRole


def fail_epoch(
    world: JobWorld,
    epoch: Epoch,
    code: EpochCode,
    why: str,
    *,
    members: list[str] | None = None,
    theirs: bool = False,
    engines: bool = False,
) -> Effects[None]:
    """Give a placement up and go back to the last checkpoint, on `members` or on where the ranks were before.

    `theirs`: it is the batch system's doing (a preemption), which is no setback of the job. `engines`: it is the
    checkpoint engine's doing. Then the job has not failed before it has failed without that engine, too.
    """
    ctx, job = world.ctx, world.job
    yield StopRanks(epoch)
    yield MoveEpoch(epoch, EpochState.FAILED, reason=why, code=code)
    yield LoseWork(job, epoch.work_at_start_s)
    way_back = engines and moving.can_do_without(world, epoch)
    spent = way_back and job.setbacks >= ctx.settings.limits.max_setbacks and not generations.untried(world, epoch)
    decided = yield Conclude(PlacementFailed(job.setbacks, why, theirs, way_back))
    if not isinstance(decided, Again) or decided.whole:
        return
    if spent:
        yield from movability.given_up(world, epoch, why)
        yield from _forget_work(world, epoch)
    if members is None:
        members = list(epoch.fallback) or list(epoch.members)
    running = [s for s in world.open_subjobs if s.state == SubjobState.RUNNING and not s.releasing and not s.warned]
    usable = [s.id for s in running if s.id in members]
    if not usable:  # the old placement is gone: whatever is there
        usable = [s.id for s in running if s.id in epoch.members]
    yield Want(job, usable)
    for subjob in world.open_subjobs:
        if subjob.id in epoch.members and subjob.id not in usable and not subjob.anchor:
            yield Release(subjob, f"epoch {epoch.number} failed on it")


def give_up(world: JobWorld, subjob: Subjob, why: str) -> Effects[None]:
    """Workers in a subjob are told to end what runs there and to leave. A placement on it is over."""
    job, epoch = world.job, world.live_epoch
    if subjob.releasing:
        return
    yield Release(subjob, why)
    yield Want(job, [m for m in job.members if m != subjob.id])
    if epoch is not None and lends(world, epoch, subjob.id):
        return  # no rank was there: they go on without its processors
    if epoch is not None and job.state == JobState.RUNNING and subjob.id in epoch.members:
        survivors = [m for m in epoch.members if m != subjob.id]
        lost = f"{subjob.id} is lost: {why}"
        yield from fail_epoch(world, epoch, EpochCode.SUBJOB_LOST, lost, members=survivors, theirs=subjob.warned)


def lost_worker(world: JobWorld, worker: Worker, why: str, *, left_s: float | None = None) -> Effects[None]:
    """A worker is gone, and its ranks with it. `left_s`: when it left by its own word (absolute seconds); None: it did
    not say."""
    job = world.job
    if not worker.alive:
        return
    yield note(worker, alive=False)
    yield tell(EventKind.WORKER_LOST, job_id=job.id, subjob_id=worker.subjob_id, node=worker.node, reason=why)
    epoch = world.live_epoch
    hit = epoch is not None and any(seat.worker == worker.id for seat in epoch.placement)
    yield Abandon(worker, why)
    leads = job.state in (JobState.WAITING, JobState.RUNNING) and job.lead_worker == worker.id
    if leads:
        yield note(job, lead_worker=None)
    if (yield from end_if_time_is_up(world, [worker.subjob_id], left_s)):
        return
    if leads and job.state == JobState.RUNNING and holds_shell(job):
        home = world.subjob(worker.subjob_id)
        if home is not None and home.role == SubjobRole.PLACEHOLDER and home.state == SubjobState.CANCELLED:
            yield from ensure_placeholder(world)  # by a user or a script: to them its number is the job's
            if job.state != JobState.RUNNING:
                return
        said = f"the subjob that held the script was lost: {why}"
        settled = left_s is None or not (yield from _waits_for_word(world, worker.subjob_id))
        if settled and not (yield from _shell_begins_again(world, said)):
            return
    if hit and epoch is not None and EpochState(epoch.state).live and job.state == JobState.RUNNING:
        ranks = [seat.rank for seat in epoch.placement if seat.worker == worker.id]
        if any(str(rank) not in epoch.exits for rank in ranks):
            survivors = [m for m in epoch.members if m != worker.subjob_id]
            there = world.subjob(worker.subjob_id)
            theirs = there is not None and there.warned
            yield from fail_epoch(
                world,
                epoch,
                EpochCode.WORKER_LOST,
                f"{len(ranks)} ranks lost with the worker on {worker.node}",
                members=survivors,
                theirs=theirs,
            )


def _shell_begins_again(world: JobWorld, said: str) -> Effects[bool]:
    """Whether the job goes on without the shell that it has lost: the next lead begins its script again.

    Of a launch that is under way the placement counts as the setback, if it was lost, too.
    """
    job = world.job
    counted = world.launch is not None
    decided = yield Conclude(ShellLost(said, begins_again(job), counted, job.setbacks))
    return isinstance(decided, Again) and not decided.whole


def _waits_for_word(world: JobWorld, j0: str) -> Effects[bool]:
    """J0's lead has left: whether the batch system has yet to say how J0 ended. The job may have been cancelled.

    Nothing can begin there any more, and what is left there is told to leave, too.
    """
    home = world.placeholder
    if home is None or home.id != j0:
        return False
    for worker in world.workers_of(j0):
        yield Order(worker, OperationKind.EXIT, {})
    return True


def end_if_time_is_up(world: JobWorld, subjobs: list[str], at_s: float | None = None) -> Effects[bool]:
    """End the job where one of `subjobs`, in which something ended at `at_s` (now), has used up the job's own time.

    Then there is no way back: J0 in the queue once more would give the job its walltime twice. And what ended there, in
    whatever way, was ended by the limit.
    """
    home = next((s for s in world.subjobs if s.id in subjobs and _time_is_up(world, s, at_s)), None)
    if home is not None:
        yield from end_by_time(world, home)
    return home is not None


def _time_is_up(world: JobWorld, home: Subjob, at_s: float | None) -> bool:
    """Whether the job's time ends with that of `home`, and did at `at_s`: on J0, and where an ordinary script lives.

    What the batch system has said comes before any clock: what was cancelled, or lost, was so before its limit.
    """
    job = world.job
    if job.state not in (JobState.WAITING, JobState.RUNNING) or home.start_s is None or home.releasing:
        return False
    if home.state in (SubjobState.CANCELLED, SubjobState.LOST):
        return False
    on_j0 = home.role == SubjobRole.PLACEHOLDER and (home.id in job.members or not job.members)
    on_j0 = on_j0 and world.placeholder in (home, None)  # and not on an earlier one of a job that was queued again
    on_j0 = on_j0 and lives_elsewhere(world, home) is None
    shell = home.anchor and job.state == JobState.RUNNING and job.script_run > 0 and holds_shell(job)
    # A limit that was shortened is left to the batch system's own word.
    limit_s = home.start_s + home.walltime_s
    ended_s = home.end_s if SubjobState(home.state).terminal and home.end_s is not None else world.ctx.now
    if home.state == SubjobState.TIMEOUT:
        limit_s = min(limit_s, ended_s)
    when_s = world.ctx.now if at_s is None or at_s < home.start_s - CLOCKS_S else min(at_s, world.ctx.now)
    return (on_j0 or shell) and min(when_s, ended_s) >= limit_s - CLOCKS_S


def end_by_time(world: JobWorld, home: Subjob) -> Effects[None]:
    """The job has used up its time, as it would have by itself; what passed of it without the job is not the job's."""
    if home.role == SubjobRole.SUBJOB:
        yield Conclude(TimeUsedUp("its subjob", home.walltime_s))
        return
    end = TimeUsedUp(
        "it",
        home.walltime_s,
        began=began_s(world, home) is not None,
        missed_s=missed_s(world, home),
        away=was_away(world, home),
        again=not holds_shell(world.job),
        setbacks=world.job.setbacks,
    )
    yield Conclude(end)


MISSED_PART = 0.1  # of a J0's time, gone before the job began: too much for a script that can begin only once


def gives_back_late(world: JobWorld, j0: Subjob) -> Effects[bool]:
    """Give back a J0 of which too much passed while no daemon was there, if what begins there can begin only once."""
    if not holds_shell(world.job) or world.job.script_run or began_s(world, j0) is not None:
        return False
    missed = missed_s(world, j0)
    if missed <= MISSED_PART * j0.walltime_s:
        return False
    why = f"{missed:.0f} of its {j0.walltime_s:g} s passed while no daemon was there, and its script begins only once"
    yield Release(j0, why)
    yield from ensure_placeholder(world)
    return True


def leave_subjob(world: JobWorld, subjob: Subjob, said: str = "") -> Effects[None]:
    """A subjob has ended: no ranks of the job are wanted there. `said`: the batch system's word, where it says more."""
    for worker in world.workers_of(subjob.id):
        yield from lost_worker(world, worker, f"its subjob ended ({said or subjob.state})")
    if subjob.id in world.job.members:
        yield Want(world.job, [m for m in world.job.members if m != subjob.id])


def back_to_waiting(world: JobWorld, why: str) -> Effects[None]:
    """Nothing runs any more: wait for J0 or for another window, with the progress of the last checkpoint."""
    job = world.job
    lost = job.script_run > 0 and holds_shell(job) and not (begins_again(job) and job.lead_worker is None)
    said = f"{why}, and the script cannot be started again behind its launches"
    if lost and not (yield from _shell_begins_again(world, said)):
        return
    yield MoveJob(job, JobState.WAITING, setback=True, reason=why)
    yield Rate(job, 0.0)
    yield note(job, lead_worker=None)
    yield Want(job, [])
    for subjob in world.open_subjobs:
        if subjob.role == SubjobRole.SUBJOB or _was_left(world, subjob):
            yield Release(subjob, why)
    yield from ensure_placeholder(world)


def _was_left(world: JobWorld, j0: Subjob) -> bool:
    """Whether the job has just left a J0 that will end before its time: it needs another one."""
    noted = (world.job.walltimes or {}, world.job.spec.get("chain") or {})  # ejbd.manager.rules.learning.retrying
    saved = any(one.get("left") == j0.id for one in noted)
    return j0.state == SubjobState.RUNNING and (saved or j0.warned or (world.cut_short(j0) and _was_placed(world, j0)))


def ensure_placeholder(world: JobWorld) -> Effects[None]:
    """J0: the job in its original shape, so that it never fares worse than it would have without EJB.

    Where the last one was lost it is asked for again, with pauses, and not for ever. A loss counts as a setback once:
    here, unless a placement on it has failed and was counted.
    """
    job = world.job
    if world.placeholder is not None:
        return
    gone = [s for s in world.subjobs if s.role == SubjobRole.PLACEHOLDER]
    lost = gone[-1] if gone and not _given_up(world, gone[-1]) else None
    if lost is None:
        yield from _ask_whole(world, "the last one is given back")
        return
    end = PlaceholderEnded(
        state=SubjobState(lost.state),
        released=lost.releasing,
        counted=lost.warned or _was_placed(world, lost) or missed_s(world, lost) > 0.0,
        waiting=job.state == JobState.WAITING or not job.members,
        setbacks=job.setbacks,
        id=lost.id,
    )
    decided = yield Conclude(end)
    if isinstance(decided, Again) and not decided.whole:
        yield tell(
            EventKind.PLACEHOLDER_AGAIN,
            job_id=job.id,
            setbacks=job.setbacks,
            pause_s=decided.after_s,
            reason=decided.reason,
        )
        yield from _ask_whole(world, decided.reason, decided.after_s)


def _ask_whole(world: JobWorld, why: str, after_s: float = 0.0) -> Effects[None]:
    """J0 anew: of a chain of place holders the one that has been queued ahead, which may begin now."""
    chained = world.job.spec.get("chain") is not None and not after_s
    if not chained or (yield AdoptStandby(world.job.walltime_s, why)) is None:
        yield AskWhole(after_s)


def _given_up(world: JobWorld, j0: Subjob) -> bool:
    """Whether a J0 was given back since the job ran elsewhere without it."""
    if not j0.releasing:
        return False
    end_s = j0.end_s if SubjobState(j0.state).terminal and j0.end_s is not None else world.ctx.now
    return any(
        j0.id not in epoch.members
        and epoch.running_s is not None
        and epoch.running_s <= end_s
        and (epoch.ended_s is None or epoch.ended_s >= end_s)
        for epoch in _epochs(world)
    )


def _was_placed(world: JobWorld, j0: Subjob) -> bool:
    return any(j0.id in epoch.members for epoch in _epochs(world))


def _epochs(world: JobWorld) -> list[Epoch]:
    return list(world.ctx.session.scalars(select(Epoch).where(Epoch.job_id == world.job.id)))


MOST_KEPT_OUT_S = 3600.0  # before another subjob is asked for, however far away the batch system plans the last one


def came_to_nothing(
    world: JobWorld, subjob: Subjob, why: str, *, started: bool = True, until_s: float | None = None
) -> Effects[None]:
    """A subjob is over, or given up, before a placement ran on it: no other before a pause that grows.

    `started`: the batch system had started it, and it was not taken away. `until_s`: what keeps it from starting
    will not be gone before (absolute seconds).
    """
    job = world.job
    if subjob.role != SubjobRole.SUBJOB or subjob.joined:
        return
    decided = yield Conclude(NothingCameOfIt(job.failed_starts, started, f"{subjob.id} {why}"))
    yield note(job, failed_starts=job.failed_starts + 1)
    if isinstance(decided, Again) and not decided.whole:
        kept_out_s = 0.0 if until_s is None else min(until_s - world.ctx.now, MOST_KEPT_OUT_S)
        yield note(job, not_before_s=world.ctx.now + max(decided.after_s, kept_out_s))


def start_over(world: JobWorld, epoch: Epoch, why: str) -> Effects[None]:
    """Give up what the present launch has done; the next placement begins it anew."""
    yield StopRanks(epoch)
    yield MoveEpoch(epoch, EpochState.FAILED, reason=why, code=EpochCode.BEGUN_ANEW)
    yield from _forget_work(world, epoch)


def _forget_work(world: JobWorld, epoch: Epoch) -> Effects[None]:
    job, launch = world.job, world.launch
    yield note(epoch, restart_from=None, fallback=[])
    yield note(job, incarnation=job.incarnation + 1)
    yield LoseWork(job, launch.work_at_start_s if launch else 0.0)
