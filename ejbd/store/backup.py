"""A copy of the database while the daemon runs, the way back, and whether a database is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import URL, inspect, text
from sqlalchemy.exc import DBAPIError

from ejbd.errors import Code, EjbError
from ejbd.store import schema
from ejbd.store.engine import database_file, is_sqlite, migration_engine, place, store_error
from ejbd.store.lock import SingleWriter

TOOL_S = 24 * 3600.0  # pg_dump and pg_restore of the largest database


def backup(url: URL, target: Path) -> int:
    """Copy the database, as of one moment, into a new file (0600); its bytes. Commits go on meanwhile.

    SQLite: a database file. PostgreSQL: an archive of pg_dump. Raises EjbError: `conflict` where the file is there
    already, `store` where the copy cannot be made; then no file is left.
    """
    if target.exists():
        raise EjbError(Code.CONFLICT, "the file is there already", where=str(target), hint="name a new one")
    partial = target.with_name(target.name + ".partial")
    try:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if is_sqlite(url):
            _vacuum_into(url, partial)
        else:
            _tool("pg_dump", url, "--format=custom", f"--file={partial}")
        with partial.open("rb") as made:
            os.fsync(made.fileno())
        os.link(partial, target)  # never over a file that has come meanwhile
    except OSError as error:
        raise EjbError(Code.STORE, f"the copy cannot be written: {error.strerror}", where=str(target)) from None
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def restore(url: URL, source: Path, *, replace: bool = False) -> None:
    """Make the database what `source` (of :func:`backup`) holds. No daemon may run on it.

    Raises EjbError: `conflict` where a daemon has the database, or where it holds jobs and may not be replaced;
    `invalid` where the file is no such copy; `store` where the database does not take it, which is then as before.
    """
    with _alone(url):
        held = _jobs(url)
        if held and not replace:
            why = f"the database holds {held} jobs, which the copy would take the place of"
            raise EjbError(Code.CONFLICT, why, where=place(url), hint="--replace says that this is meant")
        if not source.is_file():
            raise EjbError(Code.INVALID, "there is no such file", where=str(source))
        if is_sqlite(url):
            _replace_file(url, source)
        else:
            _tool("pg_restore", None, "--list", str(source))
            words = ["--clean", "--if-exists", "--no-owner", "--single-transaction", "--exit-on-error"]
            _tool("pg_restore", url, *words, str(source))


def check(url: URL) -> list[str]:
    """What is wrong with the database, in sentences; none: it is whole, and of a revision that this version knows.

    SQLite reads all of it. Of PostgreSQL every row of every table is read: what its disk has lost is told by that.
    Raises EjbError (`store`) where it cannot be opened.
    """
    if is_sqlite(url) and not database_file(url).is_file():
        raise EjbError(Code.STORE, "there is no such database", where=place(url))
    faults = _file_faults(database_file(url)) if is_sqlite(url) else []
    if faults:
        return faults
    engine = migration_engine(url)
    try:
        with engine.connect() as connection:
            found = schema.revision(connection)
            if found is None:
                return ["it has no tables of ejbd's"]
            if not schema.knows(found):
                return [f"it is of revision {found}, which this version of ejbd does not know"]
            for table in inspect(connection).get_table_names():
                connection.execute(text(f'SELECT count(t.*) FROM "{table}" t' if not is_sqlite(url) else
                                        f'SELECT count(*) FROM "{table}"'))  # fmt: skip
    except DBAPIError as error:
        raise store_error(url, error) from None
    finally:
        engine.dispose()
    return []


def _file_faults(file: Path) -> list[str]:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            told = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
            astray = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        return [f"it cannot be read: {error}"]
    faults = [] if told == ["ok"] else told
    return faults + [f"row {row} of {table} leads to no row of {parent}" for table, row, parent, _ in astray[:20]]


def _vacuum_into(url: URL, target: Path) -> None:
    file = database_file(url)
    if not file.is_file():
        raise EjbError(Code.STORE, "there is no such database", where=place(url))
    try:
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=60)) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise EjbError(Code.STORE, f"the copy cannot be made: {error}", where=place(url)) from None


def _replace_file(url: URL, source: Path) -> None:
    faults = _file_faults(source)
    if faults:
        raise EjbError(Code.INVALID, f"no whole copy of a database: {faults[0]}", where=str(source))
    file = database_file(url)
    fresh = file.with_name(file.name + ".restored")
    try:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        with (
            os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink,
            source.open("rb") as old,
        ):
            shutil.copyfileobj(old, sink)
            sink.flush()
            os.fsync(sink.fileno())
        for ending in ("-wal", "-shm"):  # of the file that goes: they must not be played into the other one
            file.with_name(file.name + ending).unlink(missing_ok=True)
        fresh.replace(file)
    except OSError as error:
        raise EjbError(Code.STORE, f"the database cannot be written: {error.strerror}", where=place(url)) from None
    finally:
        fresh.unlink(missing_ok=True)


def _jobs(url: URL) -> int:
    if is_sqlite(url) and not database_file(url).is_file():
        return 0
    engine = migration_engine(url)
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("jobs"):
                return 0
            return int(connection.execute(text("SELECT count(*) FROM jobs")).scalar_one())
    except sqlite3.Error:
        return 1  # broken: it may be what is to be mended
    except DBAPIError as error:
        if is_sqlite(url):
            return 1
        raise store_error(url, error) from None
    finally:
        engine.dispose()


@contextlib.contextmanager
def _alone(url: URL) -> Iterator[None]:
    """Hold the one right to write, so that no daemon begins meanwhile."""
    right = SingleWriter(url)
    if is_sqlite(url):  # it may be broken: it is not opened for that
        database_file(url).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            right.take(None)
            yield
        finally:
            right.release()
        return
    engine = migration_engine(url)
    try:
        with engine.connect() as connection:
            right.take(connection)
            yield
    except DBAPIError as error:
        raise store_error(url, error) from None
    finally:
        engine.dispose()


def _tool(name: str, url: URL | None, *words: str) -> None:
    """One of PostgreSQL's own programs; its password is in no command line. Raises EjbError."""
    if shutil.which(name) is None:
        raise EjbError(Code.UNSUPPORTED, f"{name} is not here", hint="install PostgreSQL's client programs")
    argv, env = [name, *words], dict(os.environ)
    if url is not None:
        if url.password:
            env["PGPASSWORD"] = str(url.password)
        plain = url.set(drivername="postgresql", password=None)
        argv[1:1] = [f"--dbname={plain.render_as_string()}"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode:
        raise EjbError(
            _code(words), f"{name}: {_last(done.stderr)}", where=place(url) if url is not None else words[-1]
        )


def _code(words: Sequence[str]) -> Code:
    return Code.INVALID if "--list" in words else Code.STORE


def _last(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if "error" in line] or said.strip().splitlines()
    return lines[-1].partition("error: ")[2] or lines[-1] if lines else "it said nothing"
