"""What the daemon remembers between transactions: one thread changes it, and those who read beside it see no change."""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy.orm import Session

from ejbd.core.overhead import Hop
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.history import History, Remembered
from ejbd.manager.facts.promises import Promise
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


async def test_what_is_read_does_not_change_while_it_is_read(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    promise = Promise("1", "eve", (), (), 4, 0.0)

    def learn(context: Context, number: int) -> None:
        context.fitting["batch", str(number)] = float(number)
        context.auto_on[f"queue-{number}"] = True
        context.seen[f"worker-{number}"] = float(number)
        context.memory.offers[f"user-{number}"] = ()
        context.promises.standing[str(number)] = promise
        context.promises.in_vain[str(number)] = 1.0

    await store.write(lambda s: learn(live.manager.world.context(s), 1))
    reads: Context = await store.read(lambda s: live.manager.world.context(s))
    six = reads.fitting, reads.auto_on, reads.seen, reads.memory.offers, reads.promises.standing, reads.promises.in_vain
    begun = [iter(one) for one in six]
    first = [next(one) for one in begun]
    await store.write(lambda s: learn(live.manager.world.context(s), 2))
    assert [list(one) for one in begun] == [[]] * 6, "half-way through, and nothing has come"
    assert len(first) == 6 and len(live.manager.world.memory.fitting) == 2, "the writer's own has it"


async def test_who_only_looks_leaves_no_trace(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    await live.poll(1)
    before = live.manager.world.memory.snapshot()
    reads: Context = await store.read(lambda s: live.manager.world.context(s))
    reads.auto_on["batch"] = True
    reads.fitting["batch", "7"] = 1.0
    assert live.manager.world.memory == before


async def test_reading_in_a_loop_beside_a_writer_never_fails(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    memory, over, errors = live.manager.world.memory, threading.Event(), []
    for number in range(200):
        memory.fitting["batch", str(number)] = 0.0

    def read() -> None:
        while not over.is_set():
            try:
                sum(since for (_, _), since in memory.snapshot().fitting.items())
            except RuntimeError as error:
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(4000):
        memory.fitting["batch", str(number)] = 1.0
        memory.fitting.pop(("batch", str(number - 150)), None)
    over.set()
    for reader in readers:
        reader.join(10)
    assert errors == []


class Emptied(dict[object, object]):
    """Another thread makes room whenever something was put in."""

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(key, value)
        self.clear()


async def test_what_is_read_of_the_history_may_be_let_go_by_another_thread_at_once(store: Store) -> None:
    remembered = Remembered(*(Emptied() for _ in range(7)))  # type: ignore[arg-type]

    def look(session: Session) -> list[object]:
        history = History(session, 0.0, remembered, None)
        return [history.moves("a"), history.ratios("a"), history.whole_runs("a"), *history.deltas("a"),
                history.hops(Hop.READY, "batch"), history.hops(Hop.LAUNCH, "batch", "a")]  # fmt: skip

    assert await store.read(look) == [[]] * 5


async def test_a_clock_that_is_set_moves_what_is_remembered(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    memory = live.manager.world.memory
    memory.seen["w"], memory.fitting["batch", "1"] = 10.0, 20.0
    memory.promises.standing["1"] = Promise("1", "eve", (), (), 4, 30.0)
    memory.shift(5.0)
    assert (memory.seen["w"], memory.fitting["batch", "1"], memory.promises.standing["1"].since_s) == (15.0, 25.0, 35.0)
