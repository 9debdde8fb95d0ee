"""The database fails between an action at the batch system and its record: nothing is stuck, doubled or lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import structlog
from sqlalchemy import select

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.core.view import BatchState
from ejbd.errors import Code, EjbError
from ejbd.log.stream import Unbreakable
from ejbd.store.models import Job
from ejbd.store.store import Store
from tests.acceptance.sites import small_file_system
from tests.fakes.batch import MemoryBatch
from tests.fakes.live import LiveWorld
from tests.integration.postgres import PostgresServer, why_not
from tests.store_fixtures import make_job

T = TypeVar("T")


class FailingStore:
    """The executor's way to the store, which fails while `failing`; `made`: the change is made all the same."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failing = False
        self.made = False

    async def write(self, fn: Callable[[Any], T], *, patient: bool = False) -> T:
        value = None
        if not self.failing or self.made:
            value = await self.store.write(fn, patient=patient)
        if self.failing:
            raise EjbError(Code.STORE, "the database did not take the change: it fails", transient=True)
        return value  # type: ignore[return-value]

    async def read(self, fn: Callable[[Any], T]) -> T:
        return await self.store.read(fn)

    def read_sync(self, fn: Callable[[Any], T]) -> T:
        return self.store.read_sync(fn)


class ThenFails(MemoryBatch):
    """Takes an action, and has something happen before its answer is recorded."""

    then: Callable[[], None] | None = None

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        id = await super().submit(identity, request)
        if self.then is not None:
            self.then()
        return id

    async def cancel(self, identity: Identity, ids: Any) -> None:
        await super().cancel(identity, ids)
        if self.then is not None:
            self.then()


def world(tmp_path: Path, store: Store) -> tuple[LiveWorld, ThenFails]:
    live = LiveWorld(tmp_path, store)
    batch = ThenFails(live.clock, free=0)
    live.batch = live.manager.world.batch = live.executor.batch = batch
    return live, batch


@pytest.fixture
def sqlite(tmp_path: Path, sqlite_with_tables: Path) -> Iterator[Store]:
    shutil.copyfile(sqlite_with_tables, tmp_path / "ejbd.sqlite")
    store = Store(f"sqlite:///{tmp_path / 'ejbd.sqlite'}")
    yield store
    store.close()


async def submit(live: LiveWorld) -> str:
    """Submit a job whose first pass of the executor may fail; its id."""
    with contextlib.suppress(EjbError):
        await live.submit()
    return live.store.read_sync(lambda s: s.scalars(select(Job.id)).one())


async def passes(live: LiveWorld, count: int = 4) -> None:
    """What the daemon's own loop does: a pass that fails is followed by another a little later."""
    for _ in range(count):
        with contextlib.suppress(EjbError):
            await live.act()
        live.clock.now += 6


def once(live: LiveWorld, job: str) -> None:
    """J0 is one batch job, known by its id, and no intent is left over."""
    assert [j.name for j in live.batch.jobs.values()] == [f"ejb-{job}.0"]
    assert live.subjobs(job)[0].batch_id == next(iter(live.batch.jobs))
    assert [i.state for i in live.intents("submit")] == ["done"]


@pytest.mark.parametrize("made", [False, True], ids=["not-made", "made-all-the-same"])
async def test_a_submission_that_could_not_be_recorded_is_recorded_later(
    tmp_path: Path, sqlite: Store, made: bool
) -> None:
    """Also where the commit was made and its answer lost. The batch system need not remember the job by then."""
    live, batch = world(tmp_path, sqlite)
    failing = FailingStore(sqlite)
    live.executor.store = failing  # type: ignore[assignment]

    def fail() -> None:
        failing.failing, failing.made = True, made

    batch.then = fail
    job = await submit(live)
    await passes(live)
    assert live.batch.calls.count(f"submit ejb-{job}.0") == 1
    failing.failing, batch.then = False, None
    await passes(live)
    once(live, job)
    assert "find" not in live.batch.calls, "what is known is not asked for"


