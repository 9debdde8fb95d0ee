"""Connections: what SQLite and PostgreSQL need set so that a commit is durable and savepoints work."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.pool import NullPool

from ejbd.errors import Code, EjbError

BUSY_TIMEOUT_S = 10.0  # SQLite: how long to wait for another process that holds the file
WAL_PAGES = 8_000  # SQLite: the log that is copied into the file; a page that a thousand runs change is copied once
# PostgreSQL over a network: a connection that was cut is noticed within ten seconds or so, not in a quarter of an hour.
_NOTICED: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
WRITER_CACHE_KIB = 65_536  # SQLite: pages of indices that a million rows are taken in to; its own 2 MB read them again


def parse_url(url: str) -> URL:
    """Check a database URL and name its driver. Raises EjbError for what the store cannot be held in."""
    hint = "sqlite:////absolute/path.sqlite or postgresql://user@host/database"
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise EjbError(Code.INVALID, "the database URL cannot be read", hint=hint) from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if parsed.database in (None, "", ":memory:") or str(parsed.database).startswith("file:"):
                raise EjbError(Code.INVALID, "an SQLite database must be a plain file", hint=hint)
            return parsed.set(drivername="sqlite+pysqlite")
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise EjbError(Code.INVALID, f"databases of kind {other!r} are not supported", hint=hint)


def place(url: URL) -> str:
    """The database's URL as a person may see it, without a password."""
    return url.render_as_string(hide_password=True)


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def database_file(url: URL) -> Path:
    return Path(str(url.database))


def writer_engine(url: URL) -> Engine:
    """One connection at a time, transactions that lock at once, commits that are on the disk when they return."""
    if is_sqlite(url):
        _make_private(database_file(url))
        bulk = f"cache_size=-{WRITER_CACHE_KIB}", f"wal_autocheckpoint={WAL_PAGES}"
        return _sqlite_engine(url, "BEGIN IMMEDIATE", "foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL", *bulk)
    return _postgresql_engine(url, poolclass=NullPool)


def reader_engine(url: URL, threads: int) -> Engine:
    """Connections for up to `threads` readers, each transaction one snapshot that cannot be written to."""
    if is_sqlite(url):
        return _sqlite_engine(url, "BEGIN", "query_only=ON", pool_size=threads)
    engine = _postgresql_engine(url, pool_size=threads, max_overflow=0, pool_pre_ping=True)
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def migration_engine(url: URL) -> Engine:
    """As the writer's, but without foreign keys in SQLite, where tables are altered by making them anew."""
    if is_sqlite(url):
        _make_private(database_file(url))
        return _sqlite_engine(url, "BEGIN IMMEDIATE", "journal_mode=WAL", "synchronous=FULL")
    return _postgresql_engine(url, poolclass=NullPool)


def in_transaction(connection: Connection) -> bool:
    """Whether the database still holds this connection's transaction.

    SQLite gives a whole transaction up when the disk is full, and a commit after that would succeed with nothing in it.
    """
    if connection.closed or connection.invalidated:
        return False
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        return bool(driver.in_transaction)
    return driver is not None and driver.info.transaction_status.name == "INTRANS"


def is_trouble(error: BaseException) -> bool:
    """Whether the database, not the statement, is at fault: disk full, connection lost, locked for too long."""
    if not isinstance(error, DBAPIError) or isinstance(error, IntegrityError | DataError | ProgrammingError):
        return False
    # SQLite's word for a statement that cannot be right is an OperationalError too, told apart by its number.
    return getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR


def store_error(url: URL, error: BaseException) -> EjbError:
    """What the database said first, as the one error that callers of the store meet."""
    error = _first_trouble(error)
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(original).strip().splitlines()
    said = lines[0] if lines else type(original).__name__
    return EjbError(Code.STORE, f"the database did not take the change: {said}", transient=True, where=place(url))


def _first_trouble(error: BaseException) -> BaseException:
    """A full disk also takes the savepoint away, and the failing return to it is what is raised: look behind it."""
    first, seen = error, error.__context__
    while seen is not None:
        first, seen = (seen if is_trouble(seen) else first), seen.__context__
    return first


def _make_private(file: Path) -> None:
    """Jobs' environments are in it: no other user may read it. SQLite gives its -wal and -shm files the same mode.

    A file that is there is not opened. Its close would give up all locks of this process on it, SQLite's too: another
    program would then take itself for the last one to use it, and remove the log that this one goes on to write.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if not file.is_file():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise EjbError(
            Code.STORE, f"cannot open the database file: {error.strerror}", where=str(file), hint="see database_url"
        ) from None


def _sqlite_engine(url: URL, begin: str, *pragmas: str, pool_size: int | None = None) -> Engine:
    # The driver's own handling of transactions knows nothing of savepoints and begins too late: it is turned off.
    pool: dict[str, Any] = {"poolclass": NullPool} if pool_size is None else {"pool_size": pool_size, "max_overflow": 0}
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def connected(driver: Any, _record: object) -> None:
        driver.isolation_level = None
        for pragma in pragmas:
            driver.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def began(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgresql_engine(url: URL, **options: Any) -> Engine:
    # Of a database in SQL_ASCII the driver would give bytes for text.
    given = {"client_encoding": "utf8", **_NOTICED} if url.host else {"client_encoding": "utf8"}
    arguments = {name: value for name, value in given.items() if name not in url.query}
    try:
        return create_engine(url, connect_args=arguments, **options)
    except ImportError:
        raise EjbError(
            Code.INVALID,
            "the PostgreSQL driver is not installed",
            where=place(url),
            hint='pip install "ejb[postgresql]"',
        ) from None
