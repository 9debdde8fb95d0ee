"""One daemon a database: a second one would decide about the same jobs."""

from __future__ import annotations

import fcntl
import os

from sqlalchemy import URL, Connection

from ejbd.errors import Code, EjbError
from ejbd.store.engine import database_file, is_sqlite, place

ADVISORY_KEY = 0x656A6264  # "ejbd"; PostgreSQL keeps these keys apart by database


class SingleWriter:
    """The right to write. SQLite: a lock on `<file>.lock`. PostgreSQL: an advisory lock of the writer's own session. A
    daemon that lost its connection cannot write before it has the right again.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._fd: int | None = None

    def take(self, connection: Connection | None) -> None:
        """Raises EjbError (conflict) if another process has it. Repeatable. SQLite needs no connection for it."""
        if connection is None or is_sqlite(self._url):
            self._lock_file()
            return
        taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({ADVISORY_KEY})").scalar_one()
        connection.commit()
        if not taken:
            raise self._refusal()

    def release(self) -> None:
        """Give the file's lock back; PostgreSQL's goes with its connection."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _lock_file(self) -> None:
        if self._fd is not None:
            return
        file = database_file(self._url)
        path = file.with_name(file.name + ".lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EjbError(Code.STORE, f"cannot open the lock file: {error.strerror}", where=str(path)) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise self._refusal() from None
        except OSError as error:
            os.close(fd)
            raise EjbError(Code.STORE, f"cannot lock the lock file: {error.strerror}", where=str(path)) from None
        self._fd = fd

    def _refusal(self) -> EjbError:
        return EjbError(
            Code.CONFLICT,
            "another ejbd is running on this database",
            where=place(self._url),
            hint="stop it first, or give this one its own database_url",
            transient=True,
        )
