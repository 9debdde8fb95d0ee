"""What jobs held, and what of it was used: core-seconds by EJB's own records."""

from __future__ import annotations

from typing import TypedDict

from ClusterShell.RangeSet import RangeSet
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ejbd.manager.facts.charges import held_s
from ejbd.store.models import Epoch, Job, Subjob


class CoreSeconds(TypedDict):
    """Core-seconds of a job, and of the elements of an array.

    `held`: processors of its batch jobs, from their start to their end. `used`: processors with ranks on them, while
    these ran; of a job without placements (passed through, or a script that launches nothing) all that it held.
    A passed-through array counts as if all of its elements ran all the while: of each it is not known when it did.
    `moves`: processors with ranks that were being launched, or checkpointed. `waits`: the rest of what was held.
    """

    held: float
    used: float
    moves: float
    waits: float


def of_job(session: Session, job_id: str, now: float, *, idle: bool = False) -> CoreSeconds:
    """Until now, or its end. `idle`: nothing of it was used, whatever it ran."""
    mine = or_(Job.id == job_id, Job.array_id == job_id)
    ids = list(session.scalars(select(Job.id).where(mine)))
    held = 0.0
    ends: dict[str, float] = {}
    for subjob in session.scalars(select(Subjob).where(Subjob.job_id.in_(ids), Subjob.start_s.is_not(None))):
        held += subjob.processors * _elements(subjob) * held_s(subjob, now)
        ends[subjob.job_id] = max(ends.get(subjob.job_id, 0.0), (subjob.start_s or 0.0) + held_s(subjob, now))
    used = moves = 0.0
    epochs = list(session.scalars(select(Epoch).where(Epoch.job_id.in_(ids))))
    for epoch in epochs:
        end_s = epoch.ended_s if epoch.ended_s is not None else ends.get(epoch.job_id, now)
        begin_s = epoch.running_s if epoch.running_s is not None else end_s
        stop_s = epoch.stopping_s if epoch.stopping_s is not None else end_s
        used += epoch.processors * max(0.0, stop_s - begin_s)
        moves += epoch.processors * (max(0.0, begin_s - epoch.created_s) + max(0.0, end_s - stop_s))
    if not epochs:
        used = 0.0 if idle else held
    used = min(used, held)
    moves = min(moves, held - used)
    return {"held": held, "used": used, "moves": moves, "waits": held - used - moves}


def _elements(subjob: Subjob) -> int:
    indices = None if subjob.elements is None else subjob.elements["all"]
    return len(RangeSet(indices)) if indices else 1
