"""Jobs give back what stands in the way of a batch job by a limit of its account, though there is room for it.

First of all their own J0: without their subjobs it would have started. Then others of the same user or account, for
which only what is held over-subscribed is given back. Looked at once a poll, before any room is offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from ejbd.core.bundling.guard import COMPUTES_S, longest_coming_s
from ejbd.core.decision import DecisionKind
from ejbd.core.lending import Standing
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.room.limits import Charged, needs, nodes_width
from ejbd.core.room.windows import windows
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, ClusterView
from ejbd.manager.effects import Effects, GiveBack, Promise
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.room.limits import in_short, shares
from ejbd.store.states import JobState, SubjobState

_LIMITED = attrgetter("limited")


@dataclass(frozen=True, slots=True)
class Way:
    """A job that may go back to waiting: its running subjobs as they are listed, and its J0 ("": not listed)."""

    job: str
    subjobs: tuple[BatchJobView, ...]
    j0: str


def anybody_stands(ctx: Context) -> bool:
    """Whether a limit keeps any job from starting: for a poll that would look no further."""
    return ctx.view is not None and any(map(_LIMITED, ctx.view.jobs))


def look(world: JobWorld, found: list[Way]) -> None:
    """Add a job that may go back to waiting. One that has just begun is left alone for as long as that has cost it."""
    ctx, job, epoch, j0 = world.ctx, world.job, world.live_epoch, world.placeholder
    if job.state != JobState.RUNNING or epoch is None or epoch.running_s is None or world.moving or ctx.view is None:
        return
    if job.id in ctx.promises.in_vain or ctx.now < epoch.running_s + max(world.cost.lambda_s, COMPUTES_S):
        return
    if j0 is not None and (j0.state == SubjobState.RUNNING or j0.id in job.members):
        return
    tags = {s.tag for s in world.open_subjobs if s.id in job.members and s.state == SubjobState.RUNNING}
    listed = {
        seen.mark: seen for seen in ctx.view.jobs if seen.mark in tags or (j0 is not None and seen.mark == j0.tag)
    }
    held = tuple(listed[tag] for tag in tags if tag in listed)
    if held:
        id = listed[j0.tag].id if j0 is not None and j0.tag in listed else ""
        found.append(Way(job.id, held, id))


def asked_to_make_way(ctx: Context, ways: Sequence[Way]) -> list[tuple[str, Standing]]:
    """Elastic jobs in the way of a batch job by a limit, each with that batch job, in the batch system's order."""
    view = ctx.view
    if view is None:
        return []
    left, found = list(ways), []
    for at, job in enumerate(view.jobs):
        if not left:
            break
        if not job.limited or job.state is not BatchState.PENDING or job.id in ctx.promises.in_vain:
            continue
        own = next((way for way in left if way.j0 == job.id), None)
        per_node = nodes_width(view, job.queue.partition(",")[0])
        short = in_short(view, job, per_node)
        if own is None and (not short or (job.foreign and all(limit.own for limit in short))):
            continue
        # Its own first; of others those that hold least.
        others = sorted((way for way in left if way is not own), key=lambda way: sum(s.processors for s in way.subjobs))
        gives: list[Way] = []
        for way in ([own] if own is not None else []) + (others if short else []):
            if way is not own and not any(_counted(limit, way) for limit in short):
                continue
            gives.append(way)
            if _could_start(view, at, job, short, gives, per_node):
                names = tuple(limit.name for limit in short)
                found += [
                    (one.job, Standing(job.id, job.user, job.reason, names, own=one.j0 == job.id)) for one in gives
                ]
                left = [one for one in left if one not in gives]
                break
    return found


def _counted(limit: AccountLimit, way: Way) -> bool:
    return any(limit.counts(one.account, one.qos, one.queue) for one in way.subjobs)


def _could_start(
    view: ClusterView, at: int, job: BatchJobView, short: Sequence[AccountLimit], gives: Sequence[Way], per_node: int
) -> bool:
    """Whether a job would start if these had given back what they hold: the limits, and the room, would let it."""
    given = [one for way in gives for one in way.subjobs]
    for limit in short:
        freed = sum(
            needs(limit, one.processors, one.walltime_s, per_node)
            for one in given
            if limit.counts(one.account, one.qos, one.queue)
        )
        if limit.most - limit.used + freed < needs(limit, job.processors, job.walltime_s, per_node):
            return False
    if not short and not any(shares(job, Charged(one.account, one.qos, one.queue)) for one in given):
        return False
    # What waits behind it may have been planned onto its room, and comes after it again.
    ahead = [one for place, one in enumerate(view.jobs) if place < at or one.state is not BatchState.PENDING]
    queue = job.queue.partition(",")[0]
    room = windows(replace(view, jobs=tuple(ahead)), queue, view.time_s)
    free = room.available(job.walltime_s if job.walltime_s is not None else 0.0)
    return free + sum(one.processors for one in given) >= job.processors


def make_way(world: JobWorld, stands: Standing) -> Effects[None]:
    """Ask the policy of a job that is in the way, and carry it out; nothing where it has changed since."""
    ctx, again = world.ctx, list[Way]()
    look(world, again)
    if not again:
        return
    settings = ctx.queue_settings(world.job.queue)
    limit = node_limit.node_room(world, Situation.SUBJOB_ENDS)
    state = world.elastic_state(node_limit.can_move(world), limit)
    question = Question(Situation.IN_THE_WAY, state, (), ctx.now, world.parameters(), settings.policy, stands=stands)
    decision = question.answer()
    if decision.kind is not DecisionKind.SUSPEND:
        return
    held = sum(one.processors for one in again[0].subjobs)
    yield GiveBack(question, decision, stands.id)
    coming_s = longest_coming_s(question.parameters.lambda_s, question.parameters.start_up_s)
    yield Promise(stands.id, stands.user, world.job.id, decision.cancel, held, coming_s)
