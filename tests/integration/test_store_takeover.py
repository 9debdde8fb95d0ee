"""Two daemons on one database: the one that was taken over never writes again, whatever becomes of the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from ejbd.errors import Code, EjbError
from ejbd.store.store import Store
from tests.store_fixtures import make_job

pytestmark = pytest.mark.postgresql


@pytest.fixture
def first(postgres_tables_url: str) -> Iterator[Store]:
    store = Store(postgres_tables_url)
    store.acquire_single_writer()
    store.upgrade()
    yield store
    store.close()


def cut(url: str) -> None:
    """End every session of the database, as a network that is gone does."""
    engine = create_engine(url)
    with engine.connect() as connection:
        everybody = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        connection.execute(text(everybody + " AND pid <> pg_backend_pid()"))
    engine.dispose()


def test_a_daemon_that_was_taken_over_never_writes_again(first: Store, postgres_tables_url: str) -> None:
    told: list[bool] = []
    first.begin_term(lambda: told.append(True))
    cut(postgres_tables_url)
    second = Store(postgres_tables_url)
    second.acquire_single_writer()
    second.begin_term()
    for _ in range(2):
        with pytest.raises(EjbError, match="another ejbd has taken this database over") as refused:
            first.write_sync(lambda s: s.add(make_job("a")))
        assert refused.value.code is Code.CONFLICT
        second.close()  # ... and back: the first is not asked to go on with what it knew
    assert first.fenced and first.writer_status().fenced and told == [True]
    third = Store(postgres_tables_url)
    third.acquire_single_writer()
    third.begin_term()
    third.write_sync(lambda s: s.add(make_job("b")))
    third.close()


def test_a_connection_that_was_lost_is_no_take_over(first: Store, postgres_tables_url: str) -> None:
    first.begin_term()
    cut(postgres_tables_url)
    first.write_sync(lambda s: s.add(make_job("a")))
    assert not first.fenced
