"""Batch jobs that are held or let go (qhold, scontrol hold) or altered (qalter, scontrol update) by other hands.

And a batch system that has its scheduling switched off. Each is told once, and nothing else follows from it here.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.manager.effects import Effects, Keep, KeepIn, note, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.manager.facts.memory import Changed
from ejbd.store.models import Event, Subjob
from ejbd.store.queries import newest_events
from ejbd.store.states import OPEN_SUBJOB
from ejbd.wire.kinds import EventKind, SubjobRole

_WHOLE = (SubjobRole.PLACEHOLDER, SubjobRole.RIGID)
_AS_ASKED = Changed()
_TOLD = (EventKind.SUBJOB_HELD, EventKind.SUBJOB_LET_GO, EventKind.SUBJOB_ALTERED)
_SITE = (EventKind.BATCH_RESTS, EventKind.BATCH_SCHEDULES)


def begin(ctx: Context, view: ClusterView) -> Effects[None]:
    """At each look: what was told before by an earlier daemon, and whether the batch system schedules."""
    memory = ctx.memory
    if memory.changed is None:
        yield Keep({"changed": _told_before(ctx)})
        last = select(Event.kind).where(Event.kind.in_(_SITE), newest_events(ctx.session))
        told = ctx.session.scalars(last.order_by(Event.id.desc()).limit(1)).first()
        yield Keep({"rests": told == EventKind.BATCH_RESTS})
    if memory.rests == view.schedules:
        yield Keep({"rests": not view.schedules})
        kind = EventKind.BATCH_RESTS if memory.rests else EventKind.BATCH_SCHEDULES
        yield tell(kind)


def _told_before(ctx: Context) -> dict[str, Changed]:
    found: dict[str, Changed] = {}
    query = select(Event.subjob_id, Event.kind, Event.data).join(Subjob, Subjob.job_id == Event.job_id)
    query = query.where(Subjob.state.in_(OPEN_SUBJOB), Subjob.id == Event.subjob_id, Event.kind.in_(_TOLD))
    for id, kind, data in ctx.session.execute(query.order_by(Event.id)):
        before = found.get(id or "", _AS_ASKED)
        if kind == EventKind.SUBJOB_ALTERED:
            found[id or ""] = Changed(before.held, data["walltime_s"])
        else:
            found[id or ""] = Changed(kind == EventKind.SUBJOB_HELD, before.walltime_s)
    return found


def news(ctx: Context, subjob: Subjob | SubjobRow, seen: BatchJobView, held_by_us: bool) -> Changed | None:
    """What is now otherwise than it was asked for, or told, of a batch job that waits; None: nothing new."""
    if subjob.role not in _WHOLE or not subjob.walltime_s or ctx.view is None:
        return None
    held = seen.state is BatchState.HELD and not held_by_us
    other = seen.walltime_s is not None and abs(seen.walltime_s - subjob.walltime_s) > ctx.view.walltime_quantum_s
    now = Changed(held, seen.walltime_s if other else None)
    return now if now != (ctx.memory.changed or {}).get(subjob.id, _AS_ASKED) else None


def look(world: JobWorld, subjob: Subjob, seen: BatchJobView) -> Effects[None]:
    """A batch job that waits, as it is seen now."""
    ctx, job = world.ctx, world.job
    found = news(ctx, subjob, seen, job.held or job.unread or subjob.stays)
    if found is None or ctx.memory.changed is None:
        return
    before = ctx.memory.changed.get(subjob.id, _AS_ASKED)
    yield KeepIn("changed", subjob.id, found)
    if found.held != before.held:
        kind = EventKind.SUBJOB_HELD if found.held else EventKind.SUBJOB_LET_GO
        yield tell(kind, job_id=job.id, subjob_id=subjob.id, reason=seen.reason)
    if found.walltime_s != before.walltime_s:
        told = {"asked_s": subjob.walltime_s, "walltime_s": found.walltime_s}
        yield tell(EventKind.SUBJOB_ALTERED, job_id=job.id, subjob_id=subjob.id, **told)
    said = [f"its batch job {subjob.batch_id} is held at the batch system ({seen.reason})"] if found.held else []
    if found.walltime_s is not None:
        altered = f"its batch job {subjob.batch_id} was altered at the batch system"
        said.append(f"{altered}: {found.walltime_s:g} s instead of {subjob.walltime_s:g} s")
    yield note(job, reason="; ".join(said))
