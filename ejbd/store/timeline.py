"""What an elastic job really did, as intervals: the counterpart of those that a policy plans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.store.models import Epoch, Event, Job, Subjob
from ejbd.store.states import EpochState, JobState
from ejbd.wire.kinds import EPOCH_EVENT, JOB_EVENT, EventKind


class Phase(StrEnum):
    """RUN makes progress. MOVE holds processors and makes none: ranks are stopped, moved or started again. In WAIT
    no rank runs: before the first start, after a setback, or between two launches of a script."""

    RUN = "run"
    MOVE = "move"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class PastInterval:
    """A stretch in which a job's phase, processors and subjobs did not change. `end_s` None: it still lasts.

    Times are seconds since the epoch; `processors` are those that ranks use, 0 in WAIT.
    """

    kind: Phase
    start_s: float
    end_s: float | None
    processors: int
    subjobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Situation:
    kind: Phase
    processors: int = 0
    subjobs: tuple[str, ...] = ()


_WAITING = _Situation(Phase.WAIT)
_JOB_EVENTS = tuple(JOB_EVENT[state] for state in JobState if state.terminal or state is JobState.ENDING)
_EPOCH_STATE = {kind: state for state, kind in EPOCH_EVENT.items()}


def intervals(session: Session, job_id: str) -> list[PastInterval]:
    """The intervals of a job from its submission to its end (or to now), in order, without gaps. Unknown job: none."""
    job = session.scalar(select(Job).where(Job.id == job_id))
    if job is None:
        return []
    changes = _changes(session, job) if job.elastic else _rigid_changes(session, job)
    return _join(job.submit_s, changes)


# A change: when, which comes first at the same time, and into what (None: the job has ended).
_Change = tuple[float, float, int, _Situation | None]


def _changes(session: Session, job: Job) -> list[_Change]:
    epochs = {e.number: e for e in session.scalars(select(Epoch).where(Epoch.job_id == job.id))}
    started: set[int] = set()  # launches that had an epoch before
    changes: list[_Change] = []
    for number in sorted(epochs):
        epoch = epochs[number]
        again = epoch.launch_ordinal in started
        started.add(epoch.launch_ordinal)
        changes.append((epoch.created_s, number, -1, _situation(Phase.MOVE, epoch) if again else _WAITING))
    kinds = (EventKind.JOB_WAITING, *_JOB_EVENTS, *_EPOCH_STATE)
    query = select(Event).where(Event.job_id == job.id, Event.kind.in_(kinds))
    for event in session.scalars(query):
        kind = EventKind(event.kind)
        if kind in _JOB_EVENTS:
            changes.append((event.at_s, math.inf, event.id, None))
        elif kind is EventKind.JOB_WAITING:
            changes.append((event.at_s, -1, event.id, _WAITING))
        elif (found := epochs.get(event.data.get("epoch", -1))) is not None:
            changes.append((event.at_s, found.number, event.id, _after(_EPOCH_STATE[kind], found)))
    return sorted(changes, key=lambda change: change[:3])


def _rigid_changes(session: Session, job: Job) -> list[_Change]:
    subjobs = tuple(session.scalars(select(Subjob.id).where(Subjob.job_id == job.id).order_by(Subjob.ordinal)))
    changes: list[_Change] = []
    if job.start_s is not None:
        changes.append((job.start_s, 0, 0, _Situation(Phase.RUN, job.processes, subjobs)))
    if job.end_s is not None:
        changes.append((job.end_s, 1, 0, None))
    return changes


def _after(state: EpochState, epoch: Epoch) -> _Situation:
    match state:
        case EpochState.RUNNING:
            return _situation(Phase.RUN, epoch)
        case EpochState.LAUNCHING | EpochState.STOPPING | EpochState.STOPPED:
            return _situation(Phase.MOVE, epoch)
        case EpochState.ENDED | EpochState.FAILED:
            return _WAITING


def _situation(kind: Phase, epoch: Epoch) -> _Situation:
    return _Situation(kind, epoch.processors, tuple(epoch.members))


def _join(start_s: float, changes: list[_Change]) -> list[PastInterval]:
    """Lay the changes end to end: what lasted no time is left out, what did not change is one interval."""
    found: list[PastInterval] = []
    now: _Situation | None = _WAITING
    since = start_s
    for at_s, _, _, then in changes:
        if now is None:
            break  # what a worker reports after the end is not part of the job's life
        if then == now:
            continue
        at_s = max(at_s, since)
        _append(found, now, since, at_s)
        now, since = then, at_s
    if now is not None:
        _append(found, now, since, None)
    return found


def _append(found: list[PastInterval], now: _Situation, start_s: float, end_s: float | None) -> None:
    if end_s == start_s:
        return
    last = found[-1] if found else None
    if last is not None and _Situation(last.kind, last.processors, last.subjobs) == now:
        start_s = found.pop().start_s
    found.append(PastInterval(now.kind, start_s, end_s, now.processors, now.subjobs))
