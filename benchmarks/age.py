"""What each statement of the daemon costs, the more jobs have ended: its plan, its time, and what doubling makes of it.

    python benchmarks/age.py [--jobs 10000 100000] [--postgresql] [--shown 25] [--directory DIR] [--questions]

A life of a daemon in the fake world is played once; what it leaves is copied into empty databases, so many times, as
2,000 jobs a day that have ended (`tests/fakes/aged.py`). In each database it is played once more, its daemon begun
again in the middle and all asked that REST and the page can be asked. Each SELECT that was made is then made again,
with what it was given when it cost most, and the least of three times is told: CPU time of SQLite, which runs in this
process, and time by the clock of PostgreSQL. A ratio of 1 says that twice as many jobs cost the same, 2 that they cost
twice as much. Statements below a fifth of a millisecond are left out. After them come the questions of a list of jobs
each by itself, with its reading in Python; `--questions` asks these alone.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from ejbd.manager.telling.savings import By, savings
from ejbd.store import queries
from ejbd.store.states import JobState
from ejbd.store.store import Store
from harness import folder, machine
from tests.fakes.aged import DAY_S, NOW, USER, Meter, age_database, explain_plans, live_once
from tests.integration.postgres import PostgresServer

LEAST_S = 2e-4
ENDED = (JobState.UNKNOWN, JobState.COMPLETED)
QUESTIONS: dict[str, Callable[[Session], object]] = {
    "list, newest first": queries.list_jobs,
    "list of one user": lambda s: queries.list_jobs(s, user=USER),
    "list of a queue": lambda s: queries.list_jobs(s, queue="batch"),
    "list of a queue that has no jobs": lambda s: queries.list_jobs(s, queue="none"),
    "list of one user in a queue that has none": lambda s: queries.list_jobs(s, user=USER, queue="none"),
    "list of a name": lambda s: queries.list_jobs(s, name="heat"),
    "list of a name that no job has": lambda s: queries.list_jobs(s, name="nothing"),
    "list of a part of a name that none has": lambda s: queries.list_jobs(s, name_part="nothing"),
    "list of states, with what has ended": lambda s: queries.list_jobs(s, states=ENDED),
    **{f"list by {by}": partial(queries.list_jobs, order=f"-{by}") for by in queries.ORDERS},
    "events after one": lambda s: queries.events(s, 1, 100),
    "a user's last job": lambda s: queries.resolve_job(s, "last", USER),
    "jobs by state": queries.job_counts,
    "jobs by state, of one user": lambda s: queries.count_by_state(s, queries.job_filters(user=USER)),
    "savings of 30 days": lambda s: savings(s, None, NOW - 30 * DAY_S, NOW, (By.DAY,)),
}


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


def ask(store: Store) -> dict[str, float]:
    """Seconds of each question, the quickest of three: of CPU on SQLite, by the clock elsewhere."""
    clock = time.thread_time if store.url.get_backend_name() == "sqlite" else time.perf_counter

    def took(question: Callable[[Session], object]) -> float:
        def timed(session: Session) -> float:
            begun = clock()
            question(session)
            return clock() - begun

        return min(store.read_sync(timed) for _ in range(3))

    return {name: took(question) for name, question in QUESTIONS.items()}


def told_rows(statement: str) -> str:
    """A statement from its FROM on: that tells more of it than its columns."""
    words = " ".join(statement.split())
    return words[words.find(" FROM ") + 1 :][:200]


def fill(store: Store, lived: Store, jobs: int) -> None:
    one = len(lived.read_sync(lambda s: s.connection().exec_driver_sql("SELECT id FROM jobs").all()))
    begun = time.perf_counter()
    filled = age_database(store, lived, max(1, round(jobs / one)))
    if store.url.get_backend_name() == "postgresql":
        store.write_sync(lambda s: s.connection().exec_driver_sql("ANALYZE"))
    print(f"{filled} jobs have ended, filled in {time.perf_counter() - begun:.0f} s", flush=True)


def measure(store: Store, where: Path) -> dict[str, tuple[str, float, list[str]]]:
    """Of each SELECT: the function that makes it, its seconds and its plan."""
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
    parser.add_argument("--questions", action="store_true")
    options = parser.parse_args()
    server = PostgresServer() if options.postgresql else None
    found: list[dict[str, tuple[str, float, list[str]]]] = []
    asked: list[dict[str, float]] = []
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
                fill(store, lived, jobs)
                asked.append(ask(store))
                found.append({} if options.questions else measure(store, where / f"of-{jobs}"))
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
    for question, seconds in asked[-1].items():
        ratio = (seconds / asked[0][question]) ** (1 / doublings)
        print(f"{' '.join(f'{one[question] * 1e3:9.2f}' for one in asked)} {ratio:5.2f}  {question}")


if __name__ == "__main__":
    main()
