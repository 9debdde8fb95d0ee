"""A script with `#EJB stages`, from look to look: E-HPC's stages, each a launch of one script.

J0 is the script's own place, for all of its time. A launch that is wider asks for the rest as it comes, for its own
time. It begins once that is there, and gives it back at its end. Nothing moves between launches: no engine is needed.

Where the script's text shows which launch comes right behind, and the batch system can wait for a batch job's end, what
that launch needs is queued one step ahead. If another one comes, or none, it is given back.
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
from ejbd.manager.facts.placing.launchwidth import (
    LINGER_S,
    is_asked_ahead,
    known_ahead,
    ran_s,
    subjob_of,
    time_of,
    width_of,
)
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
        yield from _queue_next(world, launch, j0)
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
    if subjob is not None and world.needs.places(subjob.processors) != more:
        yield Release(subjob, "it was queued ahead for a launch of another width")
        subjob = None
    if subjob is None:
        if world.ctx.now >= world.job.not_before_s:
            yield from _ask_for(world, launch, j0, more)
        return [j0.id]
    there = world.ready(subjob) or subjob.id in world.job.members
    return [j0.id, subjob.id] if there else [j0.id]


def _ask_for(world: JobWorld, launch: Launch, j0: Subjob, places: int) -> Effects[None]:
    time_s = time_of(world, launch)
    left_s = None if time_s is None else max(0.0, time_s - ran_s(world, launch))
    yield from _ask(world, launch.ordinal, j0, places, left_s)
    yield Rate(world.job, 0.0)  # it waits, and a rigid job would not


def _queue_next(world: JobWorld, launch: Launch, j0: Subjob) -> Effects[None]:
    """Ask for what the launch behind this one needs, behind this one's own batch job; once."""
    view, own, coming = world.ctx.view, subjob_of(world, launch), launch.ordinal + 1
    told = known_ahead(world, coming)
    asked = world.job.spec["evolving"].get("asked", {})
    if view is None or not view.chains or told is None or own is None or not own.batch_id or coming in asked.values():
        return
    more = told[0] - world.needs.places(j0.processors)
    if more <= 0 or world.ctx.now < world.job.not_before_s:
        return
    time_s = None if told[1] is None else told[1] + LINGER_S
    yield from _ask(world, coming, j0, more, time_s, follows=own.id)


def _ask(
    world: JobWorld, ordinal: int, j0: Subjob, places: int, time_s: float | None, follows: str | None = None
) -> Effects[None]:
    """`time_s`: that the launch runs at most; `follows`: the subjob of the launch before, which has to end first."""
    job, now = world.job, world.ctx.now
    left_s = max(world.ctx.settings.poll_s, usable_end(j0, now) - now)
    late_s = world.parameters().start_up_s + _POLLS * world.ctx.settings.poll_s
    needs_s = left_s if time_s is None else min(left_s, time_s + late_s)
    subjob: Subjob = yield Ask(
        SubjobRole.SUBJOB, places, needs_s, slack_s=slack(world.cost.kept_s, margins(world.ctx, world.cost.tail_s))
    )
    stages = job.spec["evolving"]
    told = {**stages, "asked": {**stages.get("asked", {}), subjob.id: ordinal}}
    if follows is not None:
        told["follows"] = {**stages.get("follows", {}), subjob.id: follows}
    yield note(job, spec={**job.spec, "evolving": told})
    width = places + world.needs.places(j0.processors)
    yield tell(
        EventKind.DECISION_EVOLVE,
        job_id=job.id,
        steps=[[needs_s, width]],
        starts_s=[now],
        end_s=now + needs_s,
        base=world.needs.places(j0.processors),
        reason=f"launch {ordinal + 1} needs {width} places: {places} are asked for beside the script's"
        + (", behind the launch before it" if follows is not None else ""),
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
        if is_asked_ahead(world, subjob):
            continue
        yield Release(subjob, "its launch is over")
