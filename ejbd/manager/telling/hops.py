"""Every hop of each move of a job, with its time, from what is stored of it.

A hop's time is by the daemon's clock. What a worker did in between it reports in seconds. These are put before the
moment in which its report came: no two machines' clocks are compared. What the batch system started is told by its
listing, and by whole seconds where it is Slurm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.facts.operations import leaves
from ejbd.store.models import Event, Operation, Subjob, Worker
from ejbd.store.states import TERMINAL_SUBJOB, OperationState
from ejbd.wire.kinds import SUBJOB_EVENT, EventKind, IntentKind, OperationKind

_DECIDED = {EventKind.DECISION_MOVE_TO_PLACEHOLDER, EventKind.DECISION_START_ON_PLACEHOLDER}
_ENDED = {SUBJOB_EVENT[state] for state in TERMINAL_SUBJOB}
_OVER = {EventKind.JOB_COMPLETED, EventKind.JOB_FAILED, EventKind.JOB_TIMEOUT, EventKind.JOB_CANCELLED}


@dataclass(frozen=True, slots=True)
class Hop:
    """Something that a move waited for, and when it was there (epoch seconds)."""

    at_s: float
    what: str
    subjob: str | None = None
    node: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"at_s": self.at_s, "what": self.what, "subjob": self.subjob, "node": self.node}


@dataclass(slots=True)
class Hops:
    """One start, move or end. `kind`: start (of a launch or after a wait), move, end. Figures in seconds; None: it did
    not come to that."""

    kind: str
    epoch: int
    processors: int
    before: int = 0  # processors that were left for it; 0: none
    hops: list[Hop] = field(default_factory=list)
    seen_to_running_s: float | None = None
    started_to_running_s: float | None = None
    still_s: float | None = None
    end_to_free_s: float | None = None

    def add(self, at_s: float | None, what: str, subjob: str | None = None, node: str | None = None) -> None:
        if at_s is not None:
            self.hops.append(Hop(at_s, what, subjob, node))

    def to_json(self) -> dict[str, Any]:
        hops = sorted(self.hops, key=lambda hop: hop.at_s)
        return {
            "kind": self.kind,
            "epoch": self.epoch,
            "before": self.before,
            "processors": self.processors,
            "seen_to_running_s": self.seen_to_running_s,
            "started_to_running_s": self.started_to_running_s,
            "still_s": self.still_s,
            "end_to_free_s": self.end_to_free_s,
            "hops": [hop.to_json() for hop in hops],
        }


class _Story:
    """What is stored of one job's life, in its order."""

    def __init__(
        self,
        events: Sequence[Event],
        operations: Sequence[Operation],
        workers: Mapping[str, Worker],
        subjobs: Mapping[str, Subjob],
    ) -> None:
        self.events = events
        self.operations = operations
        self.workers = workers
        self.subjobs = subjobs

    def first(self, *kinds: EventKind, of: str | None = None, after: int = 0, **data: Any) -> Event | None:
        return next(self._all(kinds, of, after, data), None)

    def last(self, *kinds: EventKind, before: int, after: int = 0) -> Event | None:
        found = [event for event in self._all(kinds, None, after, {}) if event.id < before]
        return found[-1] if found else None

    def _all(self, kinds: Sequence[EventKind], of: str | None, after: int, data: Mapping[str, Any]) -> Iterator[Event]:
        for event in self.events:
            said = all(event.data.get(key) == value for key, value in data.items())
            if event.kind in kinds and event.id > after and of in (None, event.subjob_id) and said:
                yield event

    def answered(self, *kinds: OperationKind, epoch: int | None = None) -> Iterator[tuple[Operation, Worker]]:
        for operation in self.operations:
            worker = self.workers.get(operation.worker_id)
            if operation.kind not in kinds or worker is None or epoch not in (None, operation.epoch):
                continue
            if operation.state == OperationState.DONE and operation.done_s is not None:
                yield operation, worker


def hops_of(
    events: Sequence[Event],
    operations: Sequence[Operation],
    workers: Sequence[Worker],
    subjobs: Sequence[Subjob],
) -> list[Hops]:
    """The starts, moves and the end of a job, oldest first. Each sequence is in the order of its rows' numbers."""
    story = _Story(events, operations, {w.id: w for w in workers}, {s.id: s for s in subjobs})
    found: list[Hops] = []
    before: Event | None = None
    for event in events:
        if event.kind == EventKind.EPOCH_LAUNCHING:
            found.append(_placement(story, event, before))
            before = event
    if before is not None and (end := _end(story, before)) is not None:
        found.append(end)
    return found


