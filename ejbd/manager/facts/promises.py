"""Room that was given back to a waiting job is kept for it until it has started, but not for ever.

A promise is made by a decision to give back (:mod:`ejbd.manager.rules.planning.giving`). While it stands no elastic job
takes any room on those nodes. It may come to nothing, since the batch system has its own reasons. Then neither the
waiting job nor the givers are asked again for a good while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.bundling.guard import longest_coming_s
from ejbd.core.lending import Lending
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.store.models import Event, Job, Subjob
from ejbd.store.queries import newest_events
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import EventKind

START_POLLS, START_PASSES = 3.0, 4.0  # of ours and of the scheduler's: the longer has to do for a start
IN_VAIN_PASSES = 60.0  # in which a job that did not start is given nothing, and one that gave in vain gives nothing
_GIVING = (EventKind.DECISION_SUSPEND, EventKind.DECISION_SHRINK)
_REMEMBERED = 200  # decisions that a daemon which has just started looks back at


@dataclass(frozen=True, slots=True)
class Promise:
    """To a batch job: subjobs of these jobs, so many processors, given back since `since_s` and free since `free_s`.

    It may take `coming_s` until they are free, that of the longest of the givers.
    """

    to: str
    who: str
    givers: tuple[str, ...]
    subjobs: tuple[str, ...]
    processors: int
    since_s: float
    free_s: float | None = None
    coming_s: float = longest_coming_s(0.0, 0.0)


@dataclass
class Promises:
    """Those that stand, by batch job. In vain, by batch job or job: until when it is given nothing, or gives nothing.

    In memory; what stood when a daemon ended is read from its decisions by the next one.
    """

    standing: dict[str, Promise] = field(default_factory=dict)
    in_vain: dict[str, float] = field(default_factory=dict)
    read: bool = False

    def snapshot(self) -> Promises:
        """As they are now, for a reader."""
        return replace(self, standing=self.standing.copy(), in_vain=self.in_vain.copy())

    def make(
        self, to: str, user: str, giver: str, subjobs: Collection[str], processors: int, now: float, coming_s: float
    ) -> None:
        """One more job gives to that batch job."""
        old = self.standing.get(to) or Promise(to, user, (), (), 0, now)
        self.standing[to] = replace(
            old,
            givers=(*old.givers, giver),
            subjobs=(*old.subjobs, *subjobs),
            processors=old.processors + processors,
            free_s=None,
            coming_s=max(old.coming_s, coming_s),
        )

    def free_for(self, ids: Collection[str]) -> int:
        """Processors that are free for those of these batch jobs that they were given back to."""
        return sum(one.processors for to, one in self.standing.items() if one.free_s is not None and to in ids)

    def look(self, session: Session, view: ClusterView, now: float, poll_s: float) -> None:
        """Once a poll: what has been kept, and what was in vain."""
        in_vain_s = IN_VAIN_PASSES * view.pass_s
        if not self.read:
            self._recall(session, now - in_vain_s)
        self.in_vain = {id: until for id, until in self.in_vain.items() if until > now}
        if not self.standing:
            return
        waiting = {
            job.id: job for job in view.jobs if job.state is BatchState.PENDING and (job.limited or not job.blocked)
        }
        coming, kept = _running(session, [id for one in self.standing.values() for id in one.subjobs])
        for to, one in list(self.standing.items()):
            if to not in waiting or kept.intersection(one.subjobs):  # nothing of it was committed, or it came otherwise
                del self.standing[to]
            elif coming.intersection(one.subjobs) and now - one.since_s <= one.coming_s:
                self.standing[to] = replace(one, free_s=None)
            elif one.free_s is None:
                self.standing[to] = replace(one, free_s=now)
            elif now - one.free_s > max(START_PASSES * view.pass_s, START_POLLS * poll_s):
                del self.standing[to]
                self.in_vain |= dict.fromkeys((to, *one.givers), now + in_vain_s)

    def kept_for(self, view: ClusterView, queue: str) -> Promise | None:
        """The promise that the room of a queue is kept for, if any: its job waits for some of the queue's nodes."""
        if not self.standing:
            return None
        nodes = {node.name for node in view.usable_nodes(queue)}
        waits = {job.id: job for job in view.jobs if job.id in self.standing}
        return next((one for to, one in self.standing.items() if to in waits and _on(view, waits[to], nodes)), None)

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        for to, one in self.standing.items():
            free_s = None if one.free_s is None else one.free_s + by_s
            self.standing[to] = replace(one, since_s=one.since_s + by_s, free_s=free_s)
        self.in_vain = {id: until + by_s for id, until in self.in_vain.items()}

    def _recall(self, session: Session, since_s: float) -> None:
        self.read = True
        query = select(Event).where(Event.kind.in_(_GIVING), Event.at_s > since_s, newest_events(session))
        found = list(session.scalars(query.order_by(Event.id.desc()).limit(_REMEMBERED)))
        for row in reversed(found):
            to = row.data.get("given_to")
            if to is not None and row.job_id is not None:
                asked = row.data["question"]
                user, held = _given(asked, to, row.job_id)
                coming_s = longest_coming_s(asked["parameters"]["lambda_s"], asked["parameters"]["start_up_s"])
                self.make(to, user, row.job_id, row.data["leaves"], held, row.at_s, coming_s)


def _given(question: Mapping[str, Any], to: str, giver: str) -> tuple[str, int]:
    """The user of the batch job that something was given back to, and how many processors."""
    if question.get("stands"):
        return str(question["stands"]["user"]), sum(int(one["processors"]) for one in question["state"]["subjobs"])
    lending = Lending.from_json(question["lending"])
    user = next(one.user for one in lending.waiting if one.id == to)
    return user, next(one.held for one in lending.borrowers if one.job == giver)


def _running(session: Session, ids: Collection[str]) -> tuple[set[str], set[str]]:
    """Of these subjobs, those that run: the ones that their jobs leave, and the ones that their jobs are to be on."""
    query = select(Subjob.id, Job.members).join(Job, Subjob.job_id == Job.id)
    rows = session.execute(query.where(Subjob.id.in_(ids), Subjob.state == SubjobState.RUNNING)).all()
    kept = {row.id for row in rows if row.id in row.members}
    return {row.id for row in rows} - kept, kept


def _on(view: ClusterView, job: BatchJobView, nodes: Collection[str]) -> bool:
    """Whether a job waits for any of these nodes."""
    queues = job.queue.split(",")
    return any(node.name in nodes and not set(queues).isdisjoint(node.queues) for node in view.nodes)
