"""Retention takes what is old and finished, in small steps, and nothing else."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.config import Settings
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.manager import Manager
from ejbd.manager.world import World
from ejbd.store.models import Base, Event, IdempotencyKey, Intent, Job, Launch, Move, Operation, Run, Speed, Worker
from ejbd.store.retention import DAY_S, in_use, prune, prune_all
from ejbd.store.store import Store
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind
from tests.fakes.batch import Clock, MemoryBatch
from tests.store_fixtures import make_epoch, make_job, make_move, make_speed, make_subjob

NOW = 1_000 * DAY_S
OLD = NOW - 91 * DAY_S
EVENTS = 25


def whole_life(session: Session, job_id: str, *, subjob: str = "completed", intent: str = "done", **job: Any) -> None:
    """A job with one of everything, and its events."""
    session.add(make_job(job_id, submit_s=OLD, **job))
    session.flush()
    session.add_all([make_subjob(job_id, state=subjob), make_epoch(job_id, 1, OLD)])
    session.add(Launch(job_id=job_id, ordinal=0, state="ended", size=4, file="f", created_s=OLD, work_at_start_s=0.0))
    session.add(Intent(kind="submit", job_id=job_id, state=intent, created_s=OLD))
    session.add(IdempotencyKey(user="ada", key=job_id, request_hash="h", job_id=job_id, created_s=OLD))
    session.flush()
    session.add(
        Worker(
            id=f"w-{job_id}",
            subjob_id=f"{job_id}.0",
            job_id=job_id,
            node="n1",
            host="h",
            address="127.0.0.1",
            boot="b",
            pid=1,
            processors=4,
            registered_s=OLD,
            last_seen_s=OLD,
        )
    )
    session.flush()
    session.add(Operation(worker_id=f"w-{job_id}", job_id=job_id, kind="exit", payload={}, state="done", created_s=OLD))
    for n in range(EVENTS):
        add_event(session, EventKind.JOB_FAULT, OLD, job_id=job_id, n=n)


def census(session: Session) -> dict[str, int]:
    return {
        table.name: session.scalar(select(func.count()).select_from(table)) or 0
        for table in Base.metadata.sorted_tables
    }


async def test_an_old_finished_job_goes_with_all_that_is_its_own(store: Store) -> None:
    await store.write(lambda s: whole_life(s, "old", state="completed", end_s=OLD))
    went = await prune_all(store, NOW, 90.0)
    assert set((await store.read(census)).values()) == {0}
    assert went == EVENTS + 8


@pytest.mark.parametrize(
    "life",
    [
        {"state": "running"},
        {"state": "ending", "end_s": OLD},
        {"state": "completed", "end_s": NOW - 89 * DAY_S},
        {"state": "cancelled", "end_s": OLD, "subjob": "pending"},
        {"state": "cancelled", "end_s": OLD, "intent": "unknown"},
    ],
)
async def test_what_lives_or_is_recent_stays_whole(store: Store, life: dict[str, Any]) -> None:
    await store.write(lambda s: whole_life(s, "kept", **life))
    before = await store.read(census)
    assert await prune_all(store, NOW, 90.0) == 0
    assert await store.read(census) == before


async def test_old_events_of_no_job_go_and_recent_ones_stay(store: Store) -> None:
    def happen(session: Session) -> None:
        session.add(make_job("live", state="running"))
        add_event(session, EventKind.DAEMON_STARTED, OLD)
        add_event(session, EventKind.DAEMON_STARTED, NOW - DAY_S)
        add_event(session, EventKind.JOB_RUNNING, OLD, job_id="live")

    await store.write(happen)
    assert await prune_all(store, NOW, 90.0) == 1
    left = await store.read(lambda s: list(s.scalars(select(Event).order_by(Event.id))))
    assert [(event.at_s, event.job_id) for event in left] == [(NOW - DAY_S, None), (OLD, "live")]


async def test_old_measurements_go_and_recent_ones_stay(store: Store) -> None:
    def measure(session: Session) -> None:
        for at_s in (OLD, NOW - DAY_S):
            session.add(make_move(at_s))
            session.add(make_speed(at_s))
            session.add(Run(application="heat", work="w", job_id="a", at_s=at_s, full_s=90.0, over={}))

    await store.write(measure)
    assert await store.write(lambda s: prune(s, NOW, 90.0, rows=1)) == 1
    assert await prune_all(store, NOW, 90.0) == 2
    for at_s in (Move.at_s, Speed.at_s, Run.at_s):
        assert await store.read(lambda s, at_s=at_s: [*s.scalars(select(at_s))]) == [NOW - DAY_S]  # type: ignore[misc]


async def test_a_batch_is_bounded_and_the_next_one_goes_on(store: Store) -> None:
    for n in range(3):
        store.write_sync(partial(whole_life, job_id=f"old{n}", state="failed", end_s=OLD))
    await store.write(lambda s: whole_life(s, "live", state="running"))
    rows = 10
    steps = []
    while went := await store.write(lambda s: prune(s, NOW, 90.0, rows=rows)):
        steps.append(went)
        assert len(steps) < 50
    # The few rows that go with a job itself may go beyond the bound.
    assert max(steps) <= rows + 6 and sum(steps) == 3 * (EVENTS + 8)
    assert await store.read(lambda s: list(s.scalars(select(Job.id)))) == ["live"]
    assert (await store.read(census))["events"] == EVENTS


async def test_numbers_are_never_given_again(store: Store) -> None:
    """Readers ask for the events after the last number that they saw."""
    await store.write(lambda s: whole_life(s, "old", state="completed", end_s=OLD))
    last = await store.read(lambda s: s.scalar(select(func.max(Event.id))))
    await prune_all(store, NOW, 90.0)
    await store.write(lambda s: add_event(s, EventKind.DAEMON_STARTED, NOW))
    new = await store.read(lambda s: s.scalar(select(func.max(Event.id))))
    assert last is not None and new is not None and new > last


async def test_the_files_of_a_job_are_wanted_until_it_has_ended_for_good(store: Store) -> None:
    def fill(session: Session) -> None:
        whole_life(session, "ended", state="completed", end_s=NOW - 4 * DAY_S)
        whole_life(session, "fresh", state="failed", end_s=NOW - 1 * DAY_S)
        whole_life(session, "alive", state="running")
        whole_life(session, "held-up", state="cancelled", end_s=NOW - 9 * DAY_S, subjob="running")
        whole_life(session, "in-doubt", state="cancelled", end_s=NOW - 9 * DAY_S, intent="unknown")

    await store.write(fill)
    assert await store.read(lambda s: in_use(s, NOW, 3.0)) == {"fresh", "alive", "held-up", "in-doubt"}


async def test_the_folder_of_a_job_goes_long_before_its_events(store: Store, tmp_path: Path) -> None:
    """14 inodes a job were kept for 90 days; jobs that the database does not know, and those that live, as ever."""

    def fill(session: Session) -> None:
        whole_life(session, "ended", state="completed", end_s=NOW - 4 * DAY_S)
        whole_life(session, "alive", state="running")

    await store.write(fill)
    manager = Manager(
        World(Settings(state_dir=tmp_path), store, MemoryBatch(Clock()), clock=SteadyClock(lambda: NOW, lambda: NOW))
    )
    manager.world.spool.prepare()
    for job in ("ended", "alive", "forgotten"):
        manager.world.spool.make_job(job, env={}, script=None, command=None)
    await manager.prune()
    assert manager.world.spool.job_folders() == {"alive"}
    assert (await store.read(census))["jobs"] == 2
