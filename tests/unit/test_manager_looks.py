"""When the batch system is looked at: the timer, what workers tell, and how few looks come of it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from ejbd.errors import BatchError
from ejbd.manager.poll import looks
from ejbd.manager.poll.looks import GAP_S, TOLD_GAP_S, Looks
from ejbd.manager.tasks import lookout
from ejbd.store.store import Store
from ejbd.store.transitions import LEFT_TOPIC, STARTED_TOPIC
from tests.fakes.live import LiveWorld, Worker

PERIOD_S = 10.0


def made(timed: Looks, until_s: float, asks: dict[float, tuple[float, bool]]) -> list[float]:
    """When looks are made until `until_s`; at the times of `asks` somebody asks (after_s, ends)."""
    now, found, left = 0.0, [], dict(sorted(asks.items()))
    while now <= until_s:
        first = next(iter(left), math.inf)
        due = max(now, timed.due_s())
        if first <= due:
            now = first
            after_s, ends = left.pop(first)
            timed.ask(now, after_s, ends=ends)
            continue
        now = due
        if now <= until_s:
            timed.pay(now)
            timed.begun(now)
            found.append(now)
    return found


def test_the_timer_alone() -> None:
    assert made(Looks(PERIOD_S, 4), 35.0, {}) == [0.0, 10.0, 20.0, 30.0]


def test_a_worker_that_has_started_is_seen_at_once_and_the_timer_begins_anew() -> None:
    assert made(Looks(PERIOD_S, 4), 35.0, {12.0: (0.0, False)}) == [0.0, 10.0, 12.0, 22.0, 32.0]


def test_what_is_told_together_is_seen_together() -> None:
    asks = {12.0 + n / 100: (0.0, False) for n in range(8)}
    assert made(Looks(PERIOD_S, 4), 20.0, asks) == [0.0, 10.0, 12.0, 12.0 + GAP_S]


def test_what_ends_after_something_else_is_seen_by_the_same_look() -> None:
    """Two workers leave, one a little after the other: the look for the first would still see the second's subjob."""
    assert made(Looks(PERIOD_S, 4), 20.0, {12.0: (0.5, True), 12.3: (0.5, True)}) == [0.0, 10.0, 12.8]


def test_what_goes_on_ending_puts_a_look_off_by_seconds_at_most() -> None:
    asks = {12.0 + n / 10: (0.5, True) for n in range(60)}
    assert made(Looks(PERIOD_S, 4), 14.6, asks)[:3] == [0.0, 10.0, 12.5 + looks.PUT_OFF_S]


def test_a_start_is_not_put_off_for_what_ends() -> None:
    asks = {12.0: (0.5, True), 12.1: (0.0, False), 12.2: (0.5, True)}
    assert made(Looks(PERIOD_S, 4), 20.0, asks)[:3] == [0.0, 10.0, 12.1]


def test_what_is_told_while_a_look_is_under_way_has_one_of_its_own() -> None:
    """It may be too late for that one: the batch system has answered before."""
    timed = Looks(PERIOD_S, 4)
    timed.begun(10.0)
    timed.ask(10.01)
    assert timed.due_s() == 10.0 + GAP_S
    timed.begun(10.0 + GAP_S)
    assert timed.due_s() == 10.0 + GAP_S + PERIOD_S


def test_a_worker_that_leaves_has_its_processors_looked_for_a_little_later() -> None:
    assert made(Looks(PERIOD_S, 4), 15.0, {11.0: (0.5, True)}) == [0.0, 10.0, 11.5]


def test_a_flood_of_workers_costs_few_looks() -> None:
    """In the long run one for every two of the timer's, behind some in a row."""
    asks = {n / 2: (0.0, False) for n in range(2000)}
    found = made(Looks(PERIOD_S, 4), 1000.0, asks)
    assert len(found) <= 1.5 * 1000 / PERIOD_S + 4 + 1
    assert len([at for at in found if at < PERIOD_S]) == 1 + 4


def test_ends_leave_some_for_starts() -> None:
    timed = Looks(PERIOD_S, 4)
    found = made(timed, 9.0, {1.0 + n: (0.0, True) for n in range(8)})
    assert len(found) == 1 + 4 - looks.KEPT_FOR_STARTS
    timed.ask(9.0)
    assert timed.due_s() == 9.0


def test_an_operator_may_have_none() -> None:
    assert made(Looks(PERIOD_S, 0), 25.0, {1.0: (0.0, False), 2.0: (0.5, True)}) == [0.0, 10.0, 20.0]


async def test_whoever_waits_is_woken() -> None:
    timed = Looks(3600.0, 4)
    await asyncio.wait_for(timed.wait(), 20)
    now = asyncio.get_running_loop().time
    timed.begun(now())
    waiting = asyncio.create_task(timed.wait())
    await asyncio.sleep(0)
    timed.ask(now())
    await asyncio.wait_for(waiting, 20)


