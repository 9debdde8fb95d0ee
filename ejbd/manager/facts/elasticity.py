"""What a job has now and by its course, as its own processes are told it (`ejb_elastic`, `ejb elastic init`)."""

from __future__ import annotations

from typing import TypedDict

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.states import EpochState, SubjobState


class ToldElastic(TypedDict):
    """`held`: places that it has now; `asked`: that it is to have now; `settled`: whether its ranks are on all of them.

    `base`: what it holds throughout; `most`: its ranks, and so the most that it can have.
    """

    job: str
    held: int
    asked: int
    base: int
    most: int
    settled: bool
    end_s: float | None
    nodes: list[str]


def told_elastic(world: JobWorld) -> ToldElastic:
    """The same of a job; of one without a course the widths are what it has."""
    job, course, epoch = world.job, world.course, world.live_epoch
    on = [s for s in world.open_subjobs if s.id in job.members and s.state == SubjobState.RUNNING]
    held = sum(world.needs.places(s.processors) for s in on)
    there = {worker.id for s in on for worker in world.workers_of(s.id)}
    spread = epoch is not None and {seat.worker for seat in epoch.placement} == there
    settled = epoch is None or (epoch.state == EpochState.RUNNING and spread)
    return {
        "job": job.id,
        "held": held,
        "asked": course.width_at(world.ctx.now) if course is not None else held,
        "base": course.base if course is not None else held,
        "most": job.processes,
        "settled": settled and len(on) == len(job.members),
        "end_s": course.end_s if course is not None else None,
        "nodes": sorted({node for s in on for node in s.nodes}),
    }
