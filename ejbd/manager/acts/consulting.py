"""Asks the subscribers what becomes of an end, and tells the others, each in a savepoint of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import structlog

from ejbd.manager.effects import Consult, Effects
from ejbd.manager.effects.ends import CancelAsked, End, Outcome
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.subscribers import Asked, Told
from ejbd.store.engine import is_trouble
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

log = structlog.get_logger(__name__)
CarryOut = Callable[[JobWorld, Effects[Any]], Any]


def consult(world: JobWorld, effect: Consult, carry_out: CarryOut) -> Outcome:
    """What becomes of an end after every subscriber was heard. None is asked about a user's order to cancel."""
    subscribers, end, outcome = world.ctx.subscribers, effect.end, effect.outcome
    for ask in subscribers.asked if not isinstance(end, CancelAsked) else ():
        outcome = _apart(world, ask, end, outcome, carry_out) or outcome
    for tell in subscribers.told:
        _apart(world, tell, end, outcome, carry_out)
    return outcome


def _apart(
    world: JobWorld, subscriber: Asked | Told, end: End, outcome: Outcome, carry_out: CarryOut
) -> Outcome | None:
    session = world.ctx.session
    nested = session.begin_nested()
    try:
        asked = subscriber(world, end, outcome)
        answer: Outcome | None = carry_out(world, asked) if isinstance(asked, Generator) else asked
        session.flush()
        nested.commit()
        return answer
    except Exception as error:
        nested.rollback()
        if is_trouble(error):  # of the database, which is no subscriber's fault
            raise
        session.expire_all()
        world.read_again()
        name = getattr(subscriber, "__name__", type(subscriber).__name__)
        log.error("subscriber-fault", job=world.job.id, subscriber=name, error=repr(error), exc_info=error)
        add_event(session, EventKind.JOB_FAULT, world.ctx.now, job_id=world.job.id, error=f"{name}: {error}")
        return None
