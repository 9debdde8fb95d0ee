"""What is asked about the cluster and its queues, and what operators want of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ejbd.manager.acts.carrying import run
from ejbd.manager.facts import drains as known_drains
from ejbd.manager.facts.drains import ToldDrain
from ejbd.manager.poll.poller import Poller
from ejbd.manager.rules.looks import drains
from ejbd.manager.rules.queues import queuepause
from ejbd.manager.submission import queues
from ejbd.manager.submission.told import ToldQueue, ToldWindow
from ejbd.manager.telling.cluster import ToldCluster, told_cluster
from ejbd.manager.world import World


class SiteRequests:
    """Answers are as of the last poll."""

    def __init__(self, world: World, poller: Poller) -> None:
        self._world = world
        self._store = world.store
        self._context = world.context
        self._view = poller.view

    async def windows(self, queue: str | None) -> list[ToldWindow]:
        """The slots that could be used now, for one queue or all."""
        return queues.windows_of(await self._view(), queue, self._world.memory.promises.snapshot())

    async def cluster(self, user: str, sees_all: bool, since_s: float) -> ToldCluster:
        """What runs and is planned, as this user may see it; with subjobs that ended after `since_s`."""
        view = await self._view()
        return await self._store.read(lambda s: told_cluster(s, view, user, sees_all, since_s))

    async def queues(self) -> list[ToldQueue]:
        """Every queue with its elasticity."""
        view = await self._view()
        return await self._store.read(lambda s: queues.queues(self._context(s), view))

    async def set_queue(self, name: str, changes: dict[str, Any], by: str) -> ToldQueue:
        await self._store.write(lambda s: queues.set_queue(self._context(s), name, changes, by))
        return await self._queue(name)

    async def set_queue_window(self, name: str, when: str, changes: dict[str, Any], by: str) -> ToldQueue:
        """Have settings of a queue hold in a window of the week."""
        await self._view()
        await self._store.write(lambda s: run(self._context(s), queues.set_window, name, when, changes, by))
        return await self._queue(name)

    async def clear_queue_windows(self, name: str, when: str | None, by: str) -> ToldQueue:
        """Take out a window of a queue, or all of them."""
        await self._view()
        await self._store.write(lambda s: run(self._context(s), queues.clear_windows, name, when, by))
        return await self._queue(name)

    async def resume_queue(self, name: str, by: str) -> ToldQueue:
        """Try a paused queue again at once."""
        await self._view()
        await self._store.write(lambda s: run(self._context(s), queuepause.resume, name, by))
        return await self._queue(name)

    async def _queue(self, name: str) -> ToldQueue:
        return next(q for q in await self.queues() if q["name"] == name)

    async def drains(self) -> list[ToldDrain]:
        """What is drained for operators, the jobs that are still there, and when the nodes should be free."""
        view = await self._view()
        return await self._store.read(lambda s: known_drains.told(self._context(s), view))

    async def drain(self, nodes: str, by_s: float, by: str) -> list[ToldDrain]:
        """Have elastic jobs leave these nodes by a time; durable when this returns."""
        view = await self._view()
        await self._store.write(lambda s: run(self._context(s), drains.drain, view, nodes, by_s, by))
        await self._see_drains()
        return await self.drains()

    async def cancel_drain(self, nodes: str, by: str) -> list[ToldDrain]:
        """Use these nodes again."""
        await self._store.write(lambda s: run(self._context(s), drains.cancel, nodes, by))
        await self._see_drains()
        return await self.drains()

    async def _see_drains(self) -> None:
        """Windows are as of now, and not as of the next poll."""
        drained = await self._store.read(known_drains.reservations)
        if (view := self._world.view) is not None:
            self._world.view = replace(view, site_reservations=known_drains.with_drains(view, drained))
