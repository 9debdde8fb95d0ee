"""Scripts with `#EJB stages`: each launch has a width and a time of its own, and the script one place between them."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.evolving.profiles import time_words
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.times import usable_end
from ejbd.store.models import Epoch, Launch, Subjob
from ejbd.store.states import EpochState, SubjobState

LINGER_S = 10.0  # for so long what was queued ahead is held for a launch that has not come


def width_of(world: JobWorld, launch: Launch) -> int:
    """The places of a launch."""
    return _places_for(world, launch.size)


def _places_for(world: JobWorld, ranks: int) -> int:
    """One for each rank, and never more than the job may have."""
    return min(ranks, world.job.processes)


def is_wide_enough(world: JobWorld, launch: Launch, members: Sequence[Subjob]) -> bool:
    return sum(world.needs.places(s.processors) for s in members) >= width_of(world, launch)


def subjob_of(world: JobWorld, launch: Launch) -> Subjob | None:
    """The open subjob that was asked for a launch, beside the script's own place."""
    asked = world.job.spec["evolving"].get("asked", {})
    return next((s for s in world.open_subjobs if not s.releasing and asked.get(s.id) == launch.ordinal), None)


def known_ahead(world: JobWorld, ordinal: int) -> tuple[int, float | None] | None:
    """The places and the time (None: not said) of a launch that should come right behind the one before it, by the
    script's text; None where that is not known."""
    told = world.job.spec["evolving"].get("ahead", [])
    if ordinal >= len(told) or told[ordinal] is None:
        return None
    size, time_s = told[ordinal]
    return _places_for(world, int(size)), time_s


def is_asked_ahead(world: JobWorld, subjob: Subjob) -> bool:
    """Whether a subjob is for the launch behind the latest one, and may still become of use.

    It follows the batch job of the launch before. Where that was asked for again, or the launch does not come, it would
    hold its processors idle.
    """
    stages, latest = world.job.spec["evolving"], world.last_launch
    follows = stages.get("follows", {}).get(subjob.id)
    if latest is None or follows is None or stages["asked"].get(subjob.id) != latest.ordinal + 1:
        return False
    if latest.ended_s is None:
        own = subjob_of(world, latest)
        return subjob.state != SubjobState.RUNNING if own is None else own.id == follows
    waits_since_s = max(latest.ended_s, subjob.start_s or 0.0)
    return subjob.state != SubjobState.RUNNING or world.ctx.now - waits_since_s <= LINGER_S


def time_of(world: JobWorld, launch: Launch) -> float | None:
    """Seconds that a launch may run, as its line says; None where it does not say."""
    told = world.job.spec["evolving"].get("launch") or {}
    return told.get("time_s") if told.get("ordinal") == launch.ordinal else None


def ran_s(world: JobWorld, launch: Launch) -> float:
    """Seconds that the ranks of a launch have run so far, in all of its placements."""
    rows = world.ctx.session.query(Epoch).where(Epoch.job_id == world.job.id, Epoch.launch_ordinal == launch.ordinal)
    spans = [(row.running_s, row.ended_s) for row in rows]
    return sum((world.ctx.now if end_s is None else end_s) - begin_s for begin_s, end_s in spans if begin_s is not None)


def told_ahead(world: JobWorld) -> str:
    """What a dry run says."""
    most = world.job.processes
    return (
        f"the script begins on one place, once that is there; each launch asks for its own width then, {most} at most, "
        "and gives it back at its end"
    )


def in_words(world: JobWorld) -> str:
    """What the script does now."""
    now, launch, j0 = world.ctx.now, world.launch, world.placeholder
    if not world.job.members:
        return told_ahead(world)
    left = f", {time_words(round(max(0.0, usable_end(j0, now) - now)))} before its end" if j0 is not None else ""
    if launch is None or launch.exit_code is not None:
        return f"its script has one place between launches{left}"
    of = f"launch {launch.ordinal + 1} of {width_of(world, launch)} places"
    epoch, time_s = world.live_epoch, time_of(world, launch)
    if epoch is not None and epoch.state == EpochState.RUNNING:
        for_s = ran_s(world, launch)
        most = f" of {time_words(round(time_s))}" if time_s else ""
        return f"{of} has run for {time_words(round(for_s))}{most}"
    subjob = subjob_of(world, launch)
    if subjob is None and (why := _refused(world, launch)):
        return f"{of} cannot begin, and is asked for again{left}: {why}"
    if subjob is None or subjob.state == SubjobState.RUNNING:
        return f"{of} begins"
    planned_s = subjob.planned_start_s
    when = "" if planned_s is None else f", which come in {max(0.0, planned_s - now):.0f} s by the batch system's plan"
    return f"{of} waits for {world.needs.places(subjob.processors)} of them beside the script's{when}"


def _refused(world: JobWorld, launch: Launch) -> str:
    """Why the batch system did not take what was asked for a launch last, or ""."""
    asked = world.job.spec["evolving"].get("asked", {})
    own = [s for id, ordinal in asked.items() if ordinal == launch.ordinal and (s := world.subjob(id)) is not None]
    last = max(own, key=lambda s: s.ordinal, default=None)
    return last.reason if last is not None and last.state == SubjobState.FAILED else ""
