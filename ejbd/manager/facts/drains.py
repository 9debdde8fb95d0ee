"""Drains and reservations: what is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypedDict

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, ClusterView, SiteReservation
from ejbd.manager.facts.context import Context
from ejbd.store.models import Drain, Subjob
from ejbd.store.states import STARTED_SUBJOB
from ejbd.wire.hostlists import fold
from ejbd.wire.kinds import SubjobRole

WHAT = "drain"  # of a SiteReservation that is one of ours


class ToldDrain(TypedDict):
    """Nodes that are drained. Times to come are what is planned; None: not known.

    `elastic`: jobs of EJB that still run there; `stay`: those of them that are not moved. `others`: batch jobs there
    that are not EJB's to move.
    """

    nodes: str
    by_s: float
    asked_s: float
    asked_by: str
    elastic: list[str]
    stay: list[str]
    others: list[str]
    elastic_free_s: float | None
    free_s: float | None


def reservations(session: Session) -> tuple[SiteReservation, ...]:
    """What is drained, as windows see it: from when it was asked for, without an end."""
    return tuple(
        SiteReservation(f"by {row.asked_by}", row.asked_s, math.inf, tuple(row.nodes), what=WHAT)
        for row in session.scalars(select(Drain).order_by(Drain.id))
    )


def with_drains(view: ClusterView, drained: tuple[SiteReservation, ...]) -> tuple[SiteReservation, ...]:
    """The view's reservations with `drained` in the place of what it knew of drains."""
    return (*(one for one in view.site_reservations if one.what != WHAT), *drained)


def elastic_on(session: Session) -> dict[str, list[str]]:
    """Of subjobs that have started: their nodes."""
    query = select(Subjob.id, Subjob.nodes).where(Subjob.state.in_(STARTED_SUBJOB), Subjob.role != SubjobRole.RIGID)
    return {id: list(nodes) for id, nodes in session.execute(query)}


def told(ctx: Context, view: ClusterView) -> list[ToldDrain]:
    """Every drain: the jobs that are still there, and when the nodes should be free."""
    query = select(Subjob).where(Subjob.state.in_(STARTED_SUBJOB), Subjob.role != SubjobRole.RIGID)
    ours = list(ctx.session.scalars(query))
    found: list[ToldDrain] = []
    for row in ctx.session.scalars(select(Drain).order_by(Drain.id)):
        nodes = set(row.nodes)
        elastic = [s for s in ours if nodes & set(s.nodes)]
        tags = {s.tag for s in elastic}
        others = [j for j in view.jobs if j.state.holds_processors and nodes & set(j.nodes) and j.mark not in tags]
        found.append(
            {
                "nodes": fold(row.nodes),
                "by_s": row.by_s,
                "asked_s": row.asked_s,
                "asked_by": row.asked_by,
                "elastic": sorted({s.job_id for s in elastic}),
                "stay": sorted({s.job_id for s in elastic if s.leave_by_s is None}),
                "others": [job.id for job in others],
                "elastic_free_s": row.free_s if not elastic else latest(s.leave_by_s or s.end_s for s in elastic),
                "free_s": ctx.now if not elastic and not others else free_at_s(elastic, others),
            }
        )
    return found


def free_at_s(elastic: Sequence[Subjob], others: Sequence[BatchJobView]) -> float | None:
    return latest([*(s.leave_by_s or s.end_s for s in elastic), *(job.end_s for job in others)])


def latest(ends: Iterable[float | None]) -> float | None:
    """The last of them; None where one is not known."""
    known = list(ends)
    return None if any(end is None for end in known) else max((end for end in known if end is not None), default=None)


def kept_off(view: ClusterView | None, processors: int, queue: str, *, must: bool) -> tuple[str, ...]:
    """The nodes that a submission is to stay off. Not `must`: only where the rest of the queue is wide enough."""
    if view is None:
        return ()
    drained = {name for one in view.site_reservations if one.what == WHAT for name in one.nodes}
    left = sum(node.processors for node in view.nodes if queue in node.queues and node.name not in drained)
    return tuple(sorted(drained)) if must or left >= processors else ()
