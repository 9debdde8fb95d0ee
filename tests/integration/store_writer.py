"""A process that writes through the store and says what was acknowledged, until somebody kills it.

    python store_writer.py URL

Each acknowledged job's id is a line of stdout, written only after `Store.write` returned.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from sqlalchemy.orm import Session

from ejbd.store.models import Job
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.store.transitions import move_job

CALLERS = 8


async def call(store: Store, caller: int) -> None:
    for number in itertools.count():
        job_id = f"c{caller}n{number}"

        def submit(session: Session, job_id: str = job_id) -> None:
            job = Job(
                id=job_id,
                name="x",
                user="ada",
                queue="main",
                state="received",
                elastic=True,
                kind="command",
                engine="none",
                processes=1,
                walltime_s=60.0,
                spec={},
                submit_s=1.0,
            )
            session.add(job)
            move_job(session, job, JobState.WAITING, 2.0)

        await store.write(submit)
        os.write(1, f"{job_id}\n".encode())


async def main(url: str) -> None:
    store = Store(url)
    store.acquire_single_writer()
    await asyncio.gather(*(call(store, caller) for caller in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
