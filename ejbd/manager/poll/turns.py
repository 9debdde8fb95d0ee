"""Which J0s stay in the queue, live: core's rule (:mod:`ejbd.core.bundling.turns`) on what polls show.

A shadow is of the queues that share nodes. It has what waits for them and what runs there, but for EJB's own subjobs:
an elastic job is its J0. How long that would have run is the work that the job had done at its end. The shadow is in
memory, twice where it is not known which nodes are kept for the head of the queue. It is made anew from what is listed
where a daemon starts, and where nodes come or go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ejbd.core.alongside import JOBS_AT_ONCE, Alongside, Listed
from ejbd.core.bundling.turns import STAY_AT_MOST, are_later, beyond_s, is_before
from ejbd.core.view import BatchState, ClusterView, NodeView, Reservations
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.manager.facts.room.turns import Turns
from ejbd.manager.facts.times import work_now
from ejbd.manager.rules.planning import turns as rule
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import SubjobRole

ACTS_AT_ONCE = 50  # J0s that are made to stay or let go at one poll, each by a command of the batch system
_PARTS = (SubjobRole.SUBJOB, SubjobRole.STANDBY, SubjobRole.ASIDE)  # of jobs that are in the shadow as a whole

# Of ten thousand jobs each is asked at every poll.
_OVER = frozenset(state for state in BatchState if state.ended)
_RUN = frozenset(state for state in BatchState if state.holds_processors)
_PENDING = BatchState.PENDING

_Nodes = Mapping[str, Sequence[NodeView]]  # that can be used, by queue


@dataclass(frozen=True, slots=True)
class Wanted:
    """J0s that are to stay from now on, those of which that is to be said again, and those that may go."""

    stay: list[SubjobRow] = field(default_factory=list)
    again: list[SubjobRow] = field(default_factory=list)
    go: list[SubjobRow] = field(default_factory=list)


def pieces(context: Callable[[], Context], view: ClusterView, roster: Roster) -> Iterator[None]:
    """Bring the shadows up to the view, and have J0s stay or go, some milliseconds each time. `context` is that of the
    transaction which is under way."""
    ctx = context()
    turns, on = ctx.memory.turns, rule.queues(ctx, view)
    if not on and not turns.shadows and not _any_stays(roster):
        return
    found = Wanted()
    yield from look(turns, view, roster, on, found)
    acts = [*((rule.goes, row) for row in found.go), *((rule.stays, row) for row in found.stay)]
    acts += [(rule.stays_on, row) for row in found.again]
    for at, (act, row) in enumerate(acts[:ACTS_AT_ONCE], 1):
        carry_out(context(), act(context(), row.id))
        if act is not rule.goes:
            turns.said[row.id] = view.time_s
        if at % 8 == 0:
            yield
    yield


def _any_stays(roster: Roster) -> bool:
    return any(row.stays for rows in roster.subjobs.values() for row in rows)


def look(turns: Turns, view: ClusterView, roster: Roster, on: Collection[str], found: Wanted) -> Iterator[None]:
    """Bring the shadows up to the view and fill in what is wanted. `on`: the queues in which the rule is."""
    staying: set[str] = set()
    usable = {one.name: view.usable_nodes(one.name) for one in view.queues if one.up}
    groups = _groups(usable, on)
    for gone in turns.shadows.keys() - set(groups):
        del turns.shadows[gone]
    if not view.blind and not view.unparsed:
        jobs, marks = dict(roster.jobs), _marks(roster)  # of now: others write meanwhile
        for queues in groups:
            yield from _look(turns, view, roster, marks, queues, usable, on, found, staying)
        turns.rows = jobs
    for job in roster.jobs.values():  # in order of arrival: not all may go at one poll
        if job.held:  # a user's hold is not let go with it
            continue
        for row in roster.subjobs.get(job.id, ()):
            if row.stays and row.id not in staying and row.state == SubjobState.PENDING and not row.releasing:
                found.go.append(row)
    turns.said = {id: at_s for id, at_s in turns.said.items() if id in staying}
    turns.refused &= {row.id for rows in roster.subjobs.values() for row in rows} if turns.refused else set()


def _groups(usable: _Nodes, on: Collection[str]) -> list[frozenset[str]]:
    """Queues that share nodes with one in which the rule is."""
    if len(usable) == 1:
        return [frozenset(on)] if on else []
    nodes = {name: frozenset(node.name for node in nodes) for name, nodes in usable.items()}
    found: list[frozenset[str]] = []
    for name in on:
        if any(name in group for group in found):
            continue
        group, reach = {name}, set(nodes.get(name, ()))
        more = True
        while more:
            near = {other for other, own in nodes.items() if other not in group and not reach.isdisjoint(own)}
            group |= near
            reach = reach.union(*(nodes[other] for other in near)) if near else reach
            more = bool(near)
        found.append(frozenset(group))
    return found


@dataclass(slots=True)
class _Queue:
    """What the batch system lists of some queues: the jobs that are new, elastic ones that wait with the marks of
    their J0s, others that wait and may start, and the names of all."""

    new: list[Listed] = field(default_factory=list)
    elastic: dict[str, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)


def _look(
    turns: Turns,
    view: ClusterView,
    roster: Roster,
    marks: Mapping[str, str | None],
    queues: frozenset[str],
    usable: _Nodes,
    on: Collection[str],
    found: Wanted,
    staying: set[str],
) -> Iterator[None]:
    shadow = _shadow(turns, view, queues, usable)
    if shadow is None:
        return
    known, queue = shadow.names, _Queue()
    yield from _read(turns, view, marks, queues, known, queue)
    ended = _ended(turns, view, roster, known - queue.there)
    yield from shadow.look(view.time_s, queue.new, ended, lambda: _places(view, marks))
    others_s = elastic_s = 0.0
    for name in shadow.begun():
        if name in queue.others:
            others_s += beyond_s(shadow.latest_s(name), view.time_s)
        elif name in queue.elastic and _holds_nothing(roster, name):
            elastic_s += beyond_s(shadow.soonest_s(name), view.time_s)
    if not are_later(others_s, elastic_s):
        return
    known = shadow.names
    rows_of = {row.tag: row for rows in roster.subjobs.values() for row in rows}
    for name, mark in queue.elastic.items():
        row = rows_of.get(mark)  # others have written meanwhile
        if row is None or row.state != SubjobState.PENDING or row.releasing or not _may_stay(roster, name, on):
            continue
        if len(staying) >= STAY_AT_MOST:
            break
        if not (name in known and is_before(shadow.soonest_s(name), view.time_s)) or row.id in turns.refused:
            continue
        staying.add(row.id)
        if not row.stays:
            found.stay.append(row)
        elif view.time_s - turns.said.get(row.id, -math.inf) >= rule.SAID_AGAIN_S:
            found.again.append(row)


def _shadow(turns: Turns, view: ClusterView, queues: frozenset[str], usable: _Nodes) -> Alongside | None:
    """That of these queues, made anew where their nodes have changed; None: they have no processors."""
    own = [(one, usable[one.name]) for one in view.queues if one.name in queues and one.name in usable]
    unit = max((view.reserved_unit(one, nodes) for one, nodes in own), default=1)
    total = sum({node.name: node.processors for _, nodes in own for node in nodes}.values())
    shadow = turns.shadows.get(queues)
    kind = (total, unit, view.reservations is Reservations.NODES)
    if total > 0 and (shadow is None or shadow.kind != kind):
        shadow = turns.shadows[queues] = Alongside(*kind)
    return shadow if total > 0 else None


def _marks(roster: Roster) -> dict[str, str | None]:
    """What batch jobs of ours stand for, by their marks: a J0 for its elastic job, a part of one for nothing (None),
    and any other for itself ("")."""
    found: dict[str, str | None] = {}
    for rows in roster.subjobs.values():
        for row in rows:
            own = row.job_id if row.role == SubjobRole.PLACEHOLDER else ""
            found[row.tag] = None if row.role in _PARTS else own
    return found


def _read(
    turns: Turns,
    view: ClusterView,
    marks: Mapping[str, str | None],
    queues: frozenset[str],
    known: Collection[str],
    queue: _Queue,
) -> Iterator[None]:
    """Go through the listing, and fill in what waits and what is new."""
    walltimes = {one.name: one.max_walltime_s for one in view.queues}
    here: dict[str, bool] = {}  # by the queues that a job names
    there, others, elastic = queue.there.add, queue.others.add, queue.elastic
    for first in range(0, len(view.jobs), JOBS_AT_ONCE):
        if first:
            yield
        for place, job in enumerate(view.jobs[first : first + JOBS_AT_ONCE], first):
            state, named = job.state, job.queue
            inside = here.get(named)
            if inside is None:
                inside = here[named] = any(name in queues for name in named.split(","))
            pending = state is _PENDING
            if not inside or (not pending and state in _OVER):
                continue
            mark = job.mark
            own = marks.get(mark, "")
            if own is None:
                continue
            name = own or job.id
            there(name)
            at, begun_s = place, None
            if pending or state not in _RUN:
                may_start = pending and not job.blocked
                if not may_start and name not in known:
                    continue
                if own:
                    elastic[name] = mark
                elif may_start:
                    others(name)
            else:
                at, begun_s = -1, job.start_s
                if begun_s is not None and not own:
                    turns.begun[name] = begun_s
            if name not in known:
                walltime_s = walltimes.get(named) if job.walltime_s is None else job.walltime_s
                walltime_s = math.inf if walltime_s is None else walltime_s
                queue.new.append(Listed(name, job.processors, walltime_s, at, begun_s))


def _places(view: ClusterView, marks: Mapping[str, str | None]) -> dict[str, int]:
    """Where what waits is in the batch system's queue."""
    found: dict[str, int] = {}
    for place, job in enumerate(view.jobs):
        if job.state is _PENDING or (job.state not in _RUN and job.state not in _OVER):
            found[marks.get(job.mark) or job.id] = place
    return found


