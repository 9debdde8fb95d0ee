"""Applications that DMTCP cannot checkpoint, or not bring back: how that is found out, and what becomes of the job.

It is found out in one of three ways. The workers *see* in the running processes what DMTCP does not bring back; that
may pass, and they look again. The first checkpoint of an application is *tried* early, when little is lost: the ranks
are stopped, saved and started again where they were. And a checkpoint or a restart *fails* later on, which costs the
work since the start once.

From then on, or for as long as it is seen, the job is planned as one of engine `none` is. It is not moved, and begins
early only where it can be carried to its end on what is free. Elsewhere it waits for J0. What runs is left alone
for as long as it has room. Where it was tried and has failed, jobs that come after it, of the same application, are
planned so from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.policy import Situation
from ejbd.core.question import ask
from ejbd.manager.effects import Effects, ForgetHistory, Release, Remember, Want, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.pauses import pause_s
from ejbd.manager.facts.placing.checkpointing import nodes_without_dmtcp
from ejbd.manager.facts.placing.movability import (
    FAILED,
    NODE,
    PROVED_FAILURES,
    SEEN,
    may_begin_anew,
    moves_failed,
    proved,
    runs_under,
    ways_known,
)
from ejbd.store.models import Epoch, Obstacle, Subjob
from ejbd.wire.kinds import Engine, EventKind, SubjobRole


def seen(world: JobWorld, epoch: Epoch, why: str) -> Effects[None]:
    """A worker saw in the ranks of `epoch` what cannot be moved. They run on where they are."""
    if world.job.engine == "dmtcp" and not world.job.not_movable and runs_under(world, epoch) == "dmtcp":
        yield from _tell_not_movable(world, SEEN, why)


def passed(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """What was seen in the ranks of `epoch` is gone. Where that comes and goes they are moved after a pause."""
    ctx, job = world.ctx, world.job
    ways = ways_known(world)
    if not job.not_movable or ways[-1:] != [SEEN] or runs_under(world, epoch) != "dmtcp":
        return
    yield tell(EventKind.JOB_MOVABLE, job_id=job.id, reason=f"no longer: {job.not_movable}")
    yield note(
        job, not_movable="", move_not_before_s=max(job.move_not_before_s, ctx.now + pause_s(ways.count(SEEN), free=1))
    )


def launch_over(world: JobWorld) -> Effects[None]:
    """A launch of a script has ended: what was seen in its ranks says nothing about those of the next."""
    job = world.job
    if job.not_movable and ways_known(world)[-1:] == [SEEN]:
        reason = f"the launch in which this was seen has ended: {job.not_movable}"
        yield tell(EventKind.JOB_MOVABLE, job_id=job.id, reason=reason)
        yield note(job, not_movable="")


def failed(world: JobWorld, epoch: Epoch, why: str) -> Effects[None]:
    """A checkpoint of `epoch` has ended its ranks, or they did not come back from one."""
    if world.job.engine not in (Engine.DMTCP, Engine.PROFILE) or world.job.not_movable:
        return
    yield tell(EventKind.MOVE_FAILED, job_id=world.job.id, epoch=epoch.number, reason=why)
    if not proved(world) or moves_failed(world) >= PROVED_FAILURES:
        yield from _tell_not_movable(world, FAILED, why)
        if world.job.engine == "dmtcp":  # how long a program takes to stop is a matter of its input, too
            yield from _keep(world, FAILED, why)


def given_up(world: JobWorld, epoch: Epoch, why: str) -> Effects[None]:
    """Nothing that was saved of the ranks of `epoch` comes back: they begin anew, and without DMTCP."""
    job = world.job
    yield tell(EventKind.MOVE_FAILED, job_id=job.id, epoch=epoch.number, reason=why)
    if not job.not_movable:
        yield from _know(world, FAILED, why)


def gave_up(world: JobWorld, epoch: Epoch, why: str) -> Effects[None]:
    """DMTCP itself has ended the ranks of `epoch`, at no checkpoint. Where it cannot do something, it does so again."""
    job = world.job
    if job.not_movable:
        return
    yield tell(EventKind.MOVE_FAILED, job_id=job.id, epoch=epoch.number, reason=why)
    if not proved(world) and moves_failed(world) >= PROVED_FAILURES:
        yield from _know(world, FAILED, why)


def _know(world: JobWorld, how: str, why: str) -> Effects[None]:
    yield from _tell_not_movable(world, how, why)
    yield from _keep(world, how, why)


def _tell_not_movable(world: JobWorld, how: str, why: str) -> Effects[None]:
    job = world.job
    yield note(job, not_movable=why)
    yield tell(EventKind.JOB_NOT_MOVABLE, job_id=job.id, how=how, reason=why)


def _keep(world: JobWorld, how: str, why: str) -> Effects[None]:
    """For the application's next jobs."""
    ctx, job = world.ctx, world.job
    yield Remember(Obstacle(application=job.application, job_id=job.id, at_s=ctx.now, how=how, why=why))
    yield ForgetHistory()


def begins_where(world: JobWorld, nodes: Sequence[str], restart_from: int | None) -> Effects[None]:
    """Ranks are to begin on these nodes. Where one has no DMTCP, and no user has asked for it, they do without: the job
    was taken for one that can be moved before any worker had been seen."""
    job = world.job
    if job.engine != "dmtcp" or world.spec.engine != "auto" or job.not_movable or restart_from is not None:
        return
    why = nodes_without_dmtcp(world.ctx, job.user, nodes)
    if why:
        yield from _tell_not_movable(world, NODE, why)


# -- where it can be ---------------------------------------------------------------------------------------------------


def room_that_lasts(world: JobWorld, members: list[Subjob]) -> Effects[list[Subjob]]:
    """Of the subjobs on which what `may_begin_anew` would, those that carry it to its end; others are given back."""
    if not may_begin_anew(world) or any(s.role == SubjobRole.PLACEHOLDER for s in members):
        return members
    while members:
        ends = ask(world.policy, Situation.SUBJOB_ENDS, world.elastic_state(False), world.ctx.now)
        if ends.begin_s is None:
            break
        for subjob in [s for s in members if s.id in ends.cancel]:
            yield Release(subjob, "it ends before what cannot be moved would")
        members = [s for s in members if s.id not in ends.cancel]
        yield Want(world.job, [s.id for s in members])
    return members
