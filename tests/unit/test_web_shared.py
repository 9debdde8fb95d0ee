"""What a hundred browsers ask for at once is made once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ejbd.api import events
from ejbd.web.shared import Shared


class Maker:
    """Counts what it makes, which it does once it is let."""

    def __init__(self) -> None:
        self.made = 0
        self.let = asyncio.Event()
        self.fails = False

    async def __call__(self) -> int:
        self.made += 1
        number = self.made
        await self.let.wait()
        if self.fails:
            raise ValueError("no")
        return number


async def test_all_that_ask_while_an_answer_is_made_and_just_after_it_share_it() -> None:
    shared, make = Shared[int](most_s=60.0), Maker()
    asking = [asyncio.ensure_future(shared.get("a", make)) for _ in range(100)]
    await asyncio.sleep(0.01)
    make.let.set()
    assert await asyncio.gather(*asking) == [1] * 100
    assert (await shared.get("b", make), make.made) == (2, 2)  # another question


async def test_an_answer_that_fails_is_made_anew_for_the_next_one_and_none_is_kept_at_0() -> None:
    shared, make = Shared[int](most_s=60.0), Maker()
    make.let.set()
    make.fails = True
    with pytest.raises(ValueError, match="no"):
        await shared.get("a", make)
    make.fails = False
    assert await shared.get("a", make) == 2
    anew = Shared[int](most_s=0.0)
    assert [await anew.get("a", make), await anew.get("a", make)] == [3, 4]


async def test_one_that_goes_away_takes_the_answer_from_no_other() -> None:
    shared, make = Shared[int](most_s=60.0), Maker()
    first, second = (asyncio.ensure_future(shared.get("a", make)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    make.let.set()
    assert await second == 1


async def test_streams_of_the_same_events_share_a_look_that_is_under_way_and_no_earlier_one() -> None:
    let, reads = asyncio.Event(), 0

    async def read(look: Any) -> Any:
        nonlocal reads
        reads += 1
        await let.wait()
        return events._Look((), False, reads)

    manager: Any = SimpleNamespace(store=SimpleNamespace(read=read))
    looks: events.Looks = {}
    ask = [(7, "ada")] * 50 + [(7, "bob")]
    asking = [asyncio.ensure_future(events._look(looks, manager, cast(Any, None), *one)) for one in ask]
    await asyncio.sleep(0.01)
    let.set()
    await asyncio.gather(*asking)
    assert reads == 2 and looks == {}
    await events._look(looks, manager, cast(Any, None), 7, "ada")
    assert reads == 3