def _holds_nothing(roster: Roster, job: str) -> bool:
    row = roster.jobs.get(job)
    return row is not None and row.state == JobState.WAITING and not row.held


def _may_stay(roster: Roster, job: str, on: Collection[str]) -> bool:
    row = roster.jobs.get(job)
    return row is not None and row.queue in on and row.state in (JobState.WAITING, JobState.RUNNING) and not row.held


def _ended(turns: Turns, view: ClusterView, roster: Roster, gone: Collection[str]) -> dict[str, float | None]:
    """How long each of these ran in its own shape; not those of which the batch system alone knows nothing more."""
    if not gone:
        return {}
    ends = {job.id: (job.start_s, job.end_s) for job in view.jobs if job.id in gone and job.state.ended}
    found: dict[str, float | None] = {}
    for name in gone:
        if name in roster.jobs:
            continue  # an elastic job that goes on without its J0
        row = turns.rows.pop(name, None)
        if row is not None:
            done_s = work_now(row, view.time_s)
            found[name] = done_s if done_s > 0.0 or row.start_s is not None else None
        else:
            started_s, ended_s = ends.get(name, (None, None))  # it may have come and gone between two polls
            begun_s = turns.begun.pop(name, started_s)
            found[name] = None if begun_s is None else max(0.0, (ended_s or view.time_s) - begun_s)
    return found
