"""No statement of the daemon's costs more because many jobs have ended, but those that say why.

Counted are the steps of SQLite's machine, which are the same each time. `benchmarks/age.py` has the times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from ejbd.store.queries import list_jobs
from ejbd.store.store import Store
from tests.fakes.aged import Meter, age_database, explain_plans, live_once
from tests.fakes.plans import GROWING, READ_ALL
from tests.fakes.port import new_store

COPIES = 150
STEPS = 12_000  # a page of a hundred jobs takes 6,000; to read one row of each job that has ended, 20,000 and more


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Store]:
    """What a life leaves."""
    store = new_store(tmp_path / "lived.sqlite")
    yield store
    store.close()


async def test_no_statement_costs_more_the_more_jobs_have_ended(tmp_path: Path, lived: Store, store: Store) -> None:
    meter = await _second_life(tmp_path, lived, store, COPIES)
    dear = {cost.where: f"{cost.steps} steps: {name}" for name, cost in meter.costs.items() if cost.steps > STEPS}
    assert not {where: what for where, what in dear.items() if where not in READ_ALL}


def test_of_a_list_that_is_sorted_only_the_page_is_read_as_a_whole(store: Store) -> None:
    """To sort all that ever ran with its scripts takes four times as long."""
    said: list[str] = []
    event.listen(store._reader, "before_cursor_execute", lambda *given: said.append(given[2]))
    store.read_sync(lambda session: list_jobs(session, order="-name"))
    whole, _, is_sorted = said[-1].partition("IN (SELECT jobs.seq")
    assert "jobs.spec" in whole and "LIMIT" in is_sorted and "jobs.spec" not in is_sorted


@pytest.mark.postgresql
@pytest.mark.nightly("SQLite has the same indices")
async def test_postgresql_has_an_index_for_each(tmp_path: Path, lived: Store, postgres_tables_url: str) -> None:
    store = Store(postgres_tables_url)
    try:
        meter = await _second_life(tmp_path, lived, store, copies=5)
        plans = explain_plans(store, meter.costs)
    finally:
        store.close()
    scanned = re.compile(rf"Seq Scan on (?:{'|'.join(GROWING)})\b")
    whole = {meter.costs[name].where: name for name, plan in plans.items() if scanned.search("\n".join(plan))}
    assert not {where: name for where, name in whole.items() if where not in READ_ALL}


async def _second_life(folder: Path, lived: Store, store: Store, copies: int) -> Meter:
    for name in ("first", "second"):
        (folder / name).mkdir()
    await live_once(lived, folder / "first", is_asked=False)
    age_database(store, lived, copies)
    meter = Meter(store)
    life = await live_once(store, folder / "second", is_asked=True)
    assert len([status for status in life.asked.values() if status == 200]) > 100, life.asked
    return meter
