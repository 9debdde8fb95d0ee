"""Durable submissions a second through the store, beside a plain loop of one INSERT and one commit each.

    python benchmarks/store_commits.py [--seconds 2] [--directory DIR] [--postgresql]

A submission is a job, its placeholder subjob and two events. Both sides use SQLite in WAL mode with synchronous=FULL in
the same directory: each acknowledged row is on the disk. `--postgresql` adds a private PostgreSQL with fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy.orm import Session

from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.store.transitions import add_event, move_job
from ejbd.wire.kinds import EventKind

CALLERS = (1, 8, 64)


def plain(directory: Path, seconds: float) -> float:
    """Commits a second of the simplest durable program there is."""
    connection = sqlite3.connect(directory / "plain.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()
    connection.execute("CREATE TABLE jobs (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, spec TEXT)")
    begun = time.perf_counter()
    for number in itertools.count(1):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO jobs (id, spec) VALUES (?, ?)", (f"j{number}", '{"argv": ["./heat"]}'))
        connection.execute("COMMIT")
        if (passed := time.perf_counter() - begun) >= seconds:
            break
    connection.close()
    return number / passed


def submission(job_id: str, now: float) -> tuple[Job, Subjob]:
    job = Job(
        id=job_id,
        name="heat",
        user="ada",
        queue="main",
        state=JobState.RECEIVED.value,
        elastic=True,
        kind="command",
        engine="application",
        processes=16,
        walltime_s=600.0,
        spec={"argv": ["./heat"]},
        submit_s=now,
    )
    subjob = Subjob(
        id=f"{job_id}.0",
        job_id=job_id,
        ordinal=0,
        role="placeholder",
        tag=f"ejb-{job_id}",
        state="planned",
        processors=16,
        walltime_s=600.0,
        usable_s=540.0,
        created_s=now,
    )
    return job, subjob


async def through_the_store(store: Store, callers: int, seconds: float) -> tuple[float, float]:
    """(submissions a second, milliseconds of this process's CPU time a submission)."""
    numbers = itertools.count(1)
    end = time.perf_counter() + seconds
    done = 0

    async def call() -> None:
        nonlocal done
        while time.perf_counter() < end:
            job_id = f"c{callers}n{next(numbers)}"

            def submit(session: Session, job_id: str = job_id) -> None:
                now = time.time()
                job, subjob = submission(job_id, now)
                session.add_all([job, subjob])
                add_event(session, EventKind.JOB_RECEIVED, now, job_id=job_id)
                move_job(session, job, JobState.WAITING, now)

            await store.write(submit)
            done += 1

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call() for _ in range(callers)))
    return done / (time.perf_counter() - begun), (time.process_time() - cpu) / done * 1000


def measure(name: str, url: str, seconds: float, base: float) -> None:
    store = Store(url)
    store.upgrade()
    store.acquire_single_writer()
    for callers in CALLERS:
        rate, cpu_ms = asyncio.run(through_the_store(store, callers, seconds))
        print(f"{name:<12} {callers:>3} callers {rate:>9.0f}/s   ratio {rate / base:5.2f}   {cpu_ms:5.2f} ms CPU each")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    parser.add_argument("--postgresql", action="store_true", help="also a private PostgreSQL, fsync on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        base = plain(Path(directory), arguments.seconds)
        print(f"{'plain loop':<12}   1 caller  {base:>9.0f}/s   ratio  1.00   (one INSERT, one commit)")
        measure("sqlite", f"sqlite:///{directory}/store.sqlite", arguments.seconds, base)
    if arguments.postgresql:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from tests.integration.postgres import PostgresServer, why_not

        if (reason := why_not()) is not None:
            print(f"postgresql skipped: {reason}")
            return
        server = PostgresServer(fsync=True)
        try:
            measure("postgresql", server.new_database(), arguments.seconds, base)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