def _placement(story: _Story, launching: Event, before: Event | None) -> Hops:
    """How ranks came onto the subjobs of an epoch."""
    epoch, members = launching.data["epoch"], launching.data["subjobs"]
    stopping = stopped = waited = None
    if before is not None:
        stopping = story.last(EventKind.EPOCH_STOPPING, before=launching.id, after=before.id)
        stopped = story.last(EventKind.EPOCH_STOPPED, before=launching.id, after=before.id)
        waited = story.last(EventKind.JOB_WAITING, before=launching.id, after=before.id)
    moved = stopping is not None and stopped is not None and waited is None
    hops = Hops("move" if moved else "start", epoch, launching.data["processors"])
    left: list[str] = []
    if moved and before is not None:
        hops.before, left = before.data["processors"], before.data["subjobs"]
    since = before.id if before is not None else 0
    running = story.first(EventKind.EPOCH_RUNNING, after=launching.id, epoch=epoch)
    seen, started = [], []
    for subjob in (id for id in members if id not in left):
        _arrival(story, hops, subjob)
        if (ran := story.first(EventKind.SUBJOB_RUNNING, of=subjob)) is not None and ran.id > since:
            seen.append(ran.at_s)
            started.append(story.subjobs[subjob].start_s if subjob in story.subjobs else None)
    if moved and stopping is not None and stopped is not None and before is not None:
        if decided := story.last(*_DECIDED, before=launching.id, after=since):
            hops.add(decided.at_s, f"decided ({decided.kind.partition('.')[2].replace('_', ' ')})")
        hops.add(stopping.at_s, "checkpoint asked for")
        for operation, worker in story.answered(OperationKind.CHECKPOINT, epoch=before.data["epoch"]):
            if stopping.at_s <= operation.created_s <= launching.at_s:
                _checkpointed(hops, operation, worker)
        hops.add(stopped.at_s, "every rank has stopped, every image is whole")
    hops.add(launching.at_s, "launch sent")
    for operation, worker in story.answered(OperationKind.LAUNCH, epoch=epoch):
        _launched(hops, operation, worker)
    if running is not None:
        hops.add(running.at_s, "all ranks run")
        hops.seen_to_running_s = _since(max(seen, default=None), running.at_s)
        known = [at for at in started if at is not None]
        hops.started_to_running_s = _since(max(known, default=None), running.at_s)
        if moved and stopping is not None:
            hops.still_s = _since(stopping.at_s, running.at_s)
        for subjob in left:
            if subjob not in members:
                _departure(story, hops, subjob, running.id)
    return hops


def _arrival(story: _Story, hops: Hops, subjob: str) -> None:
    """From the decision for a subjob until it has its workers."""
    row = story.subjobs.get(subjob)
    if row is not None and row.ordinal:  # J0 was asked for long before it matters
        for kind, what in (
            (EventKind.SUBJOB_PLANNED, "decided"),
            (EventKind.INTENT_EXECUTING, "submission begun"),
            (EventKind.INTENT_DONE, "submission answered"),
        ):
            submits = {} if kind is EventKind.SUBJOB_PLANNED else {"intent": IntentKind.SUBMIT.value}
            event = story.first(kind, of=subjob, after=0, **submits)
            if event is None:
                continue
            if kind is EventKind.SUBJOB_PLANNED and (asked := _question(story, event)) is not None:
                hops.add(asked, "window seen")
            hops.add(event.at_s, what, subjob)
    if row is not None:
        hops.add(row.start_s, "started by the batch system", subjob)
    for worker in story.workers.values():
        if worker.subjob_id == subjob:
            came = story.first(EventKind.WORKER_REGISTERED, of=subjob, node=worker.node)
            age_s = came.data.get("age_s") if came is not None else None
            if age_s is not None:
                hops.add(worker.registered_s - age_s, "worker began", subjob, worker.node)
            hops.add(worker.registered_s, "worker registered", subjob, worker.node)
    if (ran := story.first(EventKind.SUBJOB_RUNNING, of=subjob)) is not None:
        hops.add(ran.at_s, "seen as running", subjob)


