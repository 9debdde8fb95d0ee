"""The one writer, and readers that never wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store import marks, schema
from ejbd.store.changes import ANY_JOB_TOPIC, WriterSession
from ejbd.store.engine import (
    in_transaction,
    is_sqlite,
    is_trouble,
    parse_url,
    place,
    reader_engine,
    store_error,
    writer_engine,
)
from ejbd.store.lock import SingleWriter
from ejbd.store.transitions import WAKE
from ejbd.store.turns import ASKER, UserTurns

BATCH = 64  # functions that share one commit
READERS = 4
READERS_OF_ONE = 1  # threads that one user's requests have at a time: most of a read is computing
WRITES_OF_ONE = 8  # functions of one user's requests that wait for the writer at a time

T = TypeVar("T")
OnCommit = Callable[[frozenset[str]], None]

log = structlog.get_logger(__name__)


class _Request(Generic[T]):
    """A function that waits for its turn, and where its answer goes."""

    __slots__ = ("fn", "future", "patient", "topics", "value")

    def __init__(self, fn: Callable[[Session], T], patient: bool) -> None:
        self.fn = fn
        self.patient = patient
        self.future: Future[T] = Future()
        self.value: T | None = None
        self.topics: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """How the writer is. `busy_s`: for how long it has been at one commit (0: it waits). `waiting`: functions that
    have not had their turn. `error`: why its last commit failed, "" where it did not; `failing_s`: for how long none
    has succeeded. `fenced`: another daemon writes."""

    alive: bool
    busy_s: float
    waiting: int
    error: str
    failing_s: float
    fenced: bool


class Store:
    """A database. All its changes go through one thread, several to a commit.

    Rows that a function returns are detached and stay readable. Errors of a function are raised to its own caller and
    undo its own changes only; trouble with the database itself is EjbError(store, transient).
    """

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self._writer = writer_engine(self.url)
        self._reader = reader_engine(self.url, READERS)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._reads, self._writes = UserTurns(READERS_OF_ONE), UserTurns(WRITES_OF_ONE)
        self._right = SingleWriter(self.url)
        self._right_wanted = False
        self._term: int | None = None
        self._fenced: EjbError | None = None
        self._on_fenced: Callable[[], None] | None = None
        self._queue: queue.SimpleQueue[_Request[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued behind the end
        self._closed = False
        self._listeners: list[tuple[OnCommit, asyncio.AbstractEventLoop | None]] = []
        # The writer thread's alone:
        self._connection: Connection | None = None
        self._right_held_by: Connection | None = None
        # Read by others, each a single value:
        self._proved_s = time.monotonic()
        self._busy_since: float | None = None
        self._failing_since: float | None = None
        self._error = ""
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    # -- what callers use

    async def write(self, fn: Callable[[Session], T], *, patient: bool = False) -> T:
        """Run `fn` on the writer's thread; its changes are durable when this returns. In order of arrival, and of one
        user's requests (:data:`ASKER`) some at a time. But of the `patient` ones only one goes with each commit while
        others wait: no caller waits for a long row of them.

        A caller that is cancelled before its turn leaves no trace; later, its changes are made without it. One gap is
        left open. A PostgreSQL connection may be lost in the very moment of the commit: that counts as a failure,
        though the server may have committed. A caller that repeats a change must be able to find it made.
        """
        async with self._writes.take(ASKER.get()):
            return await asyncio.wrap_future(self._enqueue(fn, patient))

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        """:meth:`write` for callers without an event loop. It blocks its thread."""
        return self._enqueue(fn).result()

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Run `fn` in a thread on one snapshot of what is committed. It cannot change anything. Of one user's requests
        one is carried out at a time."""
        async with self._reads.take(ASKER.get()):
            self._refuse_if_closed()
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, fn)

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """:meth:`read` for callers without an event loop. It blocks its thread."""
        self._refuse_if_closed()
        return self._read(fn)

    def writer_status(self) -> WriterStatus:
        """Whether changes are taken; for health and a watchdog. It waits for nothing."""
        now, busy, failing = time.monotonic(), self._busy_since, self._failing_since
        return WriterStatus(
            alive=self._thread.is_alive(),
            busy_s=now - busy if busy is not None else 0.0,
            waiting=self._queue.qsize(),
            error=self._error,
            failing_s=now - failing if failing is not None else 0.0,
            fenced=self.fenced,
        )

    def on_commit(self, callback: OnCommit, *, on_writer: bool = False) -> Callable[[], None]:
        """Have `callback` called with the topics of each commit, before its writers are answered. Returns how to stop
        it.

        It is called on the event loop that runs here and now; without one, or `on_writer`, on the writer's thread.
        There it is also called (`ANY_JOB_TOPIC`) for a commit that failed: the database may have made it all the same.
        """
        try:
            loop: asyncio.AbstractEventLoop | None = None if on_writer else asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        entry = (callback, loop)
        self._listeners = [*self._listeners, entry]  # replaced, never changed: the writer may be walking it

        def stop() -> None:
            self._listeners = [other for other in self._listeners if other is not entry]

        return stop

    def upgrade(self) -> None:
        """Bring the tables to this version. Raises EjbError if the database is of a newer one."""
        schema.upgrade(self.url)

    def acquire_single_writer(self) -> None:
        """Keep every other daemon off this database while this one lives.

        Raises EjbError (conflict) if one is there.
        """
        self._right_wanted = True
        try:
            self.write_sync(lambda session: None)
        except EjbError:
            self._right_wanted = False
            raise

    def begin_term(self, on_fenced: Callable[[], None] | None = None) -> None:
        """From now on this is the one daemon that writes: whichever did before never does again.

        Once another one has begun its own term, nothing is written here any more, also when that one has ended. Then
        `on_fenced` is called once, on the writer's thread, and every change is refused with EjbError (conflict).
        """
        self._on_fenced = on_fenced
        self._term = self.write_sync(marks.next_term)

    async def prove_term(self, within_s: float) -> None:
        """Return if this daemon had the right to write less than `within_s` seconds ago, else find out.

        A process may stand still between a commit and what it does next. Raises EjbError: CONFLICT where another daemon
        has begun its term, STORE where the database does not answer.
        """
        if time.monotonic() - self._proved_s >= within_s:
            await self.write(lambda session: None)

    def prove_term_now(self, within_s: float) -> None:
        """The same, for a thread that may wait. On the writer's own nothing is asked: it has just been proved there."""
        if self._fenced is not None:
            raise self._fenced
        if time.monotonic() - self._proved_s >= within_s and threading.current_thread() is not self._thread:
            self.write_sync(lambda session: None)

    @property
    def fenced(self) -> bool:
        """Whether another daemon has taken this database over."""
        return self._fenced is not None

    def close(self) -> None:
        """Finish what is queued, then let go of the database. Repeatable."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        self._readers.shutdown()
        self._reader.dispose()
        self._right.release()

    # -- the writer's thread

    def _enqueue(self, fn: Callable[[Session], T], patient: bool = False) -> Future[T]:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a function given to Store.write must not write through the store again")
        request = _Request(fn, patient)
        with self._gate:
            self._refuse_if_closed()
            self._queue.put(request)
        return request.future

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EjbError(Code.STORE, "the database is closed: the daemon is ending", where=place(self.url))

    def _work(self) -> None:
        ending = False
        patient: deque[_Request[Any]] = deque()
        while patient or not ending:
            batch: list[_Request[Any]] = []
            with contextlib.suppress(queue.Empty):
                while not ending and len(batch) < BATCH:
                    request = self._queue.get(block=not (batch or patient))
                    if request is None:
                        ending = True
                    else:
                        (patient if request.patient else batch).append(request)
            turn = 1 if batch else BATCH
            batch += [patient.popleft() for _ in range(min(turn, len(patient)))]
            waiting = deque(request for request in batch if request.future.set_running_or_notify_cancel())
            self._busy_since = time.monotonic()
            while waiting:
                try:
                    self._commit_together(waiting)
                except BaseException as error:  # a fault of this module's own: the callers are told, the thread lives
                    self._tell_failed(batch, error)
                    waiting.clear()
            self._busy_since = None
        self._disconnect()
        self._writer.dispose()

    def _commit_together(self, waiting: deque[_Request[Any]]) -> None:
        """Take functions off `waiting` until their one transaction has committed or failed; answer their callers."""
        try:
            connection = self._begin()
        except BaseException as error:
            self._fail(waiting, error)
            waiting.clear()
            return
        done: list[_Request[Any]] = []
        try:
            while waiting:
                done.append(waiting.popleft())  # before it runs: it shares the fate of the transaction
                if not self._run(connection, done[-1]):
                    done.pop()
            if not in_transaction(connection):
                raise RuntimeError("the transaction ended before its commit")
            # Nothing to keep: spare the disk.
            connection.commit() if done else connection.rollback()
        except BaseException as error:  # whatever it was, this thread lives on and every caller gets an answer
            self._fail(done, error)
            return
        self._error, self._failing_since = "", None
        self._announce(frozenset(topic for request in done for topic in request.topics))
        for request in done:
            request.future.set_result(request.value)

    def _run(self, connection: Connection, request: _Request[Any]) -> bool:
        """Run one function in a savepoint. False: it failed alone and has its error. Raises if the batch is lost."""
        session = WriterSession(connection, join_transaction_mode="create_savepoint", expire_on_commit=False)
        try:
            request.value = request.fn(session)
            session.commit()
            request.topics = session.info.get(WAKE, ())
            session.close()
        except BaseException as error:
            try:
                session.close()  # back to the savepoint
            except Exception as lost:
                raise (error if is_trouble(error) else lost)  # noqa: B904 - whichever tells of the database
            if not in_transaction(connection):
                raise
            request.future.set_exception(store_error(self.url, error) if is_trouble(error) else error)
            return False
        return True

    def _begin(self) -> Connection:
        """A connection with a transaction open, made anew if the last one was lost."""
        fresh = self._connection is None
        begun_s = time.monotonic()
        connection = self._connect()
        connection.begin()
        if is_sqlite(self.url):
            return connection
        try:
            # The driver begins the transaction with the first statement. It is the one that no commit is made without:
            # the right to write may have been another daemon's since the last one.
            if self._term is None:
                connection.exec_driver_sql("SELECT 1")
            term = marks.shared_term(connection) if self._term is not None else None
        except DBAPIError:
            if fresh:
                raise
            self._disconnect()  # lost between two writes, as by a restart of the server: it costs no caller a write
            return self._begin()
        if term != self._term:
            raise self._fence()
        self._proved_s = begun_s
        return connection

    def _connect(self) -> Connection:
        if self._fenced is not None:
            raise self._fenced
        if self._connection is None:
            self._connection = self._writer.connect()
        if self._right_wanted and self._right_held_by is not self._connection:
            try:
                self._right.take(self._connection)
            except EjbError as error:
                if error.code is Code.CONFLICT:
                    self._look_at_term(self._connection)
                raise
            self._look_at_term(self._connection)
            self._right_held_by = self._connection
        return self._connection

    def _look_at_term(self, connection: Connection) -> None:
        """A new connection: another daemon may have written since the last one, and nothing known here holds then."""
        if self._term is None:
            return
        term = marks.term_now(connection)
        connection.rollback()
        if term != self._term:
            raise self._fence()

    def _fence(self) -> EjbError:
        """From now on every change is refused with the error that this returns."""
        self._fenced = EjbError(
            Code.CONFLICT,
            "another ejbd has taken this database over",
            where=place(self.url),
            hint="this one writes no more; start it again when the other one has ended",
        )
        if self._on_fenced is not None:
            with contextlib.suppress(Exception):
                self._on_fenced()
        return self._fenced

    def _disconnect(self) -> None:
        connection, self._connection, self._right_held_by = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it is given up because it does not work
                connection.close()

    def _fail(self, requests: Iterable[_Request[Any]], error: BaseException) -> None:
        self._disconnect()
        self._announce(frozenset({ANY_JOB_TOPIC}), elsewhere=False)
        told = error if isinstance(error, EjbError) else store_error(self.url, error)
        self._error = told.message
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        self._tell_failed(requests, error)
        with contextlib.suppress(Exception):  # the log may be on the very disk that is full
            log.error("store.transaction-failed", error=told.message, database=place(self.url))

    def _tell_failed(self, requests: Iterable[_Request[Any]], error: BaseException) -> None:
        """Raise the error to callers that have no answer yet."""
        for request in requests:  # an error each: raised in several tasks, one would gather their tracebacks
            if not request.future.done():
                request.future.set_exception(error if isinstance(error, EjbError) else store_error(self.url, error))

    def _announce(self, topics: frozenset[str], *, elsewhere: bool = True) -> None:
        for callback, loop in self._listeners if topics else ():
            try:
                if loop is None:
                    callback(topics)
                elif elsewhere:
                    loop.call_soon_threadsafe(callback, topics)
            except Exception:  # a listener's fault, or its loop has ended: the commit stands
                with contextlib.suppress(Exception):
                    log.exception("store.listener-failed")

    # -- the readers' threads

    def _read(self, fn: Callable[[Session], T]) -> T:
        try:
            with Session(self._reader, expire_on_commit=False) as session:
                value = fn(session)
                if session.new or session.dirty or session.deleted:
                    raise RuntimeError("a function given to Store.read changed rows: give it to Store.write")
                return value
        except DBAPIError as error:
            if is_trouble(error):
                raise store_error(self.url, error) from error
            raise
