"""No statement of the daemon's costs more because many jobs have ended, but those that say why.

Counted are the steps of SQLite's machine, which are the same each time. `benchmarks/age.py` has the times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.store.store import Store
from tests.fakes.aged import Meter, age_database, explain_plans, live_once

COPIES = 150
STEPS = 12_000  # a page of a hundred jobs takes 6,000; to read one row of each job that has ended, 20,000 and more
READ_ALL = {
    "manager/facts/promises.py:Promises._recall": "at its start, in the last RECENT_EVENTS",
    "manager/rules/looks/changes.py:begin": "at its start, in the last RECENT_EVENTS",
    "manager/facts/usage.py:_held_before": "at its start, of the half-lives that count",
    "manager/poll/others.py:Others._read": "at its start, of the last day",
    "api/events.py:_events_of": "until there are as many of the user's own as were asked for",
    "manager/telling/savings.py:savings": "of the days that are asked for, and added up by the database",
    "manager/telling/cluster.py:_subjobs": "of the hours that are asked for",
    "store/queries.py:list_jobs": "a list in the order of a column of the page; names are looked for along the list",
    "store/queries.py:count_by_state": "how many there are in all, by an index alone",
    "store/queries.py:job_counts": "how many there are in all, by an index alone",
    "store/retention.py:in_use": "once a day, of the jobs with files",
    "store/retention.py:prune": "once a day",
    "manager/service/pruning.py:prune": "once a day",
    "manager/facts/past/pastruns.py:groups": "all that was ever learned is asked for",
    "manager/facts/past/classes.py:newest": "so many runs, the newest",
    "manager/facts/past/history.py:lasting": "so many runs, the newest",
    "manager/facts/losing.py:part_of_requests": "so many runs, the newest",
}
GROWING = ("jobs", "subjobs", "events", "intents", "operations", "workers", "epochs", "launches", "past_runs")


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Store]:
    """What a life leaves."""
    store = Store(f"sqlite:///{tmp_path / 'lived.sqlite'}")
    store.upgrade()
    yield store
    store.close()


async def test_no_statement_costs_more_the_more_jobs_have_ended(tmp_path: Path, lived: Store, store: Store) -> None:
    meter = await _second_life(tmp_path, lived, store)
    dear = {cost.where: f"{cost.steps} steps: {name}" for name, cost in meter.costs.items() if cost.steps > STEPS}
    assert not {where: what for where, what in dear.items() if where not in READ_ALL}
    plans = explain_plans(store, meter.costs)
    scanned = re.compile(rf"SCAN (?:{'|'.join(GROWING)})\b(?! USING)")
    whole = {meter.costs[name].where: name for name, plan in plans.items() if any(map(scanned.match, plan))}
    assert not {where: name for where, name in whole.items() if where not in READ_ALL}


@pytest.mark.postgresql
@pytest.mark.nightly("SQLite has the same indices")
async def test_postgresql_has_an_index_for_each(
    tmp_path: Path, lived: Store, postgres_tables_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(postgres_tables_url)
    try:
        meter = await _second_life(tmp_path, lived, store)
        plans = explain_plans(store, meter.costs)
    finally:
        store.close()
    scanned = re.compile(rf"Seq Scan on (?:{'|'.join(GROWING)})\b")
    whole = {meter.costs[name].where: name for name, plan in plans.items() if scanned.search("\n".join(plan))}
    assert not {where: name for where, name in whole.items() if where not in READ_ALL}


async def _second_life(folder: Path, lived: Store, store: Store) -> Meter:
    for name in ("first", "second"):
        (folder / name).mkdir()
    await live_once(lived, folder / "first", is_asked=False)
    age_database(store, lived, COPIES)
    meter = Meter(store)
    life = await live_once(store, folder / "second", is_asked=True)
    assert len([status for status in life.asked.values() if status == 200]) > 100, life.asked
    return meter
