"""Elastic jobs give back what they hold over-subscribed as soon as a waiting job would fit into it.

This is checked once a poll before any room is offered, as in the simulator. Both have the same rule:
`ejbd.core.bundling.guard`. The jobs that wait for room are those that the batch system lists so, in its order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from ejbd.core.bundling.giving import givers
from ejbd.core.bundling.guard import COMPUTES_S, LOOKED_AT, longest_coming_s
from ejbd.core.decision import DecisionKind
from ejbd.core.lending import Borrower, Lending
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.room.pools import PlaceHolder, Pool, lending, pools
from ejbd.core.state import ElasticState
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.manager.effects import Effects, GiveBack, Promise
from ejbd.manager.facts import drains
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.lending import left_for_others
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import SubjobRole


@dataclass(frozen=True, slots=True)
class Holder:
    """An elastic job that borrows, and the subjobs that it runs on: their tags by their ids.

    `all_of_it`: what it gives back by a checkpoint, `folded`: what in place; None where it does not.
    """

    job: str
    tags: dict[str, str]
    all_of_it: Borrower | None
    folded: Borrower | None

    def gives(self, in_place: bool) -> Borrower | None:
        return self.folded if in_place else self.all_of_it

    def tags_of(self, one: Borrower) -> list[str]:
        """Of what it would give back so."""
        return [tag for id, tag in self.tags.items() if not one.leaves or id in one.leaves]


def anybody_waits(ctx: Context) -> bool:
    """Whether there is any job to give room to: for a poll that would look no further."""
    jobs = ctx.view.jobs if ctx.view is not None else ()
    return any(job.state is BatchState.PENDING and not job.blocked for job in jobs)


def holder(world: JobWorld) -> Holder | None:
    """What a job may be made to give back now; None: it keeps what it holds.

    A job that has begun or resumed just now is left alone for as long as that has cost it.
    """
    ctx, job = world.ctx, world.job
    epoch = world.live_epoch
    if job.state != JobState.RUNNING or epoch is None or epoch.running_s is None or world.moving:
        return None
    if job.id in ctx.promises.in_vain:
        return None
    j0 = world.placeholder
    if j0 is not None and (j0.state == SubjobState.RUNNING or j0.id in job.members):
        return None
    if ctx.now < epoch.running_s + max(world.cost.lambda_s, COMPUTES_S):
        return None
    policy, state = world.policy, _state(world)
    lent = left_for_others(world, epoch)
    folded = policy.folds(state, lent, ctx.now) if lent else None
    all_of_it = policy.borrows(state, ctx.now)
    if folded is None and all_of_it is None:
        return None
    members = [s for s in world.open_subjobs if s.id in job.members and s.state == SubjobState.RUNNING]
    return Holder(job.id, {subjob.id: subjob.tag for subjob in members}, all_of_it, folded)


def look(world: JobWorld, found: list[Holder]) -> None:
    """Add a job that may be made to give back what it holds."""
    one = holder(world)
    if one is not None:
        found.append(one)


def asked_back(ctx: Context, holders: Sequence[Holder]) -> list[tuple[str, Lending]]:
    """The jobs that are asked to give back, and what each of them is asked by. Those of one pool after another."""
    view = ctx.view
    if view is None or not holders:
        return []
    # For an operator EJB keeps its own jobs off nodes: they are free for all others, but no J0 is helped onto them.
    drained = {name for one in view.site_reservations if one.what == drains.WHAT for name in one.nodes}
    view = replace(view, site_reservations=drains.with_drains(view, ()))
    ours = _ours(ctx, view)
    running = {job.mark: job for job in view.jobs if job.state.holds_processors and job.mark}
    leaves = [running[tag] for tag in ours.leaving if tag in running]
    found: list[tuple[str, Lending]] = []
    left = list(holders)
    for pool in pools(view, ctx.now, LOOKED_AT, ours.subjobs):
        placeholders = _placeholders(ctx, pool, ours.served)
        promised = ctx.promises.free_for({job.id for job in pool.waiting})
        vain = set(ctx.promises.in_vain).union(() if drained.isdisjoint(pool.nodes) else placeholders)
        for in_place in (True, False):  # what costs no checkpoint comes first
            some = [(gives, one.tags_of(gives)) for one in left if (gives := one.gives(in_place)) is not None]
            if not some:
                continue
            borrowers = [(gives, [running[tag] for tag in tags if tag in running]) for gives, tags in some]
            what = lending(pool, placeholders, vain, borrowers, leaves, _asked(pool, ours), promised)
            gone = givers(what)
            found += [(id, what) for id in gone]
            leaves += [job for one, jobs in borrowers if one.job in gone for job in jobs]
            left = [one for one in left if one.job not in gone]
    return found


def give_back(world: JobWorld, what: Lending) -> Effects[None]:
    """Ask the policy of a job that is asked to give back, and carry it out; nothing where it has changed since."""
    ctx = world.ctx
    if holder(world) is None:
        return
    settings = ctx.queue_settings(world.job.queue)
    question = Question(
        Situation.ASKED_BACK, _state(world), (), ctx.now, world.parameters(), settings.policy, lending=what
    )
    decision = question.answer()
    if decision.kind not in (DecisionKind.SUSPEND, DecisionKind.LEAVE):
        return
    to = givers(what)[world.job.id]
    held = next(one.held for one in what.borrowers if one.job == world.job.id)
    yield GiveBack(question, decision, to.id)
    coming_s = longest_coming_s(question.parameters.lambda_s, question.parameters.start_up_s)
    yield Promise(to.id, to.user, world.job.id, decision.cancel, held, coming_s)


def _state(world: JobWorld) -> ElasticState:
    can_move = node_limit.can_move(world)
    return world.elastic_state(can_move, node_limit.node_room(world, Situation.SUBJOB_ENDS))


@dataclass(frozen=True, slots=True)
class _Ours:
    """The daemon's own subjobs, as far as they count.

    `subjobs`: those that wait to start, by batch id, with queue and processors. `planned`: the same of those that were
    not submitted yet. `leaving`: tags of running ones that are being left. `served`: jobs that have any.
    """

    subjobs: dict[str, tuple[str, int]]
    planned: list[tuple[str, int]]
    leaving: list[str]
    served: set[str]


def _ours(ctx: Context, view: ClusterView) -> _Ours:
    waiting = {job.mark: job.id for job in view.jobs if job.state is BatchState.PENDING and _is_ours(job)}
    ours = _Ours({}, [], [], set())
    query = select(
        Subjob.id, Subjob.tag, Subjob.state, Subjob.processors, Subjob.releasing, Subjob.job_id, Job.queue, Job.members
    ).join(Job, Subjob.job_id == Job.id)
    open_ones = (SubjobState.PLANNED, SubjobState.PENDING, SubjobState.RUNNING)
    for row in ctx.session.execute(query.where(Subjob.role == SubjobRole.SUBJOB, Subjob.state.in_(open_ones))):
        if not row.releasing:
            ours.served.add(row.job_id)
        if row.state == SubjobState.RUNNING:
            if row.releasing or row.id not in row.members:
                ours.leaving.append(row.tag)
        elif row.tag in waiting:
            ours.subjobs[waiting[row.tag]] = row.queue, 0 if row.releasing else row.processors
        elif not row.releasing:
            ours.planned.append((row.queue, row.processors))
    return ours


def _placeholders(ctx: Context, pool: Pool, served: Collection[str]) -> dict[str, PlaceHolder]:
    """Jobs that have their J0 among those that wait, by its batch id."""
    waiting = {job.mark: job.id for job in pool.waiting if _is_ours(job)}
    if not waiting:
        return {}
    query = select(Subjob.tag, Subjob.job_id).where(Subjob.role == SubjobRole.PLACEHOLDER, Subjob.tag.in_(waiting))
    return {waiting[row.tag]: PlaceHolder(row.job_id, row.job_id in served) for row in ctx.session.execute(query)}


def _is_ours(job: BatchJobView) -> bool:
    return job.mark.startswith(TAG_PREFIX)


def _asked(pool: Pool, ours: _Ours) -> int:
    """Processors that subjobs will take of a pool as soon as they start."""
    return sum(count for queue, count in (*ours.subjobs.values(), *ours.planned) if queue in pool.queues)
