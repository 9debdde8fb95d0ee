"""Who is asked, and told, when something ends: the doors for rules that are not the manager's own.

A subscriber is a function of the job, the end and what becomes of it so far. It runs in the transaction in which the
end was seen, in a savepoint of its own: what it writes is durable together with the end, and a fault of it undoes what
it wrote, is told as the job's fault, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from ejbd.manager.effects.ends import CancelAsked, End, Outcome
from ejbd.store.engine import is_trouble
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

if TYPE_CHECKING:  # a job's world holds its context, and that holds these
    from ejbd.manager.facts.jobworld import JobWorld

log = structlog.get_logger(__name__)

Asked = Callable[["JobWorld", End, Outcome], Outcome | None]
"""Answers another outcome, or None: as it is."""
Told = Callable[["JobWorld", End, Outcome], None]


@dataclass(frozen=True)
class Subscribers:
    """`asked` may change what becomes of an end, each knowing the answer of the one before; then the `told` are told.

    Nobody is asked about a user's order to cancel.
    """

    asked: tuple[Asked, ...] = ()
    told: tuple[Told, ...] = ()

    def consult(self, world: JobWorld, end: End, outcome: Outcome) -> Outcome:
        """What becomes of `end` after everybody was heard."""
        for ask in self.asked if not isinstance(end, CancelAsked) else ():
            outcome = _apart(world, ask, end, outcome) or outcome
        for tell in self.told:
            _apart(world, tell, end, outcome)
        return outcome


def _apart(world: JobWorld, subscriber: Asked | Told, end: End, outcome: Outcome) -> Outcome | None:
    session = world.ctx.session
    nested = session.begin_nested()
    try:
        answer = subscriber(world, end, outcome)
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
