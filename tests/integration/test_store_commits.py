"""The writer: what is acknowledged is durable, what fails fails alone, and readers see committed data only."""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store.models import Job, Subjob
from ejbd.store.states import IllegalTransition, JobState
from ejbd.store.store import Store
from ejbd.store.transitions import add_event, move_job, wake
from ejbd.wire.kinds import EventKind
from tests.integration.postgres import PostgresServer
from tests.store_fixtures import make_job, make_subjob


def add(job_id: str) -> Callable[[Session], str]:
    def change(session: Session) -> str:
        session.add(make_job(job_id))
        return job_id

    return change


def ids(session: Session) -> set[str]:
    return set(session.scalars(select(Job.id)))


class Gate:
    """Holds the writer inside a first function, so that what is queued meanwhile becomes one batch."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, session: Session) -> None:
        self.reached.set()
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


@contextmanager
def held(store: Store) -> Iterator[Gate]:
    gate = Gate()
    thread = threading.Thread(target=store.write_sync, args=(gate,))
    thread.start()
    assert gate.reached.wait(30)
    try:
        yield gate
    finally:
        gate.open()
        thread.join(30)


async def queue_together(store: Store, *changes: Callable[[Session], object]) -> list[object]:
    """The outcomes of `changes` run as one batch."""
    with held(store) as gate:
        tasks = [asyncio.create_task(store.write(change)) for change in changes]
        await asyncio.sleep(0)  # each has queued its function
        gate.open()
        return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_write_is_read_and_its_rows_stay_readable(store: Store) -> None:
    def change(session: Session) -> Job:
        job = make_job("j1", spec={"argv": ["a", "é", "'"]})
        session.add(job)
        session.add(make_subjob("j1"))
        return job

    job = await store.write(change)
    assert (job.seq, job.incarnation, job.spec) == (1, 1, {"argv": ["a", "é", "'"]})
    read = await store.read(lambda session: session.scalars(select(Job)).one())
    assert (read.id, read.spec) == ("j1", job.spec)


async def test_one_failing_function_among_many_fails_alone(store: Store) -> None:
    await store.write(add("taken"))

    def breaks(session: Session) -> None:
        session.add(make_job("broken"))
        session.flush()
        raise ValueError("mine alone")

    def illegal(session: Session) -> None:
        job = make_job("illegal")
        session.add(job)
        session.flush()
        move_job(session, job, JobState.ENDING, 1.0)

    changes = [add("a"), breaks, add("b"), add("taken"), illegal, add("c")]
    outcomes = await queue_together(store, *changes)
    assert [outcomes[0], outcomes[2], outcomes[5]] == ["a", "b", "c"]
    assert isinstance(outcomes[1], ValueError)
    assert isinstance(outcomes[3], IntegrityError)
    assert isinstance(outcomes[4], IllegalTransition)
    assert await store.read(ids) == {"taken", "a", "b", "c"}


async def test_a_function_that_swallows_a_database_error_fails_alone(store: Store) -> None:
    """PostgreSQL refuses everything after an error: that must not turn the others' commit into a rollback."""

    def swallows(session: Session) -> None:
        try:
            session.execute(text("SELECT * FROM there_is_no_such_table"))
        except Exception:
            session.add(make_job("afterwards"))

    outcomes = await queue_together(store, add("a"), swallows, add("b"))
    assert [outcomes[0], outcomes[2]] == ["a", "b"]
    assert {"a", "b"} <= await store.read(ids) == ({"a", "b"} if outcomes[1] else {"a", "b", "afterwards"})


async def test_cancelled_callers_do_not_break_the_batch(store: Store) -> None:
    with held(store) as gate:
        first = asyncio.create_task(store.write(add("a")))
        given_up = asyncio.create_task(store.write(add("given-up")))
        last = asyncio.create_task(store.write(add("b")))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        gate.open()
        assert [await first, await last] == ["a", "b"]
    assert given_up.cancelled()
    assert await store.read(ids) == {"a", "b"}


