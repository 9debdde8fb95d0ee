"""What runs on the cluster and what is planned there, as one user may see it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.room.windows import free_ahead
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView
from ejbd.store.models import Epoch, Job, Subjob
from ejbd.store.queries import open_or_ended
from ejbd.store.states import LIVING_JOB, TERMINAL_SUBJOB, EpochState
from ejbd.wire.hostlists import fold, natural
from ejbd.wire.kinds import J0_ROLES

MOST_PAST = 5000  # subjobs that have ended
MOST_LEVELS = 1000  # of a queue's room ahead


class BarKind(StrEnum):
    """What processors are held, or planned, for."""

    ELASTIC = "elastic"  # a batch job of EJB's
    J0 = "j0"  # a place holder that waits, where the batch system means to start it
    OTHER = "other"  # a batch job that is not EJB's
    PLANNED = "planned"  # another one that waits, where the batch system means to start it
    RESERVATION = "reservation"  # a site's, or a drain


class ToldBar(TypedDict):
    """Processors over time. `job`, `name` and `user` are empty where the caller may not see the job.

    `start_s`, `end_s`: seconds since the epoch; `end_s` None: without an end, or not known. `degree` is that of
    over-subscription, 0 where no rank runs. `nodes` is a list as `n[1-3]`, empty where it is not known.
    """

    kind: BarKind
    job: str
    name: str
    user: str
    processors: int
    nodes: str
    start_s: float
    end_s: float | None
    degree: int
    mine: bool


class ToldNodes(TypedDict):
    """Nodes that stand beside each other and are alike."""

    nodes: str
    count: int
    processors: int
    usable: bool
    state: str


class ToldLevel(TypedDict):
    """So many processors are free from a time on (seconds since the epoch), until the next level."""

    from_s: float
    free: int


class ToldRoom(TypedDict):
    """What a queue has free from the last poll on, by planned ends, planned starts and what the site keeps.

    `levels`: the first is that of now; none where nothing is known of it.
    """

    queue: str
    total: int
    levels: list[ToldLevel]


class ToldCluster(TypedDict):
    """The cluster as the last poll saw it."""

    at_s: float
    processors: int
    free: int
    nodes: list[ToldNodes]
    bars: list[ToldBar]
    rooms: list[ToldRoom]


def told_cluster(session: Session, view: ClusterView, user: str, sees_all: bool, since_s: float) -> ToldCluster:
    """What runs and is planned, and EJB's subjobs that ended after `since_s`.

    Jobs of others are processors that are held, without a name: unless `sees_all` nothing else of them is told.
    """
    by_tag, whole = _subjobs(session, since_s), _whole(view)
    degrees = _degrees(session)
    bars: list[ToldBar] = []
    shown: set[str] = set()

    def bar(
        kind: BarKind,
        nodes: Iterable[str],
        processors: int,
        start_s: float,
        end_s: float | None,
        ours: _Ours | None = None,
    ) -> ToldBar:
        job = ours if ours is not None and (sees_all or ours.user == user) else None
        kind = kind if job is not None or kind not in (BarKind.ELASTIC, BarKind.J0) else _OF_OTHERS[kind]
        return {
            "kind": kind,
            "job": job.job if job is not None else "",
            "name": job.name if job is not None else "",
            "user": job.user if job is not None else "",
            "processors": processors,
            "nodes": _folded(tuple(nodes)),
            "start_s": start_s,
            "end_s": end_s,
            "degree": degrees.get(job.job, 0) if job is not None else 0,
            "mine": ours is not None and ours.user == user,
        }

    for one in view.jobs:
        ours = by_tag.get(one.mark)
        if ours is not None:
            shown.add(ours.subjob)
        found = _bar_of(one, view, ours)
        if found is None:
            continue
        kind, held, start_s, end_s = found
        made = bar(kind, held, one.processors, start_s, end_s, ours)
        if ours is None and sees_all:
            made["job"], made["name"], made["user"] = one.id, one.name, one.user
        bars.append(made)
    for one_of in by_tag.values():
        if one_of.subjob not in shown and one_of.start_s is not None and one_of.state in TERMINAL_SUBJOB:
            nodes = map(str, one_of.nodes)
            past = bar(BarKind.ELASTIC, nodes, one_of.processors, one_of.start_s, one_of.end_s, one_of)
            bars.append({**past, "degree": 0})
    for kept in view.site_reservations:
        end_s = kept.end_s if math.isfinite(kept.end_s) else None
        about = bar(BarKind.RESERVATION, kept.nodes, kept.processors or 0, kept.start_s, end_s)
        bars.append({**about, "name": kept.what})
    return {**whole, "bars": bars}


_last: tuple[ClusterView, ToldCluster] | None = None


def _whole(view: ClusterView) -> ToldCluster:
    """What is the same for all that ask, without bars: made once a poll."""
    global _last
    known = _last
    if known is None or known[0] is not view:
        made: ToldCluster = {
            "at_s": view.time_s,
            "processors": sum(node.processors for node in view.nodes),
            "free": sum(node.free for node in view.nodes if node.usable),
            "nodes": _nodes(view.nodes),
            "bars": [],
            "rooms": [_room(view, queue) for queue in view.queues],
        }
        known = _last = view, made
    return known[1]


def _room(view: ClusterView, queue: QueueView) -> ToldRoom:
    found = free_ahead(view, queue.name, view.time_s)
    levels: list[ToldLevel] = []
    if found is not None:
        free, changes = found
        levels.append({"from_s": view.time_s, "free": free})
        for at_s, more in changes[:MOST_LEVELS]:
            free += more
            levels.append({"from_s": max(at_s, view.time_s), "free": max(0, free)})
    levels = [one for one in levels if math.isfinite(one["from_s"])]
    return {"queue": queue.name, "total": queue.total_processors, "levels": levels}


_OF_OTHERS = {BarKind.ELASTIC: BarKind.OTHER, BarKind.J0: BarKind.PLANNED}


def _bar_of(
    one: BatchJobView, view: ClusterView, ours: _Ours | None
) -> tuple[BarKind, tuple[str, ...], float, float | None] | None:
    if one.state.holds_processors:
        kind = BarKind.ELASTIC if ours is not None and ours.elastic else BarKind.OTHER
        return kind, one.nodes, one.start_s if one.start_s is not None else view.time_s, one.end_s
    if one.state is not BatchState.PENDING or one.planned_start_s is None:
        return None
    end_s = None if one.walltime_s is None else one.planned_start_s + one.walltime_s
    is_j0 = ours is not None and ours.role in J0_ROLES
    return BarKind.J0 if is_j0 else BarKind.PLANNED, one.planned_nodes, one.planned_start_s, end_s


class _Ours(NamedTuple):
    """A subjob with its job, of which no more is read than is told: requests, which are JSON, take longer than that."""

    subjob: str
    tag: str
    role: str
    state: str
    nodes: list[Any]
    processors: int
    start_s: float | None
    end_s: float | None
    job: str
    name: str
    user: str
    elastic: bool


_COLUMNS = (
    *(Subjob.id, Subjob.tag, Subjob.role, Subjob.state, Subjob.nodes, Subjob.processors, Subjob.start_s),
    *(Subjob.end_s, Job.id, Job.name, Job.user, Job.elastic),
)


def _subjobs(session: Session, since_s: float) -> dict[str, _Ours]:
    """EJB's subjobs that have not ended, or ended of late, by their tags."""
    rows = (
        select(*_COLUMNS)
        .join(Job, Job.id == Subjob.job_id)
        .where(Subjob.batch_id.is_not(None), open_or_ended(Subjob, since_s))
    )
    found: dict[str, _Ours] = {}
    for row in session.execute(rows.order_by(Subjob.created_s.desc()).limit(MOST_PAST)):
        one = _Ours(*row)
        found.setdefault(one.tag, one)
    return found


def _degrees(session: Session) -> dict[str, int]:
    rows = select(Epoch.job_id, Epoch.size, Epoch.processors).join(Job, Job.id == Epoch.job_id)
    rows = rows.where(Job.state.in_(LIVING_JOB), Epoch.state == EpochState.RUNNING)
    return {row.job_id: math.ceil(row.size / max(1, row.processors)) for row in session.execute(rows)}


def _nodes(nodes: Iterable[NodeView]) -> list[ToldNodes]:
    """In the order of their names, alike ones together."""
    found: list[ToldNodes] = []
    names: list[str] = []
    like: tuple[int, bool, str] | None = None
    for node in [*sorted(nodes, key=lambda one: natural(one.name)), None]:
        this = None if node is None else (node.processors, node.usable, node.state)
        if like is not None and this != like:
            told = _folded(tuple(names))
            found.append(
                {"nodes": told, "count": len(names), "processors": like[0], "usable": like[1], "state": like[2]}
            )
            names = []
        if node is not None:
            names.append(node.name)
        like = this
    return found


@lru_cache(16_384)
def _folded(names: tuple[str, ...]) -> str:
    """Kept: from poll to poll most jobs hold the nodes that they held, and 5,000 nodes take a second to fold."""
    return fold(names)
