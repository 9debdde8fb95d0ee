"""What one whole poll costs the daemon once the batch system has answered: rows, differences, decisions, commits.

    python benchmarks/tick.py [--elastic 1000] [--queued 10000] [--nodes 4096] [--runs 5] [--directory DIR] [--turns]

`--elastic` jobs wait in a real store (SQLite, synchronous=FULL), their J0 pending at a batch system of `--nodes` nodes
of 32 processors where `--queued` other jobs wait too; no processor is free, so that all of them go on waiting. Measured
are the reading of the roster and the steps of the tick (writes), as `Manager.poll` makes them, and the longest of the
steps, for which others that write have to wait; SQL statements are counted at the driver. What is noted of the other
jobs comes behind it, with every row of the listing read anew, and none of them changed. Beside them stands the
planning alone, of the same jobs in the same view. CPU (user and system) is told, too: other programs disturb it less.
Aims: planning under 0.25 s; with 10,000 that wait, all of it under 0.3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine, event, select
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem
from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.state import ElasticState
from ejbd.core.view import BatchJobView, BatchState, ClusterView, Reservations
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.manager import Manager
from ejbd.manager.poll.others import Noting
from ejbd.manager.poll.tick import Tick
from ejbd.manager.submission.intake import Submission
from ejbd.manager.submission.intake import store as store_jobs
from ejbd.manager.world import World
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState, SubjobState
from ejbd.store.store import Store
from ejbd.store.transitions import move_intent, move_subjob
from harness import folder, machine, spread
from planning import NOW, PROCESSORS_A_NODE, QUEUE, make_view, plan
from tests.fakes.batch import Clock, MemoryBatch

SIZES = (8, 16, 32, 64, 128, 256)
ENVIRONMENT = {f"VARIABLE_{number}": "x" * 48 for number in range(64)}  # 4 kB, as a user's login shell has


def fill(manager: Manager, view: ClusterView, count: int, dice: random.Random) -> None:
    """Submit `count` elastic jobs and note their J0s as taken by the batch system, as the executor would."""

    def submit(session: Session) -> None:
        ctx = manager.world.context(session)
        for number in range(count):
            overrides = Overrides(ntasks=str(dice.choice(SIZES)), time=str(dice.randint(10, 1440)))
            request = JobRequest(cwd="/tmp", command=("./heat",), env=ENVIRONMENT, overrides=overrides)
            store_jobs(ctx, [Submission(read(request), "ada", f"key-{number}", "hash")])

    def accept(session: Session) -> int:
        pending = session.scalars(select(Intent).where(Intent.state == IntentState.PENDING)).all()
        for intent in pending:
            subjob = session.get_one(Subjob, intent.subjob_id)
            move_intent(session, intent, IntentState.EXECUTING, NOW)
            move_intent(session, intent, IntentState.DONE, NOW)
            intent.batch_id = subjob.batch_id = str(500_000 + intent.id)
            subjob.submit_s = NOW
            move_subjob(session, subjob, SubjobState.PENDING, NOW)
        return len(pending)

    manager.world.view = view
    manager.store.write_sync(submit)
    for _ in range(count):  # so many jobs a transaction, and so many submissions due at a time
        if not manager.store.write_sync(manager.acting.receiving.receive) and not manager.store.write_sync(accept):
            break


def listed(manager: Manager, view: ClusterView) -> ClusterView:
    """The view with the J0s in it, at the end of the queue."""

    def rows(session: Session) -> tuple[BatchJobView, ...]:
        return tuple(
            BatchJobView(
                s.batch_id or "",
                s.tag,
                "ejb",
                QUEUE,
                BatchState.PENDING,
                s.processors,
                s.walltime_s,
                submit_s=NOW,
                reason="Priority",
            )
            for s in session.scalars(select(Subjob))
        )

    return replace(view, jobs=view.jobs + manager.store.read_sync(rows))


def busy(view: ClusterView) -> ClusterView:
    """The same cluster without a free processor."""
    return replace(view, nodes=tuple(replace(node, free=0) for node in view.nodes))


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3


def one_tick(manager: Manager, view: ClusterView) -> tuple[float, float, float]:
    """Milliseconds of it all, of the reading and of the longest step."""
    begun = time.perf_counter()
    roster = asyncio.run(manager.poller.open.now())
    roster.unlisted(view)
    read = time.perf_counter()
    tick = Tick(view, roster, {}, {}, manager.poller.specs)
    while manager.store.write_sync(lambda s: tick.step(manager.world.context(s))):
        pass
    return (time.perf_counter() - begun) * 1e3, (read - begun) * 1e3, tick.longest_s * 1e3


def noting(manager: Manager, view: ClusterView) -> None:
    """What is noted of the batch jobs that are not EJB's."""
    others = manager.neighbours.others
    assert others is not None
    asyncio.run(others.unlisted(view))
    step = Noting(others, view, {}).step
    while manager.store.write_sync(step):
        pass


