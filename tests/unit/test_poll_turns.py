"""Polls come one at a time, and what can wait waits for one; so long a poll may last."""

from __future__ import annotations

import asyncio

from ejbd.manager.poll.oneatatime import OneAtATime


async def test_what_can_wait_waits_for_a_poll_and_not_for_ever() -> None:
    polls = OneAtATime()
    await asyncio.wait_for(polls.between(60), 30)
    async with polls:
        waits = asyncio.create_task(polls.between(60))
        await polls.between(0.01)  # its time is over, and the poll is not
        assert not waits.done()
    await asyncio.wait_for(waits, 30)


async def test_a_poll_that_fails_lets_the_next_one_and_all_that_wait_go_on() -> None:
    polls = OneAtATime()
    try:
        async with polls:
            raise RuntimeError
    except RuntimeError:
        pass
    async with polls:
        waits = asyncio.create_task(polls.between(60))
    await asyncio.wait_for(waits, 30)
