"""A policy is asked about the end of its job, and may have it queued again: a subscriber to ends."""

from __future__ import annotations

from ejbd.core.decision import DecisionKind
from ejbd.core.policy import Situation
from ejbd.core.question import ask
from ejbd.manager.effects.ends import Again, End, Final, Outcome
from ejbd.manager.facts.auto import is_off
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit


def ask_policy(world: JobWorld, end: End, outcome: Outcome) -> Outcome | None:
    """What the policy makes of the final end of an elastic job: AGAIN queues it anew, as often as setbacks may be."""
    job, ctx = world.job, world.ctx
    if not job.elastic or not isinstance(outcome, Final) or job.setbacks >= ctx.settings.limits.max_setbacks:
        return None
    state = world.elastic_state(node_limit.can_move(world))
    decision = ask(world.policy, Situation.ENDED, state, ctx.now, outcome=outcome.state.value)
    if decision.kind is not DecisionKind.AGAIN:
        return None
    walltime_s = decision.requests[0].length_s if decision.requests else None
    queue = decision.queue if _takes_jobs(ctx, decision.queue) else None
    return Again(reason=decision.reason, setback=True, whole=True, walltime_s=walltime_s, queue=queue)


def _takes_jobs(ctx: Context, name: str) -> bool:
    """Whether an elastic job may go into the queue now: a name that a policy has wrong must not cost the job."""
    queue = ctx.view.queue(name) if ctx.view is not None and name else None
    return queue is not None and not queue.fed_by and not is_off(ctx, name)
