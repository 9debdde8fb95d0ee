"""--signal: ranks or script are told some time before the end of their job's time.

That is the end of what the job cannot leave: J0 once it is there, and the subjob in which its shell lives. For a job
that cannot be moved, it is all that it is on. Where ranks can go on elsewhere no end is near, and nothing is sent.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.manager.effects import Effects, Order, tell
from ejbd.manager.facts.homes import is_up
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.ranks import workers_with_ranks
from ejbd.manager.facts.times import walltime_end
from ejbd.options.signals import EndSignal
from ejbd.store.models import Event, Subjob
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EventKind, OperationKind, SubjobRole


def signals_in_time(world: JobWorld) -> Effects[None]:
    """Send the signal that the job asked for, once for each batch job that ends with the job's time.

    At the last poll before it is due, so that it may come a poll early, and is never late for a poll. While no launch
    runs it waits for one, as it does while ranks are on their way.
    """
    asked = world.job.spec.get("signal")
    if not asked or world.job.state != JobState.RUNNING:
        return
    found = end_of_time(world)
    told = EndSignal.read(asked)
    ctx = world.ctx
    if found is None or ctx.now + ctx.settings.poll_s < found[1] - told.ahead_s:
        return
    home, end_s = found
    if _was_told(world, home):
        return
    if (yield from (to_script if told.script else to_ranks)(world, told.number)):
        yield tell(
            EventKind.JOB_SIGNALLED,
            job_id=world.job.id,
            subjob_id=home.id,
            signal=told.name,
            script=told.script,
            end_s=end_s,
        )


def end_of_time(world: JobWorld) -> tuple[Subjob, float] | None:
    """The batch job with which the job's time is over, and when (absolute seconds). None: it can go on after each."""
    job, now = world.job, world.ctx.now
    running = [s for s in world.open_subjobs if s.state == SubjobState.RUNNING and not s.releasing]
    shell = holds_shell(job) and job.script_run > 0
    stays = not node_limit.can_move(world) or (job.overruns > 0 and not shell)
    ends: list[tuple[float, str, Subjob]] = []
    for subjob in running:
        if subjob.id in job.members and (subjob.role == SubjobRole.PLACEHOLDER or stays or (shell and subjob.anchor)):
            ends.append((world.usable_end(subjob), subjob.id, subjob))
        elif shell and subjob.anchor:
            ends.append((walltime_end(subjob, now), subjob.id, subjob))
    if not ends:
        return None
    end_s, _, home = min(ends, key=lambda end: end[:2])
    return home, end_s


def _was_told(world: JobWorld, home: Subjob) -> bool:
    query = select(Event.id).where(Event.job_id == home.job_id, Event.kind == EventKind.JOB_SIGNALLED)
    query = query.where(Event.subjob_id == home.id)
    return world.ctx.session.scalars(query.limit(1)).first() is not None


def to_ranks(world: JobWorld, number: int) -> Effects[bool]:
    """Send a signal to all ranks, where they run; whether they do."""
    epoch = world.epoch
    if epoch is None or epoch.state != EpochState.RUNNING:
        return False
    payload = {"signal": number, "epoch": epoch.number}
    for worker in workers_with_ranks(world, epoch):
        yield Order(worker, OperationKind.SIGNAL, payload, epoch=epoch.number)
    return True


def to_script(world: JobWorld, number: int) -> Effects[bool]:
    """Send a signal to the shell of a script, where it runs; whether it does."""
    leader = world.worker(world.job.lead_worker)
    if leader is None or not is_up(world):
        return False
    yield Order(leader, OperationKind.SIGNAL, {"signal": number, "epoch": None})
    return True
