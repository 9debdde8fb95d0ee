"""Calls of workers: they register, wait for operations, and report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import Settings
from ejbd.manager.acts.carrying import run
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.elasticity import ToldElastic, told_elastic
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.facts.placing.mpi import mpi_of_launch
from ejbd.manager.hands.hands import Hands
from ejbd.manager.rules.requests import operations
from ejbd.manager.rules.requests import reports as workers
from ejbd.store import queries
from ejbd.store.models import Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import OperationKind

LONGEST_WAIT_S = 60.0  # of a call for operations
POLL_S = 20.0  # how long a worker is told to wait, at most


class ToldRegistration(TypedDict):
    """The id of a worker that has registered, and how often it should call (seconds)."""

    worker: str
    heartbeat_s: float
    poll_s: float


class WorkerCalls:
    """`seen` is told when each worker was last heard of (epoch seconds)."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        hands: Hands,
        clock: Callable[[], float],
        context: Callable[[Session], Context],
        seen: dict[str, float],
    ) -> None:
        self._limits = settings.limits
        self._store = store
        self._hands = hands
        self._clock = clock
        self._context = context
        self._seen = seen
        self._waiting: dict[str, set[asyncio.Event]] = {}  # calls that wait, by worker

    def wake(self, topics: frozenset[str]) -> None:
        """There has been a commit; workers that it has something for are waiting for their turn."""
        for topic in topics:
            if topic.startswith("worker:"):
                for call in self._waiting.get(topic.removeprefix("worker:"), ()):
                    call.set()

    async def secret(self, subjob: str) -> str | None:
        """What the workers of a subjob prove to know; None where there is no such subjob."""
        query = select(Subjob.worker_secret).where(Subjob.id == subjob)
        return await self._store.read(lambda s: s.scalar(query)) or None

    async def register(self, subjob: str, request: dict[str, Any]) -> ToldRegistration:
        """A worker is there: its id, and how often it should call."""
        if request.get("accepted"):
            file = await self._store.read(lambda s: workers.lost_reports_file(self._context(s), subjob, request))
            if file is not None:
                found = await asyncio.to_thread(workers.read_left_behind, [file], self._hands.read)
                request = {**request, "lost": found[file]}
        id = await self._store.write(lambda s: run(self._context(s), workers.register, subjob, request))
        self._seen[id] = self._clock()
        return {
            "worker": id,
            "heartbeat_s": self._limits.heartbeat_s,
            "poll_s": min(POLL_S, self._limits.lease_s * 2),
        }

    async def operations(self, subjob: str, worker: str, after: int, wait_s: float) -> list[ToldOperation]:
        """Operations for a worker; waits for one for up to `wait_s`."""

        async def has_work() -> bool:
            return await self._store.read(lambda s: operations.has_work(s, subjob, worker, self._clock()))

        deadline = time.monotonic() + min(wait_s, LONGEST_WAIT_S)
        worth_it = await has_work()  # it refuses other workers, of which nothing is kept
        self._seen[worker] = self._clock()
        if not worth_it and wait_s <= 0:
            return []
        call = asyncio.Event()
        self._waiting.setdefault(worker, set()).add(call)
        try:
            while True:
                call.clear()
                if worth_it or await has_work():
                    found = await self._hand_out(subjob, worker)
                    if found:
                        return found
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                try:
                    worth_it = await asyncio.wait_for(call.wait(), min(left, self._limits.lease_s))
                except TimeoutError:
                    worth_it = False
                self._seen[worker] = self._clock()
        finally:
            self._waiting[worker].discard(call)
            if not self._waiting[worker]:
                del self._waiting[worker]

    async def _hand_out(self, subjob: str, worker: str) -> list[ToldOperation]:
        found = await self._store.write(lambda s: run(self._context(s), operations.hand_out, subjob, worker))
        if found:
            reach(CrashPoint.OPERATION_AFTER_LEASE)
            if any(operation["kind"] == OperationKind.RESIZE for operation in found):
                reach(CrashPoint.RESIZE_AFTER_LEASE)
        return found

    def _launch_file(self, session: Session, job: str, ordinal: int) -> Path:
        return self._context(session).spool_of(job).launch_file(job, ordinal)

    async def reports(self, subjob: str, worker: str, reports: list[dict[str, Any]]) -> int:
        """Store a worker's reports; the highest number stored. An empty list is a heartbeat."""
        launches = [(str(r["file"]), int(r["ordinal"])) for r in reports if r["kind"] == "launch"]
        if launches or not reports:  # else what stores them looks which worker it is

            def look(session: Session) -> tuple[int, list[str]]:
                row = workers.own_worker(session, subjob, worker)
                files = [file for file, n in launches if file == str(self._launch_file(session, row.job_id, n))]
                return row.reports_stored, files

            stored, files = await self._store.read(look)
            self._seen[worker] = self._clock()
            if not reports:
                return stored
            for file in files:  # so that the writer need not look
                await asyncio.to_thread(mpi_of_launch, file, self._hands.read)
        reach(CrashPoint.REPORT_BEFORE_COMMIT)
        stored = await self._store.write(lambda s: run(self._context(s), workers.take_reports, subjob, worker, reports))
        reach(CrashPoint.REPORT_AFTER_COMMIT)
        return stored

    async def elastic(self, subjob: str, call: dict[str, Any]) -> ToldElastic:
        """A process of the job asks for another width of it, or only how it stands."""

        def take(session: Session) -> ToldElastic:
            ctx = self._context(session)
            job = queries.job(session, workers.of_subjob(session, subjob).job_id)
            if call["call"] != "show":
                run(ctx, workers.resize_job, subjob, call["to"], call["by"], call["key"])
            return told_elastic(JobWorld(ctx, job))

        return await (self._store.read if call["call"] == "show" else self._store.write)(take)
