"""What a poll costs the daemon for elastic jobs that run while nothing changes.

    python benchmarks/running.py [--jobs 0 100 200] [--polls 20] [--waiting 0] [--directory DIR]

Each of `--jobs` runs on its own J0, with a worker that has launched its ranks, in a real store (SQLite,
synchronous=FULL). `--waiting` more jobs wait behind them. The batch system is a fake in memory with no processor free.
Told are CPU (user and system), time and SQL statements of a poll, and of these what a job costs beyond a poll of none.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from sqlalchemy import Engine, event

from ejbd.store.store import Store
from harness import folder, machine, spread
from tests.fakes.live import LiveWorld

RANKS = 4
WALLTIME_S = 1_000_000.0


class Statements:
    """Counts what is asked of any database."""

    def __init__(self) -> None:
        self.count = 0
        event.listen(Engine, "before_cursor_execute", self._executed)

    def _executed(self, *_: object) -> None:
        self.count += 1


async def prepare(where: Path, jobs: int, waiting: int) -> LiveWorld:
    """All of `jobs` run, and the others wait."""
    store = Store(f"sqlite:///{where}/ejb.sqlite")
    store.upgrade()
    live = LiveWorld(where, store)
    live.batch.total, live.batch.free = max(1, jobs) * RANKS, 0
    ids = [await live.submit(RANKS, WALLTIME_S, rounds=1) for _ in range(jobs + waiting)]
    while len(live.batch.jobs) < jobs + waiting:  # submissions are few a turn
        before = len(live.batch.jobs)
        await live.poll(1.0)
        if len(live.batch.jobs) == before:
            raise RuntimeError(f"{before} of {jobs + waiting} jobs were submitted")
    for id in ids[:jobs]:
        await live.arrive(f"{id}.0")
    await live.work()
    await live.poll(5.0)
    running = sum(epoch.state == "running" for id in ids[:jobs] for epoch in live.epochs(id))
    if running != jobs:
        raise RuntimeError(f"{running} of {jobs} jobs run")
    return live


async def measure(where: Path, jobs: int, waiting: int, polls: int, statements: Statements) -> tuple[float, float]:
    """Milliseconds of CPU, and statements, of the median poll."""
    live = await prepare(where, jobs, waiting)
    cpu, wall, counts = [], [], []
    for number in range(polls + 2):
        live.clock.now += live.settings.poll_s
        live.manager.world.memory.seen.update(dict.fromkeys(live.manager.world.memory.seen, live.daemon_clock()))
        begun, before, used = time.perf_counter(), statements.count, time.process_time()
        await live.manager.poller.poll()
        if number >= 2:
            cpu.append((time.process_time() - used) * 1e3)
            wall.append((time.perf_counter() - begun) * 1e3)
            counts.append(statements.count - before)
    live.store.close()
    print(
        f"{jobs} running, {waiting} waiting, {polls} polls: CPU {spread(cpu, ' ms')}, time {spread(wall, ' ms')}, ",
        end="",
    )
    print(f"{statistics.median(counts):g} statements", flush=True)
    return statistics.median(cpu), statistics.median(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[0, 100, 200])
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--polls", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(machine())
    statements = Statements()
    none: tuple[float, float] | None = None
    for jobs in options.jobs:
        with folder(options.directory) as where:
            found = asyncio.run(measure(where, jobs, options.waiting, options.polls, statements))
        none = none or found
        if jobs:
            print(f"  a job: {(found[0] - none[0]) / jobs:.3f} ms of CPU, {(found[1] - none[1]) / jobs:.2f} statements")


if __name__ == "__main__":
    main()
