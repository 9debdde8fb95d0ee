"""Nodes that an operator has EJB leave by a time: `ejb drain`. The batch system itself is told nothing.

From when it is asked for, windows do not offer these nodes, and subjobs and place holders are submitted so that they
stay off them. What runs there and can be moved is taken off in time, as from a subjob that ends at that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.view import ClusterView
from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Delete, Effects, Flush, Insert, Wake, note, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.drains import elastic_on
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.jobspec.hostlists import HINT, hosts
from ejbd.store.models import Drain, Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.store.transitions import job_topic
from ejbd.wire.hostlists import fold
from ejbd.wire.kinds import EventKind, SubjobRole


def parse_nodes(text: str) -> NodeSet:
    """`n[1-3],m7`. Raises EjbError for what names no node."""
    nodes = hosts(text, "")
    if not nodes:
        raise EjbError(Code.INVALID, "no node is named", hint=HINT)
    return nodes


def drain(ctx: Context, view: ClusterView, text: str, by_s: float, by: str) -> Effects[None]:
    """Leave these nodes by `by_s` (epoch seconds). A node that is drained already gets the new time."""
    if not ctx.settings.traits.excludes_nodes:
        raise EjbError(
            Code.UNSUPPORTED,
            "jobs cannot be kept off nodes of this batch system by its submit command",
            hint="drain the nodes there; EJB uses none that is drained",
        )
    nodes = parse_nodes(text)
    known = NodeSet.fromlist([node.name for node in view.nodes], resolver=RESOLVER_NOGROUP)
    if unknown := nodes - known:
        raise EjbError(Code.NOT_FOUND, f"there is no node {unknown}", hint=f"the nodes are: {known}")
    if by_s <= ctx.now:
        raise EjbError(Code.INVALID, "the time by which they are to be free is over", hint="e.g. --by now+30minutes")
    yield from _take_out(ctx.session, nodes)
    row = Drain(nodes=list(nodes), by_s=by_s, asked_s=ctx.now, asked_by=by, free_s=None)
    yield Insert(row)
    yield Flush()
    yield tell(EventKind.DRAIN_ASKED, nodes=str(nodes), by_s=by_s, by=by)
    yield from mark(ctx)


def cancel(ctx: Context, text: str, by: str) -> Effects[None]:
    """Use these nodes again. Raises EjbError (NOT_FOUND) where none of them is drained."""
    nodes = parse_nodes(text)
    gone = yield from _take_out(ctx.session, nodes)
    if not gone:
        raise EjbError(Code.NOT_FOUND, f"none of {nodes} is drained by EJB", hint="`ejb drain` lists what is")
    yield tell(EventKind.DRAIN_CANCELLED, nodes=fold(gone), by=by)
    yield from mark(ctx)


def _take_out(session: Session, nodes: NodeSet) -> Effects[set[str]]:
    """Forget that these nodes are drained; those that were."""
    gone: set[str] = set()
    for row in session.scalars(select(Drain)):
        hit = set(row.nodes) & set(nodes)
        gone |= hit
        if hit == set(row.nodes):
            yield Delete(row)
        elif hit:
            yield note(row, nodes=[name for name in row.nodes if name not in hit])
    yield Flush()
    return gone


def mark(ctx: Context) -> Effects[None]:
    """Note on each subjob that runs on drained nodes by when it has to be left, where its job can be moved.

    What the batch system starts there after the drain was asked for is its own affair, and not taken away again.
    """
    rows = list(ctx.session.scalars(select(Drain)))
    query = select(Subjob, Job).join(Job, Subjob.job_id == Job.id)
    query = query.where(Subjob.state == SubjobState.RUNNING, Subjob.role != SubjobRole.RIGID, Subjob.warned_s.is_(None))
    if not rows:
        query = query.where(Subjob.leave_by_s.is_not(None))
    for subjob, job in ctx.session.execute(query):
        by = [r.by_s for r in rows if (subjob.start_s or ctx.now) <= r.asked_s and set(r.nodes) & set(subjob.nodes)]
        leave_by_s = min(by) if by and node_limit.can_move(JobWorld(ctx, job)) else None
        if subjob.leave_by_s != leave_by_s:
            yield note(subjob, leave_by_s=leave_by_s)
            yield Wake((job_topic(job.id),))
    yield from _note_free(ctx, rows)


def _note_free(ctx: Context, rows: Sequence[Drain]) -> Effects[None]:
    """Tell once of each drain that no elastic job is left on its nodes."""
    open_ones = [row for row in rows if row.free_s is None]
    if not open_ones:
        return
    there = elastic_on(ctx.session)
    for row in open_ones:
        if not any(set(row.nodes) & set(nodes) for nodes in there.values()):
            yield note(row, free_s=ctx.now)
            yield tell(EventKind.DRAIN_FREE, nodes=fold(row.nodes), by_s=row.by_s)
