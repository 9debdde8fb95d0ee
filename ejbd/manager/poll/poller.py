"""One poll of the batch system: look at it, and store what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from ejbd.core.room.suspended import kept_for_suspended
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.acts.carrying import run
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts import drains as known_drains
from ejbd.manager.facts.listing.roster import Specs
from ejbd.manager.facts.listing.workingset import WorkingSet
from ejbd.manager.facts.owners import Owners
from ejbd.manager.listening.hearing import Hearing
from ejbd.manager.poll.clockset import ClockSet
from ejbd.manager.poll.filling import fill_gaps
from ejbd.manager.poll.gone import Gone
from ejbd.manager.poll.looks import Looks
from ejbd.manager.poll.neighbours import Neighbours
from ejbd.manager.poll.oneatatime import OneAtATime
from ejbd.manager.poll.tick import Tick
from ejbd.manager.rules.learning import raising
from ejbd.manager.rules.linked import dependencies
from ejbd.manager.service.health import Health
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.world import World
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

log = structlog.get_logger(__name__)


class Poller:
    """Polls, one at a time. A batch system or a database that does not answer changes nothing.

    `wake` is called where the executor has something to do. `error`: why the batch system does not answer, or "".
    """

    def __init__(
        self,
        world: World,
        looks: Looks,
        neighbours: Neighbours,
        hearing: Hearing,
        health: Health,
        telemetry: Telemetry,
        wake: Callable[[], None],
    ) -> None:
        self.error = ""
        self.polls = 0
        self.failed_polls = 0
        self.open = WorkingSet(world.store)
        self.specs = Specs()
        self._world = world
        self._looks = looks
        self._neighbours = neighbours
        self._hearing = hearing
        self._health = health
        self._telemetry = telemetry
        self._wake = wake
        self._clock_set = ClockSet(world, hearing, wake)
        self._gone = Gone(world)
        self._owners = Owners() if world.hands.by_user else None
        self._one_at_a_time = OneAtATime()

    async def between(self, most_s: float) -> None:
        """Return while no poll is under way; after `most_s` seconds in any case."""
        await self._one_at_a_time.between(most_s)

    async def poll(self) -> None:
        """One round. A batch system that does not answer changes nothing."""
        world, store = self._world, self._world.store
        async with self._one_at_a_time:
            self._looks.begun(asyncio.get_running_loop().time())
            try:
                await self._clock_set.mind()
                with self._telemetry.poll("observe"):
                    view = await self._with_owners(kept_for_suspended(await world.batch.observe()))
                drained = await store.read(known_drains.reservations)
                if drained:
                    view = replace(view, site_reservations=known_drains.with_drains(view, drained))
                if world.clock.drift():  # set in between: the view's times are of another clock than ours
                    return
                roster = await self.open.now()
                view = roster.known_in(view, by_user=world.hands.by_user)
                unlisted = roster.unlisted(view)
                outcomes = await self._gone.outcomes(view, unlisted, self.polls)
                ends = await self._neighbours.ends(view)
                ended = {job.id for job in view.jobs if job.state.ended}
                left = await self._gone.left_behind(ended | {row.batch_id for row in unlisted if row.batch_id})
            except BatchError as error:
                await self._no_answer(error)
                return
            except EjbError as error:
                self._not_stored(error)
                return
            self._hearing.database_answers()
            looked_s, world.view = world.clock(), view
            self.polls += 1
            if self.error:
                self.error = ""
                await self._tell(EventKind.BATCH_ANSWERS)
            reach(CrashPoint.TICK_BEFORE_COMMIT)
            try:
                with self._telemetry.poll("store"):
                    tick = Tick(view, roster, outcomes, left, self.specs)
                    await self._store_all(tick)
                    await self._neighbours.note(view, ends)
                await fill_gaps(world)
                if await store.read(lambda s: raising.is_wanted(world.context(s))):
                    await store.write(lambda s: run(world.context(s), raising.plan))
            except EjbError as error:
                self._not_stored(error)
                return
            if await store.read(dependencies.any_wait):  # for time, or for jobs that are not EJB's
                self._wake()
            world.looked_s = looked_s
            reach(CrashPoint.TICK_AFTER_COMMIT)
            self._health.looked()
            self._telemetry.last_poll.set(world.clock())

    async def _store_all(self, tick: Tick) -> None:
        try:
            while await self._world.store.write(lambda s: tick.step(self._world.context(s))):
                pass
        except BaseException:
            self.open.forget_running()  # what a step had changed of their rows is not in the database
            raise

    async def see(self) -> None:
        """The first requests may come before the first poll. Raises EjbError where this daemon has not begun."""
        self._world.refuse_if_closed()
        if self._world.view is None and not self.error:
            await self.poll()

    async def view(self) -> ClusterView:
        """As the last poll saw the cluster. Raises EjbError where none has."""
        await self.see()
        if self._world.view is None:
            raise EjbError(Code.BATCH_UNAVAILABLE, f"the batch system does not answer: {self.error}", transient=True)
        return self._world.view

    async def _with_owners(self, view: ClusterView) -> ClusterView:
        """The view without the marks that one user has put on a batch job in another's name."""
        if self._owners is None:
            return view
        if unknown := self._owners.unknown(view):
            await self._world.store.read(partial(self._owners.read, jobs=unknown))
        return self._owners.verified(view)

    def _not_stored(self, error: EjbError) -> None:
        log.error("poll-not-stored", error=error.sentence())
        self._hearing.database_away(self._world.looked_s)

    async def _no_answer(self, error: BatchError) -> None:
        self.failed_polls += 1
        self._health.looked()
        self._telemetry.failed_polls.inc()
        log.warning("batch-unavailable", error=error.sentence(), stderr=error.stderr)
        if self.error:
            return
        self.error = error.sentence()
        await self._tell(EventKind.BATCH_SILENT, error=self.error)

    async def _tell(self, kind: EventKind, **data: Any) -> None:
        """An event of the daemon itself. A database that fails costs nothing else."""
        try:
            await self._world.store.write(lambda s: add_event(s, kind, self._world.clock(), **data))
        except EjbError as error:
            log.error("event-not-stored", kind=kind, error=error.sentence(), **data)
