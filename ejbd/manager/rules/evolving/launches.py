"""A script with `#EJB stages`, from look to look: E-HPC's stages, each a launch of one script.

J0 is the script's own place, for all of its time. A launch that is wider asks for the rest as it comes, for its own
time. It begins once that is there, and gives it back at its end. Nothing moves between launches: no engine is needed.
"""

from __future__ import annotations

from ejbd.core.room.walltimes import slack
from ejbd.manager.effects import (
    Ask,
    Effects,
    EnsurePlaceholder,
    GivesBackLate,
    Rate,
    Release,
    StopLaunch,
    Want,
    note,
    tell,
)
from ejbd.manager.facts.deaths import CANCELLED_LAUNCH
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing.launchwidth import ran_s, subjob_of, time_of, width_of
from ejbd.manager.facts.room.windows import margins
from ejbd.manager.facts.times import usable_end
from ejbd.store.models import Launch, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, SubjobRole

_POLLS = 2.0  # what looks may come late, at the beginning of a launch and at its end


def stage(world: JobWorld) -> Effects[None]:
    """One look: ask for what the launch needs, have it where it is there, and give back what is over."""
    job, j0, launch = world.job, world.placeholder, world.launch
    if j0 is None:
        if job.state in (JobState.WAITING, JobState.RUNNING):
            yield EnsurePlaceholder()
        return
    if job.state == JobState.WAITING and not job.members:
        if j0.state == SubjobState.RUNNING and not (yield GivesBackLate(j0)):
            yield Want(job, [j0.id])
        return
    if j0.state != SubjobState.RUNNING or job.state != JobState.RUNNING:
        return
    if launch is not None and launch.exit_code is None:
        wanted = yield from _held(world, launch, j0)
        if (yield from _ends_in_time(world, launch)):
            return
    elif world.live_epoch is None:
        wanted = [j0.id]
    else:
        return
    yield from _give_up(world, wanted, launch)
    if world.live_epoch is None and set(wanted) != set(job.members):
        yield Want(job, wanted)


def _held(world: JobWorld, launch: Launch, j0: Subjob) -> Effects[list[str]]:
    """What a launch is to be placed on, as far as it is there; the rest is asked for."""
    more = width_of(world, launch) - world.needs.places(j0.processors)
    if more <= 0:
        return [j0.id]
    subjob = subjob_of(world, launch)
    if subjob is None:
        if world.ctx.now >= world.job.not_before_s:
            yield from _ask(world, launch, j0, more)
        return [j0.id]
    there = world.ready(subjob) or subjob.id in world.job.members
    return [j0.id, subjob.id] if there else [j0.id]


def _ask(world: JobWorld, launch: Launch, j0: Subjob, places: int) -> Effects[None]:
    job, now = world.job, world.ctx.now
    left_s = max(world.ctx.settings.poll_s, usable_end(j0, now) - now)
    time_s = time_of(world, launch)
    needs_s = left_s
    if time_s is not None:
        late_s = world.parameters().start_up_s + _POLLS * world.ctx.settings.poll_s
        needs_s = min(left_s, max(0.0, time_s - ran_s(world, launch)) + late_s)
    subjob: Subjob = yield Ask(
        SubjobRole.SUBJOB, places, needs_s, slack_s=slack(world.cost.kept_s, margins(world.ctx, world.cost.tail_s))
    )
    stages = job.spec["evolving"]
    asked = {**stages.get("asked", {}), subjob.id: launch.ordinal}
    yield note(job, spec={**job.spec, "evolving": {**stages, "asked": asked}})
    yield Rate(job, 0.0)  # it waits, and a rigid job would not
    width = places + world.needs.places(j0.processors)
    yield tell(
        EventKind.DECISION_EVOLVE,
        job_id=job.id,
        steps=[[needs_s, width]],
        starts_s=[now],
        end_s=now + needs_s,
        base=world.needs.places(j0.processors),
        reason=f"launch {launch.ordinal + 1} needs {width} places: {places} are asked for beside the script's",
    )


def _ends_in_time(world: JobWorld, launch: Launch) -> Effects[bool]:
    """Whether a launch was ended, since it has run for as long as its line says: srun does so, too."""
    time_s = time_of(world, launch)
    if time_s is None or world.live_epoch is None or ran_s(world, launch) < time_s:
        return False
    yield StopLaunch(launch, CANCELLED_LAUNCH, f"launch {launch.ordinal + 1} has run for its {time_s:.0f} s")
    return True


def _give_up(world: JobWorld, wanted: list[str], launch: Launch | None) -> Effects[None]:
    """What was asked for a launch that is over."""
    present = subjob_of(world, launch) if launch is not None and launch.exit_code is None else None
    for subjob in world.open_subjobs:
        if subjob.role != SubjobRole.SUBJOB or subjob.releasing or subjob.id in wanted or subjob is present:
            continue
        yield Release(subjob, "its launch is over")
