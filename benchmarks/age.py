"""What each statement of the daemon costs, the more jobs have ended: its plan, its time, and what doubling makes of it.

    python benchmarks/age.py [--jobs 10000 100000] [--postgresql] [--shown 25] [--directory DIR]

A life of a daemon in the fake world is played once; what it leaves is copied into empty databases, so many times, as
2,000 jobs a day that have ended (`tests/fakes/aged.py`). In each database it is played once more, its daemon begun
again in the middle and all asked that REST and the page can be asked. Each SELECT that was made is then made again,
with what it was given when it cost most, and the least of three times is told: CPU time of SQLite, which runs in this
process, and time by the clock of PostgreSQL. A ratio of 1 says that twice as many jobs cost the same, 2 that they cost
twice as much. Statements below a fifth of a millisecond are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from pathlib import Path
from typing import Any

from ejbd.store.store import Store
from harness import folder, machine
from tests.fakes.aged import Meter, age_database, explain_plans, live_once
from tests.integration.postgres import PostgresServer

LEAST_S = 2e-4


def least_time(store: Store, statement: str, given: Any) -> float:
    """Seconds of the quickest of three: of CPU on SQLite, by the clock elsewhere."""
    took = []
    clock = time.thread_time if store.url.get_backend_name() == "sqlite" else time.perf_counter
    with store._reader.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        for _ in range(3):
            begun = clock()
            driver.execute(statement, given).fetchall()
            took.append(clock() - begun)
    return min(took)


def told_rows(statement: str) -> str:
    """A statement from its FROM on: that tells more of it than its columns."""
    words = " ".join(statement.split())
    return words[words.find(" FROM ") + 1 :][:200]


def measure(store: Store, lived: Store, where: Path, jobs: int) -> dict[str, tuple[str, float, list[str]]]:
    """Of each SELECT: the function that makes it, its seconds and its plan."""
    one = len(lived.read_sync(lambda s: s.connection().exec_driver_sql("SELECT id FROM jobs").all()))
    begun = time.perf_counter()
    filled = age_database(store, lived, max(1, round(jobs / one)))
    if store.url.get_backend_name() == "postgresql":
        store.write_sync(lambda s: s.connection().exec_driver_sql("ANALYZE"))
    print(f"{filled} jobs have ended, filled in {time.perf_counter() - begun:.0f} s", flush=True)
    meter = Meter(store)
    asyncio.run(live_once(store, where, is_asked=True))
    plans = explain_plans(store, meter.costs, any_plan=True)
    costs = {name: meter.costs[name] for name in plans}
    return {name: (cost.where, least_time(store, cost.text, cost.given), plans[name]) for name, cost in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--shown", type=int, default=25)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    server = PostgresServer() if options.postgresql else None
    found = []
    try:
        with folder(options.directory) as where:

            def new_store(name: str) -> Store:
                (where / name).mkdir()
                store = Store(f"sqlite:///{where / name}.sqlite" if server is None else server.new_database())
                store.upgrade()
                return store

            lived = Store(f"sqlite:///{where / 'lived.sqlite'}")
            lived.upgrade()
            (where / "lived").mkdir()
            asyncio.run(live_once(lived, where / "lived", is_asked=False))
            for jobs in options.jobs:
                store = new_store(f"of-{jobs}")
                found.append(measure(store, lived, where / f"of-{jobs}", jobs))
                store.close()
            lived.close()
    finally:
        if server is not None:
            server.stop()
    first, last = found[0], found[-1]
    doublings = math.log2(options.jobs[-1] / options.jobs[0]) if len(found) > 1 else 1.0
    print(f"{machine()}; {len(last)} SELECTs, {len(first.keys() & last.keys())} of them in both; ms, ratio a doubling")
    dear = sorted((row for row in last.items() if row[1][1] >= LEAST_S), key=lambda row: -row[1][1])
    for name, (where_made, seconds, plan) in dear[: options.shown]:
        before = first.get(name)
        ratio = f"{(seconds / before[1]) ** (1 / doublings):5.2f}" if before is not None else "    -"
        told = f"{before[1] * 1e3:9.2f}" if before is not None else "        -"
        print(f"{told} {seconds * 1e3:9.2f} {ratio}  {where_made}: {told_rows(name)}")
        for step in plan:
            print(f"{'':28}{step.strip()}")


if __name__ == "__main__":
    main()
