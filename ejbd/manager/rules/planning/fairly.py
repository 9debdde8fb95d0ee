"""Users' turns: the waiting jobs of a queue that tells users apart, in a fair order (`ejbd.core.fairshare`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ejbd.core.fairshare import in_fair_order
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.listing.rows import JobRow
from ejbd.manager.facts.times import work_now
from ejbd.store.models import Job
from ejbd.store.states import JobState


def half_lives_s(ctx: Context, queues: set[str]) -> dict[str, float]:
    """Queue -> after how long half of what a user has used is forgotten, where users are told apart at all."""
    found = {queue: getattr(ctx.queue_settings(queue).parameters, "fair_half_life_s", 0.0) for queue in queues}
    return {queue: float(seconds) for queue, seconds in found.items() if seconds > 0}


def fairly(ctx: Context, roster: Roster, in_turn: Sequence[JobRow]) -> list[JobRow]:
    """Jobs that come in their policies' order. Those of a queue that wait are changed on the places that they have."""
    queues = half_lives_s(ctx, {row.queue for row in roster.jobs.values()})
    ctx.memory.usage.look(ctx.session, roster.jobs, roster.subjobs, ctx.now, queues)
    ordered = list(in_turn)
    for queue in queues:
        places = [at for at, row in enumerate(ordered) if row.queue == queue and row.state == JobState.WAITING]
        account = ctx.memory.usage.accounts[queue]
        waiting = in_fair_order(
            [ordered[at] for at in places],
            lambda row: str(row.user),
            lambda row: row.processes * max(0.0, row.walltime_s - work_now(cast(Job, row), ctx.now)),
            account.of,
        )
        for at, row in zip(places, waiting, strict=True):
            ordered[at] = row
    return ordered
