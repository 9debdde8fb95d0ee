"""A subjob runs once all its workers have come: its job makes use of it then, and not at the next poll.

A poll for each start would be a command for each, and only so many are made (:mod:`ejbd.manager.poll.looks`). When a
batch system began a subjob is known to it alone, and shown by the first poll: a prolog may have run for long before its
workers came. Until then it has begun with the first of these.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.overhead import Hop
from ejbd.core.policy import Situation
from ejbd.core.view import BatchJobView, ClusterView
from ejbd.manager.effects import (
    AdoptAlone,
    BeginOnJ0,
    Effects,
    ForgetHistory,
    LostWorker,
    MoveSubjob,
    Release,
    Want,
    note,
)
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.workernodes import is_one_of
from ejbd.manager.facts.times import CLOCKS_S, planned_end
from ejbd.store.models import Overhead, Subjob
from ejbd.store.states import TERMINAL_JOB, JobState, SubjobState
from ejbd.wire.kinds import SubjobRole

_OF_WORKERS = (SubjobRole.PLACEHOLDER, SubjobRole.SUBJOB)
WHOLE_S = 1.0  # in which batch systems tell their times: a start that is not further off is known better here


def came(world: JobWorld, subjob: Subjob, age_s: float) -> Effects[bool]:
    """As :class:`~ejbd.manager.effects.WorkerCame`. False: only a poll can tell whether the subjob runs."""
    if not _is_waited_for(world, subjob):
        return False
    if not world.all_came(subjob):
        return True
    now, workers = world.ctx.now, world.workers_of(subjob.id)
    began_s = min(now - age_s, *(worker.registered_s for worker in workers))
    asked_s = subjob.submit_s if subjob.submit_s is not None else subjob.created_s
    start_s = max(began_s, asked_s)
    nodes = list(dict.fromkeys(worker.node for worker in workers))
    yield note(subjob, start_s=start_s, end_s=start_s + subjob.walltime_s, nodes=nodes, heard_s=now)
    yield MoveSubjob(subjob, SubjobState.RUNNING, data={"nodes": nodes})
    yield AdoptAlone(subjob)
    if subjob.role == SubjobRole.PLACEHOLDER:
        yield BeginOnJ0(subjob)
    else:
        yield from joins(world, subjob)
    return True


def _is_waited_for(world: JobWorld, subjob: Subjob) -> bool:
    job = world.job
    plain = job.elastic and world.evolving is None and not world.frozen and world.ctx.view is not None
    sent = subjob.state == SubjobState.PENDING and not subjob.releasing and subjob.role in _OF_WORKERS
    return plain and sent and job.state in (JobState.WAITING, JobState.RUNNING)


def joins(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """A subjob that a job has asked for beside J0 runs. An evolving job wants it when its step begins."""
    job, over = world.job, JobState(world.job.state) in TERMINAL_JOB
    if subjob.role != SubjobRole.SUBJOB or subjob.releasing or (world.evolving is not None and not over):
        return
    j0 = world.placeholder
    on_j0 = j0 is not None and j0.id in job.members and not (world.may_widen and not world.others_wait)
    if over or on_j0:
        yield Release(subjob, "it came too late")
        return
    # What moves as a whole leaves the old place for the new one.
    whole = node_limit.node_room(world, Situation.RUNNING) is not None and node_limit.can_move(world)
    yield Want(job, [subjob.id] if whole else [*job.members, subjob.id])


def lose_misplaced_workers(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    """Workers that came before a poll showed the subjob's nodes, and say that they are on others, are not believed."""
    for worker in world.workers_of(subjob.id) if seen.nodes else ():
        if not is_one_of(worker.node, seen.nodes):
            yield LostWorker(worker, f"batch job {subjob.batch_id} has not got its node")


def is_news_to(view: ClusterView, subjob: Subjob) -> bool:
    """Whether a view may be of before a subjob's workers came, or of a moment in which it was not shown as begun."""
    return subjob.heard_s is not None and view.time_s < subjob.heard_s + CLOCKS_S


def shown(world: JobWorld, subjob: Subjob, start_s: float, seen: BatchJobView) -> Effects[None]:
    """The first poll shows it, and that the batch system began it at `start_s`, by our clock."""
    known_s = subjob.start_s if subjob.start_s is not None else start_s
    if start_s <= known_s - WHOLE_S:
        took = select(Overhead).where(Overhead.subjob_id == subjob.id, Overhead.hop == Hop.READY.value)
        for row in world.ctx.session.scalars(took):  # they took longer to come than they could know
            yield note(row, seconds=row.seconds + known_s - start_s)
            yield ForgetHistory()
        yield note(subjob, start_s=start_s)
    yield note(subjob, heard_s=None, nodes=list(seen.nodes))
    yield from lose_misplaced_workers(world, subjob, seen)
    if (end_s := planned_end(subjob.start_s, seen)) is not None:
        yield note(subjob, end_s=end_s)
