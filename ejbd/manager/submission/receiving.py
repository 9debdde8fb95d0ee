"""New jobs go into the batch system's queue at once; windows are looked at with the next poll."""

from __future__ import annotations

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from ejbd.manager.acts.carrying import carry_out, in_savepoint
from ejbd.manager.acts.executor import SUBMISSIONS_A_PASS
from ejbd.manager.acts.intents import submissions_due
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.queues import kept_back as queues_kept_back
from ejbd.manager.rules.linked import arraysteps, dependencies
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.world import World
from ejbd.store.models import Array, Dependency, Job
from ejbd.store.states import JobState
from ejbd.wire.kinds import JobKind

RECEIVED_AT_ONCE = 8
_ANY = select(
    or_(
        exists().where(Job.state == JobState.RECEIVED),
        exists().where(Dependency.job_id != ""),
        exists().where(Array.changed),
    )
)


class Receiving:
    """`backlog`: more jobs were received than the executor has use for now."""

    def __init__(self, world: World) -> None:
        self.backlog = False
        self._world = world

    def receive(self, session: Session) -> bool:
        """Have J0s of new jobs asked for, and what is passed through; True: there may be more.

        Some at a time, since others wait for the writer too, and in a flood no more than the executor has use for.
        """
        if not session.scalar(_ANY):
            self.backlog = False
            return False
        ctx = self._world.context(session)
        decider = Decider(ctx)
        most = 2 * ctx.settings.limits.submit_concurrency * SUBMISSIONS_A_PASS - submissions_due(session, ctx.now)
        self.backlog = most <= 0
        carry_out(ctx, dependencies.step(ctx))
        more = carry_out(ctx, arraysteps.step(ctx, max(0, min(most, RECEIVED_AT_ONCE))))
        if most <= 0:
            return False  # the executor comes back here once it has made some
        query = select(Job).where(Job.state == JobState.RECEIVED, Job.kind != JobKind.ARRAY)
        query = query.where(Job.id.not_in(select(Dependency.job_id)))
        if ctx.hands.by_user:  # one of each, before the next of any
            query = query.order_by(func.row_number().over(partition_by=Job.user, order_by=Job.seq))
        query = query.order_by(Job.seq).limit(min(most, RECEIVED_AT_ONCE))
        if kept_back := queues_kept_back(session, ctx.now):
            query = query.where(kept_back.takes())
        jobs = list(session.scalars(query))
        for job in jobs:
            in_savepoint(JobWorld(ctx, job, _subjobs=[]), decider.receive)
        return more or (len(jobs) == RECEIVED_AT_ONCE and any(job.state != JobState.RECEIVED for job in jobs))
