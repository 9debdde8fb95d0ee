"""The machine's clock was set: intervals that are under way last as they would."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from sqlalchemy.orm import Session

from ejbd.manager.listening.hearing import Hearing
from ejbd.manager.world import World
from ejbd.store.shifting import shift
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

log = structlog.get_logger(__name__)


class ClockSet:
    """`wake`: times of what is to be done are others now."""

    def __init__(self, world: World, hearing: Hearing, wake: Callable[[], None]) -> None:
        self._world = world
        self._hearing = hearing
        self._wake = wake

    async def mind(self) -> None:
        """Where the machine's clock was set: tell it, and let intervals that are under way last as they would.

        Raises EjbError where the database does not take it. Until it does, time goes on as if no clock were set.
        """
        world = self._world
        by_s = world.clock.drift()
        if not by_s:
            return
        log.warning("clock-was-set", by_s=round(by_s, 1))
        stepped = False

        def step(session: Session) -> None:
            nonlocal stepped
            shift(session, by_s)
            add_event(session, EventKind.CLOCK_SET, world.clock() + by_s, by_s=by_s)
            world.clock.step(by_s)  # with the rows, for the next transaction
            world.memory.shift(by_s)
            self._hearing.shift(by_s)
            stepped = True

        try:
            await world.store.write(step)
        except BaseException:
            if stepped:
                world.clock.step(-by_s)
                world.memory.shift(-by_s)
                self._hearing.shift(-by_s)
            raise
        world.shift(by_s)
        self._wake()