def _question(story: _Story, planned: Event) -> float | None:
    """When the poll looked that led to a subjob."""
    asked = story.last(EventKind.DECISION_START, EventKind.DECISION_EXPAND, before=planned.id)
    return asked.data["question"]["now_s"] if asked is not None and asked.at_s == planned.at_s else None


def _checkpointed(hops: Hops, operation: Operation, worker: Worker) -> None:
    told = operation.result or {}
    done_s = operation.done_s or operation.created_s
    seconds = float(told.get("seconds", 0.0))
    hops.add(done_s - seconds, "worker asks its ranks", worker.subjob_id, worker.node)
    if (write_s := float(told.get("write_s", 0.0))) < seconds:
        hops.add(done_s - write_s, "first image begun", worker.subjob_id, worker.node)
    hops.add(done_s, "ranks have ended, images written", worker.subjob_id, worker.node)


def _launched(hops: Hops, operation: Operation, worker: Worker) -> None:
    told = operation.result or {}
    done_s = operation.done_s or operation.created_s
    if "seconds" in told:
        begun_s = done_s - float(told["seconds"])
        hops.add(begun_s, "worker begins to launch", worker.subjob_id, worker.node)
        hops.add(begun_s + float(told["first_s"]), "first rank started", worker.subjob_id, worker.node)
    hops.add(done_s, "ranks started", worker.subjob_id, worker.node)


def _departure(story: _Story, hops: Hops, subjob: str, after: int) -> float | None:
    """From the word that a subjob is given back until the batch system has it; when that was seen."""
    if (released := story.first(EventKind.SUBJOB_RELEASED, of=subjob, after=after)) is not None:
        hops.add(released.at_s, "given back", subjob)
    left: set[str] = set()  # one of an earlier daemon answers both
    for operation, worker in story.answered(OperationKind.EXIT, OperationKind.UNLEAD):
        if worker.subjob_id == subjob and leaves(operation) and worker.id not in left:
            left.add(worker.id)
            hops.add(operation.done_s, "worker leaves", subjob, worker.node)
    ended = story.first(*_ENDED, of=subjob, after=after)
    if ended is None:
        return None
    hops.add(ended.at_s, "seen as ended, its processors are free", subjob)
    return ended.at_s


def _end(story: _Story, last: Event) -> Hops | None:
    """From the end of the last placement until everything is given back; None while the job lives."""
    over = story.first(*_OVER, after=last.id)
    if over is None:
        return None
    ended = story.first(EventKind.EPOCH_ENDED, EventKind.EPOCH_FAILED, after=last.id)
    hops = Hops("end", last.data["epoch"], 0, last.data["processors"])
    if ended is not None:
        hops.add(ended.at_s, "every rank has ended" if ended.kind == EventKind.EPOCH_ENDED else "placement given up")
    if launch := story.first(EventKind.SCRIPT_ENDED, after=last.id):
        hops.add(launch.at_s, "script ended")
    for operation, worker in story.answered(OperationKind.UNLEAD):
        if ended is not None and operation.created_s >= ended.at_s:
            hops.add(operation.done_s, "output collected", worker.subjob_id, worker.node)
    hops.add(over.at_s, over.kind.replace(".", " "))
    free = [_departure(story, hops, subjob, last.id) for subjob in last.data["subjobs"]]
    known = [at for at in free if at is not None]
    if ended is not None and len(known) == len(free):
        hops.end_to_free_s = _since(ended.at_s, max(known, default=None))
    return hops


def _since(begun_s: float | None, at_s: float | None) -> float | None:
    return round(at_s - begun_s, 3) if begun_s is not None and at_s is not None else None


def moves(session: Session, job_id: str) -> list[dict[str, Any]]:
    """Every hop of each start, move and end of a job, as JSON, oldest first."""
    rows = (
        session.scalars(select(Event).where(Event.job_id == job_id).order_by(Event.id)).all(),
        session.scalars(select(Operation).where(Operation.job_id == job_id).order_by(Operation.seq)).all(),
        session.scalars(select(Worker).where(Worker.job_id == job_id).order_by(Worker.registered_s)).all(),
        session.scalars(select(Subjob).where(Subjob.job_id == job_id).order_by(Subjob.ordinal)).all(),
    )
    return [hops.to_json() for hops in hops_of(*rows)]