async def test_a_caller_cancelled_during_its_turn_has_its_change_made(store: Store) -> None:
    with held(store) as gate:  # the gate is itself such a function for its own thread
        inner = Gate()

        def change(session: Session) -> None:
            session.add(make_job("a"))
            inner(session)

        task = asyncio.create_task(store.write(change))
        await asyncio.sleep(0)
        gate.open()
        assert await asyncio.to_thread(inner.reached.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        inner.open()
    assert task.cancelled()
    assert await store.write(ids) == {"a"}


async def test_readers_see_no_uncommitted_data_and_do_not_wait(store: Store) -> None:
    await store.write(add("before"))
    gate = Gate()

    def change(session: Session) -> None:
        session.add(make_job("unfinished"))
        session.flush()
        gate(session)

    task = asyncio.create_task(store.write(change))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    assert await store.read(ids) == {"before"}
    gate.open()
    await task
    assert await store.read(ids) == {"before", "unfinished"}


async def test_a_reader_keeps_its_snapshot(store: Store) -> None:
    gate = Gate()

    def twice(session: Session) -> tuple[set[str], set[str]]:
        first = ids(session)
        gate(session)
        return first, ids(session)

    task = asyncio.create_task(store.read(twice))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await store.write(add("meanwhile"))
    gate.open()
    assert await task == (set(), set())


async def test_a_reader_cannot_write(store: Store) -> None:
    def flushes(session: Session) -> None:
        session.add(make_job("a"))
        session.flush()

    with pytest.raises((OperationalError, EjbError)):
        await store.read(flushes)
    with pytest.raises(RuntimeError, match=r"Store\.write"):
        await store.read(add("a"))
    assert await store.read(ids) == set()


async def test_wake_ups_come_after_the_commit_and_of_committed_functions_only(store: Store) -> None:
    told: list[tuple[frozenset[str], set[str], threading.Thread]] = []
    stop = store.on_commit(lambda topics: told.append((topics, store.read_sync(ids), threading.current_thread())))

    def event(session: Session) -> None:
        session.add(make_job("a"))
        add_event(session, EventKind.JOB_RECEIVED, 1.0, job_id="a")

    def breaks(session: Session) -> None:
        wake(session, "never")
        raise ValueError

    await queue_together(store, event, breaks, lambda session: wake(session, "worker:w1"))
    await asyncio.sleep(0)
    union = frozenset().union(*(topics for topics, _, _ in told))
    assert union == {"events", "job:a", "worker:w1"}
    assert all(seen == {"a"} and thread is threading.current_thread() for _, seen, thread in told)
    stop()
    told.clear()
    await store.write(lambda session: wake(session, "later"))
    await asyncio.sleep(0)
    assert told == []


def test_without_a_loop_a_listener_is_called_at_once(store: Store) -> None:
    told: list[frozenset[str]] = []

    def breaks(topics: frozenset[str]) -> None:
        raise ValueError("a listener's own fault")

    store.on_commit(breaks)
    store.on_commit(told.append)
    store.write_sync(lambda session: wake(session, "a"))
    assert told == [frozenset({"a"})]


def test_close_finishes_what_is_queued(store: Store, store_url: str) -> None:
    with held(store) as gate:
        waiting = [threading.Thread(target=store.write_sync, args=(add(f"j{n}"),)) for n in range(100)]
        for thread in waiting:
            thread.start()
        gate.open()
        for thread in waiting:
            thread.join(30)
    store.close()
    store.close()
    with pytest.raises(EjbError, match="closed"):
        store.write_sync(ids)
    with pytest.raises(EjbError, match="closed"):
        store.read_sync(ids)
    again = Store(store_url)
    assert again.read_sync(ids) == {f"j{n}" for n in range(100)}
    again.close()


async def test_a_wrong_statement_is_no_trouble_of_the_database(store: Store) -> None:
    with pytest.raises((OperationalError, ProgrammingError)):
        await store.write(lambda session: session.execute(text("SELECT no_such_column FROM jobs")))


async def test_a_function_cannot_wait_for_the_writer_that_runs_it(store: Store) -> None:
    with pytest.raises(RuntimeError, match="again"):
        await store.write(lambda session: store.write_sync(ids))


async def test_a_full_disk_undoes_the_batch_and_nothing_else(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    store.upgrade()
    await store.write(add("before"))

    def limit(pages: int) -> Callable[[Session], object]:
        return lambda session: session.execute(text(f"PRAGMA max_page_count={pages}")).scalar()

    async def fills(session_id: str) -> object:
        return await store.write(lambda session: session.add(make_job(session_id, spec={"x": "y" * 200_000})))

    await store.write(limit(1))  # SQLite takes the present size instead
    big = lambda session: session.add(make_job("big", spec={"x": "y" * 200_000}))  # noqa: E731
    outcomes = await queue_together(store, add("a"), add("b"), big)
    assert isinstance(outcomes[2], EjbError)
    assert outcomes[2].code is Code.STORE and outcomes[2].transient and "full" in outcomes[2].message
    acknowledged = {outcome for outcome in outcomes if isinstance(outcome, str)}
    refused = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    assert all(isinstance(outcome, EjbError) and outcome.code is Code.STORE for outcome in refused)
    assert await store.read(ids) == {"before"} | acknowledged
    await store.write(limit(1_000_000))
    await fills("fits")
    assert await store.read(ids) == {"before", "fits"} | acknowledged
    store.close()


async def test_a_commit_that_fails_fails_everybody_in_it(sqlite_url: str, tmp_path: Path) -> None:
    """The disk refuses the very pages of the commit: a limit on the size of files stands in for it."""
    store = Store(sqlite_url)
    store.upgrade()
    await store.write(add("before"))
    log = tmp_path / "ejbd.sqlite-wal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with held(store) as gate:
        changes = [lambda session, n=n: session.add(make_job(f"j{n}", spec={"x": "y" * 20_000})) for n in range(5)]
        tasks = [asyncio.create_task(store.write(change)) for change in changes]
        await asyncio.sleep(0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
        try:
            gate.open()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert all(isinstance(o, EjbError) and o.code is Code.STORE and o.transient for o in outcomes)
    assert await store.read(ids) == {"before"}
    await store.write(add("after"))
    assert await store.read(ids) == {"before", "after"}
    store.close()


@pytest.mark.postgresql
def test_a_database_in_sql_ascii_is_one_like_others(postgres_server: PostgresServer) -> None:
    """As createdb makes it under LANG=C. The daemon ended: "cannot use a string pattern on a bytes-like object"."""
    store = Store(postgres_server.new_database("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"))
    store.upgrade()
    store.write_sync(lambda session: session.add(make_job("a", name="Wärme")))
    assert store.read_sync(lambda session: session.scalar(select(Job.name))) == "Wärme"
    store.close()


@pytest.mark.postgresql
async def test_a_lost_connection_is_opened_again(postgres_tables_url: str) -> None:
    store, other = Store(postgres_tables_url), Store(postgres_tables_url)
    store.acquire_single_writer()

    def backend(session: Session) -> int:
        return int(session.execute(text("SELECT pg_backend_pid()")).scalar_one())

    def cut(pid: int) -> Callable[[Session], None]:
        return lambda session: session.execute(text(f"SELECT pg_terminate_backend({pid}, 10000)")).scalar_one()

    await other.write(cut(await store.write(backend)))
    assert await store.write(add("idle")) == "idle"  # lost while nobody wrote: nobody notices
    with pytest.raises(EjbError, match="another ejbd"):
        other.acquire_single_writer()  # the right to write came back with the connection

    def cut_in_the_middle(session: Session) -> None:
        session.add(make_job("cut"))
        session.flush()
        other.write_sync(cut(backend(session)))

    outcomes = await queue_together(store, add("a"), cut_in_the_middle, add("b"))
    assert isinstance(outcomes[1], EjbError) and outcomes[1].transient and outcomes[1].code is Code.STORE
    acknowledged = {outcome for outcome in outcomes if isinstance(outcome, str)}
    assert await store.read(ids) == {"idle"} | acknowledged
    await store.write(add("again"))
    assert await store.read(ids) == {"idle", "again"} | acknowledged
    store.close()
    other.close()


def test_rows_refer_to_rows_that_are_there(store: Store) -> None:
    with pytest.raises(IntegrityError):
        store.write_sync(lambda session: session.add(make_subjob("nobody")))
    assert store.read_sync(lambda session: session.scalar(select(func.count()).select_from(Subjob))) == 0
