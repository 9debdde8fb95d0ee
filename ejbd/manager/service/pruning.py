"""What is old goes: rows of the database, folders of spools."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from ejbd.manager.service.ends import drop_ends
from ejbd.manager.world import World
from ejbd.store.models import Job
from ejbd.store.retention import DAY_S, in_use, prune_all, prune_others


async def prune(world: World) -> None:
    """Let go of what is older than the limits say."""
    limits, store = world.settings.limits, world.store
    now = world.clock() - world.ahead_s  # a clock that was set to next year ages nothing
    await prune_all(store, now, limits.event_retention_days)
    await prune_others(store, now, limits.others_retention_days, limits.event_retention_days)
    await asyncio.to_thread(drop_ends, world.spool, now - limits.event_retention_days * DAY_S)
    # Before the database is asked: the row of a job is there before its folder.
    users = await store.read(lambda s: list(s.scalars(select(Job.user).distinct())))
    there = await asyncio.to_thread(world.hands.job_folders, users)
    kept = await store.read(lambda s: in_use(s, now, limits.spool_retention_days))
    for spool, jobs in there:
        await asyncio.to_thread(spool.drop_jobs, jobs - kept)
