"""Elastic jobs that run are read again when a commit has changed their rows, and at no other poll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from ejbd.manager.facts.context import Context
from ejbd.manager.poll.tick import Tick
from ejbd.store.models import Base, Epoch, Job, Launch, Operation, Subjob, Worker
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def run_for_a_while(live: LiveWorld) -> str:
    """A job on its J0, looked at often enough that its rows are kept."""
    live.batch.free = 0
    job = await live.submit()
    await live.begin(f"{job}.0")
    for _ in range(3):
        await live.poll(5)
    assert [epoch.state for epoch in live.epochs(job)] == ["running"]
    return job


class Queries:
    """Statements about the rows beside those of jobs and subjobs, of the writer's and of readers'."""

    def __init__(self, store: Store) -> None:
        self.made: list[str] = []
        for engine in (store._writer, store._reader):
            event.listen(engine, "before_cursor_execute", self._executed)

    def _executed(self, _connection: object, _cursor: object, statement: str, *_more: object) -> None:
        tables = (Epoch.__tablename__, Launch.__tablename__, Operation.__tablename__)
        if any(f"FROM {table}" in statement for table in tables):
            self.made.append(statement)


async def test_a_job_that_goes_on_as_it_is_is_not_read(live: LiveWorld) -> None:
    job = await run_for_a_while(live)
    queries = Queries(live.store)
    for _ in range(3):
        await live.poll(5)
    assert not queries.made
    await live.workers[f"{job}.0"].report("sample", epoch=1, resident=1000)
    queries.made.clear()
    await live.poll(5)
    assert queries.made, "what a worker has told may matter"


CHANGES: dict[type[Base], tuple[str, Any]] = {
    Job: ("move_not_before_s", 1.0),
    Subjob: ("reason", "other"),
    Worker: ("resident_bytes", 7),
    Epoch: ("reason", "other"),
    Launch: ("name", "other"),
    Operation: ("error", "other"),
}


@pytest.mark.parametrize("model", CHANGES, ids=lambda model: model.__name__)
async def test_whatever_row_of_it_is_changed_has_it_read(live: LiveWorld, model: Any) -> None:
    job = await run_for_a_while(live)
    column, value = CHANGES[model]
    kept = (await live.manager.poller.open.now()).running

    def is_kept(session: Session) -> bool:
        return kept.get(live.manager.world.context(session), job) is not None

    def change(session: Session) -> bool:
        """Whether it is still taken for what it was, in the very transaction that changes it."""
        of = model.id if model is Job else model.job_id
        setattr(session.scalars(select(model).where(of == job)).first(), column, value)
        session.flush()
        return is_kept(session)

    assert await live.store.write(is_kept)
    assert not await live.store.write(change)
    assert not await live.store.write(is_kept)
    await live.manager.poller.open.now()
    assert not await live.store.write(is_kept)
    await live.poll(5)
    assert await live.store.write(is_kept)


async def test_what_a_failed_poll_had_of_it_is_forgotten(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await run_for_a_while(live)
    step = Tick.step

    def fails(tick: Tick, ctx: Context) -> bool:
        step(tick, ctx)
        raise RuntimeError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Tick, "step", fails)
        with pytest.raises(RuntimeError, match="refused"):
            await live.poll(5)
    assert job not in live.manager.poller.open._running
