"""SQL that is compiled once in a process of pytest, not once for each test's database.

SQLAlchemy keeps what it has compiled by engine and by dialect, and a test has its own of both: a third of the time of a
test with a manager went there. SQLite's dialects are all alike here, so they count as one, and engines share one cache.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from ejbd.store import engine

ROOM = 5000  # statements: above what all tests of a process ask


def share() -> None:
    dialect: Any = SQLiteDialect_pysqlite
    dialect.__eq__ = lambda self, other: type(self) is type(other)
    dialect.__hash__ = lambda self: hash(type(self))
    kept: Any = LRUCache(ROOM)
    options = {"compiled_cache": kept}
    engine.create_engine = functools.partial(engine.create_engine, execution_options=options)  # type: ignore[attr-defined]
