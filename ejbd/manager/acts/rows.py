"""Writes rows as such: columns, events, topics."""

from __future__ import annotations

from ejbd.manager.effects import Delete, Insert, Note, Tell, Wake
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Base, Epoch, Intent, Job, Operation, Subjob
from ejbd.store.transitions import add_event, wake

OF_THEIR_OWN: dict[type[Base], frozenset[str]] = {
    Job: frozenset({"state", "members", "work_s", "work_rate", "work_as_of_s"}),
    Subjob: frozenset({"state", "releasing"}),
    Epoch: frozenset({"state"}),
    Operation: frozenset({"state"}),
    Intent: frozenset({"state"}),
}
"""Columns that have effects of their own."""


def put(world: JobWorld, effect: Note) -> None:
    refused = OF_THEIR_OWN.get(type(effect.row), frozenset()) & effect.columns.keys()
    if refused:
        raise ValueError(f"{type(effect.row).__name__}.{', '.join(sorted(refused))}: has an effect of its own")
    for name, value in effect.columns.items():
        setattr(effect.row, name, value)


def insert(world: JobWorld, effect: Insert) -> Base:
    session = world.ctx.session
    session.add(effect.row)
    session.flush()
    return effect.row


def delete(world: JobWorld, effect: Delete) -> None:
    world.ctx.session.delete(effect.row)


def tell(world: JobWorld, effect: Tell) -> None:
    job_id = world.job.id if effect.job_id == "" else effect.job_id
    add_event(world.ctx.session, effect.kind, world.ctx.now, job_id=job_id, subjob_id=effect.subjob_id, **effect.data)


def wake_up(world: JobWorld, effect: Wake) -> None:
    wake(world.ctx.session, *effect.topics)
