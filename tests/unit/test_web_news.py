"""Pages that are open hear that there is news: one look at the events for all that may see the same."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.config import Settings
from ejbd.manager.jobspec import JobRequest, read
from ejbd.store.models import Event
from ejbd.web.news import Crowd
from tests.fakes.port import FakeManager, job_row, new_store

BOUND_S = 60.0


class World:
    """A manager whose looks at its events are counted."""

    def __init__(self, folder: Path) -> None:
        self.manager = FakeManager(Settings(state_dir=folder), new_store(folder / "ejbd.sqlite"), "on")
        self.reads = 0
        self.read = asyncio.Event()
        self._read = self.manager.store.read
        self.manager.store.read = self._counted  # type: ignore[method-assign]

    async def _counted(self, fn: Any) -> Any:
        found = await self._read(fn)
        self.reads += 1
        self.read.set()
        return found

    async def tell(self, user: str) -> None:
        """Something happens to a job of this user."""
        at_s = time.time()

        def write(session: Any) -> None:
            id = f"{user}-{at_s:.0f}"[:16]
            row = job_row(id, read(JobRequest(cwd="/", command=("true",))).spec, user)
            session.merge(row) if session.get(type(row), id) is None else None
            session.flush()
            session.add(Event(at_s=at_s, job_id=id, kind="job.held", data={}))

        await self.manager.store.write(write)
        async with self.manager._events:
            self.manager._events.notify_all()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.manager.store.close()


async def until_looked(world: World, reads: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while world.reads < reads:
            world.read.clear()
            await world.read.wait()


async def test_a_hundred_pages_share_a_look_and_hear_of_what_they_may_see(world: World) -> None:
    crowds = [Crowd(world.manager, user, every_s=3600.0) for user in ("ada", "bob", None)]
    async with contextlib.AsyncExitStack() as there:
        for crowd in crowds:
            for _ in range(100):
                await there.enter_async_context(crowd.joined())
        adas, bobs, alls = ([asyncio.ensure_future(one.news(0, BOUND_S)) for _ in range(100)] for one in crowds)
        await until_looked(world, 6)  # of each the first look, and that of the wait for more
        before = world.reads
        await world.tell("ada")
        assert await asyncio.wait_for(asyncio.gather(*adas, *alls), BOUND_S) == [1] * 200
        assert world.reads - before < 12 and not any(one.done() for one in bobs)
        await world.tell("bob")
        assert await asyncio.wait_for(asyncio.gather(*bobs), BOUND_S) == [1] * 100
        # The others heard something just now: a page is told no more often than it looks anew.
        assert await crowds[2].news(1, 0.0) == 1
    assert all(crowd.broken for crowd in crowds)  # the last page has gone, and nothing looks at events any more


async def test_a_stream_ends_where_the_events_cannot_be_read_and_the_next_page_tries_again(world: World) -> None:
    crowd = Crowd(world.manager, None)

    async def fails(fn: Any) -> Any:
        raise OSError("no disk")

    good, world.manager.store.read = world.manager.store.read, fails  # type: ignore[method-assign]
    async with crowd.joined():
        assert await crowd.news(0, BOUND_S) == 0
        assert crowd.broken
        world.manager.store.read = good  # type: ignore[method-assign]
        async with crowd.joined():
            waits = asyncio.ensure_future(crowd.news(0, BOUND_S))
            await until_looked(world, 2)
            await world.tell("ada")
            assert await waits == 1


async def test_a_reader_that_takes_nothing_for_a_while_is_told_once_of_all_that_came(world: World) -> None:
    crowd = Crowd(world.manager, None, every_s=0.0)
    async with crowd.joined():
        await until_looked(world, 2)
        for told in range(1, 6):  # its stream is full, and nothing of it waits for news
            await world.tell(f"user{told}")
            async with asyncio.timeout(BOUND_S):
                while crowd.told < told:
                    await crowd.news(crowd.told, BOUND_S)
        assert await crowd.news(0, 0.0) == 5, "it is behind, and hears so at once"
        assert await crowd.news(5, 0.0) == 5, "once"
