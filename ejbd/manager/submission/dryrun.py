"""What submitting a job would do now: a dry run."""

from __future__ import annotations

from typing import Any

from ejbd.core.evolving.course import base_of, profile_from_json
from ejbd.core.needs import PLAIN
from ejbd.core.policy import Situation
from ejbd.manager.facts.admitted import Admission
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.speculating import asked_first_s
from ejbd.manager.facts.placing.widths import told_application
from ejbd.manager.facts.room.asking import ask
from ejbd.manager.facts.room.evolving import foreseen, space_of, told_ahead
from ejbd.manager.facts.room.windows import Room
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.manager.submission.admission import admit
from ejbd.manager.submission.intake import columns
from ejbd.manager.submission.queues import told_slots
from ejbd.manager.submission.told import ToldDryRun
from ejbd.store.models import Job
from ejbd.store.states import JobState


def _unstored(ctx: Context, taken: Admission, user: str, walltimes: dict[str, Any] | None) -> JobWorld:
    """The job that a submission would make, once its J0 waits."""
    nothing_yet = {"work_s": 0.0, "work_rate": 0.0, "script_run": 0, "not_movable": "", "not_before_s": 0.0}
    row = columns(taken, taken.spec, user, ctx.now, walltimes)
    return JobWorld(ctx, Job(id="dry-run", state=JobState.WAITING, **row, **nothing_yet), _subjobs=[])


def _of_j0(spec: JobSpec) -> int:
    """Places of J0: of an evolving job what all of its steps have in common."""
    return spec.processes if spec.evolving is None else base_of(profile_from_json(spec.evolving))


def plan(
    ctx: Context, job: Reading, user: str, walltimes: dict[str, Any] | None = None
) -> tuple[Admission, ToldDryRun]:
    """How :func:`submit` would take the job, and what would be done with it now; nothing is stored.

    `walltimes`: that were learned for it.
    """
    first_s = asked_first_s(walltimes)
    taken = admit(ctx, job, user)
    queue, spec = taken.queue, taken.spec
    decision = world = space = None
    room = Room(ctx)
    slots = room.windows(queue.partition(",")[0], spec.needs if taken.elastic else PLAIN).slots()
    if taken.elastic:
        world = _unstored(ctx, taken, user, walltimes)
        evolves = world.evolving is not None
        space = space_of(world) if evolves else None
        made = foreseen(world, space) if evolves else ask(world, Situation.WAIT, room).answer()
        decision = made.to_json()
    return taken, {
        "queue": queue,
        "elastic": taken.elastic,
        "why": taken.why,
        "code": taken.code or None,
        "engine": taken.engine,
        "slots": told_slots(ctx.view, queue.partition(",")[0], slots) if ctx.view is not None else [],
        "decision": decision,
        "free_ahead": [] if space is None or world is None else told_ahead(space, world.needs.processors),
        "cost": world.cost.to_json() if world is not None else None,
        "penalty": world.penalty.to_json() if world is not None else None,
        "deltas": [one.to_json() for one in world.deltas] if world is not None else [],
        "overheads": world.overheads.to_json() if world is not None else None,
        "placeholder": {
            "processors": _of_j0(spec) * spec.threads,
            "walltime_s": spec.walltime_s if first_s is None else first_s,
        },
        "walltimes": walltimes,
        "application": told_application(world, spec.walltime_s) if world is not None else None,
    }
