"""What every table is made of: the base class, and types of columns."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Dialect, Float, Integer, MetaData, String, TypeDecorator, text
from sqlalchemy.orm import DeclarativeBase

from ejbd.core.placing import Seat

# SQLite counts up an INTEGER PRIMARY KEY only; PostgreSQL should not run out after 2**31 events.
Serial = BigInteger().with_variant(Integer, "sqlite")
# SQLite would give the highest number again once its row was pruned; readers ask for what came after a number.
NEVER_AGAIN = {"sqlite_autoincrement": True}


def only_where(condition: str) -> dict[str, Any]:
    """What an index is told that has the rows of this condition alone."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class Seats(TypeDecorator[list[Seat]]):
    """Where the ranks of a placement run; in the row `[rank, worker id, processor]` each."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: list[Seat] | None, dialect: Dialect) -> list[list[Any]] | None:
        return None if value is None else [list(seat) for seat in value]

    def process_result_value(self, value: list[list[Any]] | None, dialect: Dialect) -> list[Seat] | None:
        return None if value is None else [Seat(*seat) for seat in value]


class Base(DeclarativeBase):
    metadata = MetaData(  # named, so that a later migration can name what it drops
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {dict[str, Any]: JSON, list[Any]: JSON, float: Float, str: String}
