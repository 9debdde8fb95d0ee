"""Windows shorter than a job's request: what is sent there is chosen beside the writer."""

from __future__ import annotations

import asyncio

from ejbd.manager.acts.carrying import run
from ejbd.manager.rules.learning import gaps
from ejbd.manager.world import World


async def fill_gaps(world: World) -> None:
    """Jobs go into windows shorter than their request: chosen beside the writer, and looked at again on it."""
    store = world.store
    stands, found = await store.read(lambda s: (gaps.any_stands(s), gaps.look(world.context(s))))
    if stands:
        await store.write(lambda s: run(world.context(s), gaps.mind))
    chosen, world.memory.gap_verdicts = await asyncio.to_thread(gaps.choose_all, found) if found else ([], {})
    for one in chosen:
        await store.write(lambda s, one=one: run(world.context(s), gaps.send, one))  # type: ignore[misc]