def test_what_the_batch_system_tells_itself_is_seen_at_once_and_costs_no_early_look() -> None:
    timed = Looks(PERIOD_S, 0)
    timed.begun(10.0)
    timed.told(10.01)
    assert timed.due_s() == 10.0 + TOLD_GAP_S
    timed.pay(10.0 + TOLD_GAP_S)
    timed.begun(10.0 + TOLD_GAP_S)
    timed.ended(11.0)
    assert timed.due_s() == 10.0 + TOLD_GAP_S + PERIOD_S
    timed.told(11.1)
    assert timed.due_s() > 11.5, "looks that take long are made the less often"


class Telling:
    """Of a batch system, the telling alone: each number that it is given."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[int | BatchError] = asyncio.Queue()

    async def changed(self, since: int) -> int:
        found = await self.news.get()
        if isinstance(found, BatchError):
            raise found
        return found


async def test_a_change_that_is_told_is_looked_at_once_also_after_the_batch_system_was_away(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "RETRY_S", 0.01)
    live = LiveWorld(tmp_path, store)
    batch = Telling()
    told: asyncio.Queue[float] = asyncio.Queue()
    monkeypatch.setattr(live.manager.looks, "told", told.put_nowait)
    hearing = asyncio.create_task(live.manager.lookout.hear_changes(batch))
    for news in (0, 0, BatchError("it is away", transient=True), 1):
        batch.news.put_nowait(news)
    async with asyncio.timeout(60):
        for _ in range(2):
            await told.get()
    hearing.cancel()
    assert told.empty() and batch.news.empty(), "the same number twice is no news"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def test_a_worker_tells_that_it_leaves_and_needs_no_look_to_begin(live: LiveWorld) -> None:
    """What it tells is a topic of its commit."""
    told: set[str] = set()
    live.store.on_commit(lambda topics: told.update(topics & {STARTED_TOPIC, LEFT_TOPIC}), on_writer=True)
    job = await live.submit()
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    worker = live.workers[f"{job}.1"] = Worker(live, f"{job}.1", 4)
    await worker.register()
    await live.work()
    await live.poll(1)
    await worker.register()
    await live.work()
    assert told == set(), "its own word is enough"
    await worker.finish_ranks(1)
    await live.work()
    assert "exit" in [kind for kind, _ in worker.done]
    assert told == {LEFT_TOPIC}


async def test_a_worker_that_is_faster_than_the_answer_of_its_submission_is_looked_for_behind_it(
    live: LiveWorld,
) -> None:
    job = await live.submit()
    live.batch.lose_answers = 1
    await live.poll(1)
    worker = live.workers[f"{job}.1"] = Worker(live, f"{job}.1", 4)
    await worker.register()
    told: set[str] = set()
    live.store.on_commit(lambda topics: told.update(topics & {STARTED_TOPIC}), on_writer=True)
    live.clock.now += 6
    await live.act()
    assert live.subjobs(job)[1].batch_id is not None
    assert told == {STARTED_TOPIC}


async def test_whoever_acts_is_woken_for_a_new_job_and_for_the_pause_after_an_outcome_that_nobody_knows(
    live: LiveWorld,
) -> None:
    """Nothing else may happen for hours: the commit itself has to say so."""
    woken: list[list[str]] = []

    def note(topics: frozenset[str]) -> None:
        live.manager.woken(topics)
        if live.manager.acting.work.is_set():
            woken.append([intent.state for intent in live.intents("submit")])
        live.manager.acting.work.clear()

    live.store.on_commit(note, on_writer=True)
    live.batch.hang_submissions = 1
    job = await live.submit()
    assert live.intents("submit")[0].state == "unknown"
    assert woken[0] == [] and ["unknown"] in woken, "the job, before it had an intent, and the outcome"
    assert live.job(job).state == "waiting"


async def test_a_j0_without_workers_has_a_look_made_by_what_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "HEARS_S", 0.01)
    asked = asyncio.Event()
    timed = Looks(PERIOD_S, 4)
    monkeypatch.setattr(timed, "ask", lambda *_ignored, **_more: asked.set())

    async def poll() -> None: ...

    file = tmp_path / "told"
    file.write_text("")
    hearing = asyncio.create_task(lookout.Lookout(timed, poll).hear_file(file))
    try:
        await asyncio.sleep(0.1)
        assert not asked.is_set()
        for _ in range(1000):  # until the file system's clock has gone on
            file.write_text(".")
            await asyncio.sleep(0.01)
            if asked.is_set():
                break
        assert asked.is_set()
    finally:
        hearing.cancel()
