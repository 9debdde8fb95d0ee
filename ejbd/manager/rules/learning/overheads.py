"""What starts and ends of subjobs take beside moves is measured: rows of :class:`ejbd.store.models.Overhead`.

When a placement runs, each subjob that is new in it has been started up. When a subjob that ranks were on has ended,
its processors have been given back. What began before this daemon did is left out: it cannot tell when that was.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from ejbd.core.overhead import Hop, Took, expected
from ejbd.manager.effects import Effects, ForgetHistory, Remember
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.history import hops
from ejbd.store.models import Epoch, Event, Job, Overhead, Subjob
from ejbd.wire.kinds import EventKind, JobKind

NEWS = 0.05  # the part by which what is expected has to change before it is told


def note_start_up(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """All ranks of an epoch run: its new subjobs took so long until their workers answered.

    Where nothing was restarted, the ranks took so long from then on.
    """
    now = world.ctx.now
    ready: dict[str, float] = {}
    for subjob in world.subjobs:
        if subjob.id not in epoch.members or subjob.joined or subjob.start_s is None:
            continue
        came = [worker.registered_s for worker in world.workers_of(subjob.id)]
        if came and subjob.start_s >= world.ctx.up_since:
            ready[subjob.id] = max(came)
            yield from _keep(world, Hop.READY, subjob, max(came) - subjob.start_s)
    if len(ready) != len(epoch.members) or epoch.restart_from is not None or world.job.setbacks:
        return  # not all of them are new; or the launch is a part of a move; or there was more to do than to start
    # A script does work of its own before it launches.
    since_s = epoch.created_s if world.job.kind == JobKind.SCRIPT else max(ready.values())
    first = next(subjob for subjob in world.subjobs if subjob.id == epoch.members[0])
    yield from _keep(world, Hop.LAUNCH, first, now - since_s, epoch.processors)


def note_given_back(world: JobWorld, subjob: Subjob, end_s: float | None) -> Effects[None]:
    """A subjob that ranks were on was given back and has ended; `end_s`: when, by the batch system."""
    ctx = world.ctx
    if not subjob.joined or not subjob.releasing:
        return
    since_s = _left(world, subjob)
    if since_s is None or since_s < ctx.up_since:
        return
    # The batch system tells whole seconds of a clock of its own: the end cannot be before, nor later than now.
    free_s = ctx.now if end_s is None else min(ctx.now, max(end_s, since_s))
    yield from _keep(world, Hop.BACK, subjob, free_s - since_s)


def _left(world: JobWorld, subjob: Subjob) -> float | None:
    """When ranks needed a subjob no more.

    That was when the last placement on it ended, at the job's end, or when the next placement ran without it.
    """
    last = world.epoch
    if last is not None and subjob.id in last.members and last.ended_s is not None:
        return last.ended_s
    query = select(Event.at_s).where(
        Event.job_id == world.job.id, Event.kind == EventKind.SUBJOB_RELEASED, Event.subjob_id == subjob.id
    )
    return world.ctx.session.scalars(query.order_by(Event.id.desc()).limit(1)).first()


def _keep(world: JobWorld, hop: Hop, subjob: Subjob, seconds: float, processors: int | None = None) -> Effects[None]:
    """Write one down. It is told only where it changes what is planned with."""
    ctx, job = world.ctx, world.job
    application = job.application if hop is Hop.LAUNCH else ""
    before = ctx.history.hops(hop, job.queue, application)
    yield Remember(
        Overhead(
            hop=hop.value,
            queue=job.queue,
            application=job.application,
            job_id=job.id,
            subjob_id=subjob.id,
            at_s=ctx.now,
            processors=processors or subjob.processors,
            seconds=max(0.0, seconds),
        )
    )
    after = hops(ctx.session, hop, application or job.queue, by_application=bool(application))
    if not before or abs(_expected(after, job) - _expected(before, job)) > NEWS * _expected(before, job):
        yield ForgetHistory()


def _expected(found: Sequence[Took], job: Job) -> float:
    return expected(found, job.processes, 0.0, "").value
