"""What is to come of a job that is there, as people are shown it."""

from __future__ import annotations

import math

from sqlalchemy import select

from ejbd.core.outlook import outlook
from ejbd.core.policy import Situation
from ejbd.core.question import ask
from ejbd.core.state import ElasticState
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline, from_now, timeline_from_json, until
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.movability import is_saved_off
from ejbd.manager.facts.times import walltime_end
from ejbd.store.models import Event, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, SubjobRole

__all__ = ["PlannedKind", "PlannedTimeline", "planned"]

_TAKES_ROOM = (EventKind.DECISION_START, EventKind.DECISION_EXPAND)


def planned(world: JobWorld) -> PlannedTimeline:
    """From now on, as far as anything is planned; empty for a job that is over, ends, is held or was lost sight of, and
    while the batch system has suspended any of it.

    An elastic job goes on by its policy's plan, a job that is passed through from its start to its walltime.
    """
    job, now = world.job, world.ctx.now
    if JobState(job.state) not in (JobState.RECEIVED, JobState.WAITING, JobState.RUNNING) or job.held:
        return ()
    if any(subjob.state == SubjobState.SUSPENDED for subjob in world.open_subjobs):
        return ()
    if not job.elastic:
        rigid = next((subjob for subjob in world.open_subjobs if subjob.role == SubjobRole.RIGID), None)
        return _rigid(rigid, now) if rigid is not None else ()
    if (course := world.course or world.plan) is not None:
        return course.timeline(now, job.processes, world.needs.processors)
    j0 = world.placeholder
    on_j0 = j0 is not None and j0.id in job.members
    if world.awaited and not on_j0:
        found = from_now(_decided(world), now)  # subjobs that were asked for are in the plan that asked for them
        if found:
            return found
    limit = node_limit.node_room(world, Situation.SUBJOB_ENDS)
    state, policy = world.elastic_state(node_limit.can_move(world), limit), world.policy
    if j0 is not None and on_j0 and not _is_saved(world, j0, state):  # its end is the job's
        lasting = state.with_lasting_placeholder()
        return until(ask(policy, Situation.SUBJOB_ENDS, lasting, now).timeline, max(now, walltime_end(j0, now)))
    present = ask(policy, Situation.SUBJOB_ENDS, state, now).timeline
    return outlook(state, present, now, _start_of(j0, now), policy)


def _is_saved(world: JobWorld, j0: Subjob, state: ElasticState) -> bool:
    """Whether what runs on J0 is checkpointed before that ends, and waits for another one."""
    early = state.suspendable and (j0.warned or world.cut_short(j0))
    return state.movable and (early or is_saved_off(world, j0))


def _start_of(subjob: Subjob | None, now: float) -> float | None:
    """When a batch job starts: by the batch system's word, or now that it has."""
    if subjob is None:
        return None
    return now if subjob.state == SubjobState.RUNNING else subjob.planned_start_s


def _rigid(subjob: Subjob, now: float) -> PlannedTimeline:
    """It runs to its walltime's end at the latest; before, it waits for its start."""
    start_s = _start_of(subjob, now)
    if start_s is None:
        return (PlannedInterval(PlannedKind.WAIT, now, math.inf, 0, 0),)
    start_s = max(now, start_s)
    end_s = start_s + subjob.walltime_s
    if subjob.state == SubjobState.RUNNING:
        end_s = subjob.end_s if subjob.end_s is not None else (subjob.start_s or now) + subjob.walltime_s
    waits = PlannedInterval(PlannedKind.WAIT, now, start_s, 0, 0)
    runs = PlannedInterval(PlannedKind.RUN, start_s, end_s, subjob.processors, 1)
    return tuple(interval for interval in (waits, runs) if interval.length_s > 0)


def _decided(world: JobWorld) -> PlannedTimeline:
    """The plan of the last decision that asked for subjobs."""
    query = select(Event.data).where(Event.job_id == world.job.id, Event.kind.in_(_TAKES_ROOM))
    data = world.ctx.session.scalars(query.order_by(Event.id.desc()).limit(1)).first()
    return timeline_from_json((data or {}).get("decision", {}).get("timeline", ()))