async def test_a_submission_whose_beginning_was_lost_is_looked_up_and_made_once(tmp_path: Path, sqlite: Store) -> None:
    """The commit that marks it as executing was made, and told as failed: nobody is at it."""
    live, _ = world(tmp_path, sqlite)
    failing = FailingStore(sqlite)
    live.executor.store = failing  # type: ignore[assignment]
    begin = live.executor.asking.begin

    def fails(*args: Any) -> Any:
        failing.failing = failing.made = True
        return begin(*args)

    live.executor.asking.begin = fails  # type: ignore[method-assign,assignment]
    job = await submit(live)
    live.executor.asking.begin = begin  # type: ignore[method-assign]
    assert [i.state for i in live.intents("submit")] == ["executing"]
    failing.failing = False
    await passes(live, 1)
    assert [i.state for i in live.intents("submit")] == ["unknown"]
    await passes(live)
    once(live, job)
    assert live.batch.calls.count("find") == 2, "its absence is proved twice before it is repeated"


async def test_a_cancellation_that_could_not_be_recorded_is_recorded_later(tmp_path: Path, sqlite: Store) -> None:
    live, batch = world(tmp_path, sqlite)
    job = await submit(live)
    failing = FailingStore(sqlite)
    live.executor.store = failing  # type: ignore[assignment]
    batch.then = lambda: setattr(failing, "failing", True)
    await live.manager.cancel(job, "ada")
    await passes(live, 2)
    failing.failing, batch.then = False, None
    await passes(live, 2)
    assert [i.state for i in live.intents("cancel")] == ["done"]
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED


async def test_postgresql_restarted_between_sbatch_and_its_record(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    server = PostgresServer()
    store = None
    try:
        store = Store(server.new_database())
        store.upgrade()
        store.acquire_single_writer()
        live, batch = world(tmp_path, store)
        batch.then = server.halt
        with pytest.raises(EjbError):
            await live.submit()
        batch.then = None
        server.start()
        job = store.read_sync(lambda s: s.scalars(select(Job.id)).one())
        await passes(live)
        once(live, job)
    finally:
        if store is not None:
            store.close()
        server.stop()


async def test_the_disk_full_between_sbatch_and_its_record(tmp_path: Path) -> None:
    """SQLite's own disk; the log is on it, too. The writer lives, changes are refused, and all goes on with room."""
    with small_file_system(tmp_path / "disk", "4m") as disk:
        store = Store(f"sqlite:///{disk / 'ejbd.sqlite'}")
        store.upgrade()
        live, batch = world(tmp_path, store)
        file = (disk / "log").open("w")
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(Unbreakable(file)))  # type: ignore[arg-type]
        try:
            batch.then = lambda: fill(disk)
            job = await submit(live)
            with pytest.raises(EjbError, match="full"):
                await store.write(lambda s: s.add(make_job("other", spec={"x": "y" * 100_000})))
            await passes(live)
            status = store.writer_status()
            assert status.alive and "full" in status.error and status.failing_s > 0
            batch.then = None
            (disk / "ballast").unlink()
            await passes(live)
            once(live, job)
            assert store.writer_status().error == "" and store.writer_status().failing_s == 0
        finally:
            structlog.reset_defaults()
            file.close()
            store.close()


async def test_a_fault_of_a_log_does_not_end_the_writer(
    tmp_path: Path, sqlite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever raises in the writer's thread, its callers are answered and it takes the next change."""

    def breaks(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ejbd.store.store.log", type("Log", (), {"error": breaks, "exception": breaks}))
    monkeypatch.setattr(sqlite, "_begin", breaks)
    for _ in range(2):
        with pytest.raises(EjbError):
            await sqlite.write(lambda s: None)
    monkeypatch.undo()
    monkeypatch.setattr(sqlite, "_fail", breaks)
    monkeypatch.setattr(sqlite, "_begin", breaks)
    with pytest.raises(EjbError):
        await sqlite.write(lambda s: None)
    monkeypatch.undo()
    assert await sqlite.write(lambda s: 7) == 7 and sqlite.writer_status().alive


def fill(folder: Path) -> None:
    """Leave no room at all."""
    with contextlib.suppress(OSError), (folder / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
