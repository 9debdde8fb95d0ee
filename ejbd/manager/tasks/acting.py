"""New jobs are received, and intents carried out, whenever there are any."""

from __future__ import annotations

import asyncio

import structlog

from ejbd.errors import EjbError
from ejbd.manager.acts.executor import Executor
from ejbd.manager.service.health import Health
from ejbd.manager.submission.receiving import Receiving
from ejbd.manager.world import World
from ejbd.store.transitions import INTENTS_TOPIC, NEW_JOBS_TOPIC, QUEUES_TOPIC

log = structlog.get_logger(__name__)

AT_ONCE = frozenset((INTENTS_TOPIC, QUEUES_TOPIC))  # what a queue is told may reach J0s that wait
RETRY_S = 1.0
BACKLOG_S = 0.2  # between two passes of the executor over a backlog: some submissions each, not one


class Acting:
    """:meth:`run` goes on until it is cancelled; `work` is set where there is something to do."""

    def __init__(self, world: World, health: Health) -> None:
        self.work = asyncio.Event()
        self.receiving = Receiving(world)
        self.executor = Executor(
            world.store, world.batch, world.settings, world.hands, world.context, world.clock, wake=self.work.set
        )
        self._world = world
        self._health = health

    def woken(self, topics: frozenset[str]) -> None:
        """There has been a commit."""
        if not AT_ONCE.isdisjoint(topics) or (NEW_JOBS_TOPIC in topics and not self.receiving.backlog):
            self.work.set()

    async def run(self) -> None:
        """Carry intents out whenever there are any."""
        clock = self._world.clock
        while True:
            self.work.clear()
            try:
                more = await self._world.store.write(self.receiving.receive, patient=True)
                with self._health.passing():
                    next_s = await self.executor.run_due()
                if more:
                    next_s = clock()
                elif self.receiving.backlog:  # a submission that comes now waits behind others, and wakes no task
                    next_s = min(clock() + RETRY_S, clock() + RETRY_S if next_s is None else next_s)
            except EjbError as error:
                log.error("executor", error=error.sentence())
                next_s = clock() + RETRY_S
            except Exception as error:
                log.error("executor-fault", error=repr(error), exc_info=error)
                next_s = clock() + RETRY_S
            least_s = BACKLOG_S if self.receiving.backlog else 0.05
            timeout = None if next_s is None else max(least_s, next_s - clock())
            try:
                await asyncio.wait_for(self.work.wait(), timeout)
            except TimeoutError:
                pass