def measure(where: Path, options: argparse.Namespace) -> None:
    dice = random.Random(1)
    clock = Clock(NOW)
    batch: BatchSystem = MemoryBatch(clock)
    queues = {"default": QueueSettings(elasticity=Elasticity.ON, j0_in_turn=options.turns)}
    settings = Settings(state_dir=where, queues=queues)
    store = Store(settings.url_of_database)
    store.upgrade()
    manager = Manager(World(settings, store, batch, SteadyClock(clock, clock)))
    empty = busy(make_view(options.nodes, options.queued, Reservations.NODES, dice))
    fill(manager, empty, options.elastic, dice)
    view = listed(manager, empty)
    states = store.read_sync(
        lambda s: [ElasticState(j.id, j.processes, j.walltime_s) for j in s.scalars(select(Job).order_by(Job.seq))]
    )
    statements = 0

    @event.listens_for(Engine, "before_cursor_execute")
    def counted(*_: object) -> None:
        nonlocal statements
        statements += 1

    names = (
        *("planning alone", "the whole tick", "of it: the roster", "the longest step", "other jobs, noted behind it"),
        *("CPU of the tick", "CPU of the notes"),
    )
    figures: dict[str, list[float]] = {name: [] for name in names}
    counts: list[int] = []
    first = None
    for number in range(options.runs + 1):
        clock.now += settings.poll_s
        now = replace(view, time_s=clock.now, jobs=tuple(map(replace, view.jobs)))  # as new as a listing's rows
        manager.world.view = now
        alone = timed(lambda now=now: plan(now, states, BundlingParameters(walltime_quantum_s=60.0)))  # type: ignore[misc]
        before, cpu = statements, time.process_time()
        tick, roster, longest = one_tick(manager, now)
        in_tick, then = statements - before, time.process_time()
        others = timed(lambda now=now: noting(manager, now))  # type: ignore[misc]
        cpus = (then - cpu) * 1e3, (time.process_time() - then) * 1e3
        if number == 0:
            first = tick, longest, in_tick, others, cpus[0]
            continue
        for name, value in zip(names, (alone, tick, roster, longest, others, *cpus), strict=True):
            figures[name].append(value)
        counts.append(in_tick)
    store.close()
    assert first is not None
    shape = f"{options.nodes * PROCESSORS_A_NODE} processors, none free"
    print(f"{options.elastic} elastic jobs x {options.queued} queued x {options.nodes} nodes ({shape})")
    for name, values in figures.items():
        print(f"{name:<28}{spread(values, ' ms')}")
    print(f"{'SQL statements of a tick':<28}{statistics.median(counts):g}")
    print(f"the first tick, which stores a decision of every job: {first[0]:.0f} ms, {first[2]} statements,", end=" ")
    each = f"{first[4] / options.elastic:.2f} ms and {first[2] / options.elastic:.1f} statements a job"
    print(f"the longest step {first[1]:.0f} ms; its CPU: {first[4]:.0f} ms, {each}")
    print(f"the first notes of other jobs, a row for each: {first[3]:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elastic", type=int, default=1000)
    parser.add_argument("--turns", action="store_true", help="with j0_in_turn: a shadow of all these jobs")
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(machine())
    with folder(options.directory) as where:
        measure(where, options)


if __name__ == "__main__":
    main()
