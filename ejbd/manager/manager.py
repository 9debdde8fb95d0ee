"""The live world: one asyncio process that observes, decides and acts.

Everything that changes state is a function of one transaction and runs on the store's one writer thread. Polls, reports
of workers, requests of users and results of the executor come one after the other. The event loop only waits, for the
timer, the batch system, workers and users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.batch.base import TellsChanges
from ejbd.errors import BatchError, EjbError
from ejbd.manager.acts.carrying import carry_out, in_savepoint
from ejbd.manager.acts.executor import SUBMISSIONS_A_PASS, Executor
from ejbd.manager.acts.intents import submissions_due
from ejbd.manager.answering import Answering
from ejbd.manager.facts.elasticity import ToldElastic
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.facts.placing.checkpointing import recent_offers
from ejbd.manager.facts.queues import kept_back as queues_kept_back
from ejbd.manager.listening.calls import ToldRegistration
from ejbd.manager.listening.hearing import LISTEN_S
from ejbd.manager.rules.linked import arraysteps, dependencies
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.service.daytimes import DayTimes
from ejbd.manager.submission.flows import CLOCK_S
from ejbd.store import marks
from ejbd.store.flows import WORKFLOWS_TOPIC
from ejbd.store.models import Dependency, Job, Subjob, Worker
from ejbd.store.states import TERMINAL_JOB, JobState
from ejbd.store.transitions import INTENTS_TOPIC, LEFT_TOPIC, NEW_JOBS_TOPIC, STARTED_TOPIC, add_event
from ejbd.wire.kinds import EventKind, JobKind

log = structlog.get_logger(__name__)

RETRY_S = 1.0
TELL_S = 2.0  # between two tries to tell workers where the daemon is, where a spool could not be written
RECEIVED_AT_ONCE = 8
LEAVING_S = 0.5  # from what a worker tells last until the batch system has its processors back
BACKLOG_S = 0.2  # between two passes of the executor over a backlog: some submissions each, not one


class Manager(Answering):
    """The daemon without its network. `start` begins to poll; `stop` ends without harm to any job."""

    async def start(self) -> None:
        """Prepare the spool, take up what an earlier daemon left, and begin to poll."""
        self.spool.prepare()
        database, new = await self.store.write(marks.identity)
        expected = await self.store.read(_with_files)
        self.spool.claim_for(database, new, self.hands.in_own(expected))
        self.hands.begin(expected.values(), database)
        self._executor = Executor(self.store, self.batch, self.settings, self.hands, self._context, self.clock)
        self._executor.wake = self._work.set
        await self.store.write(self._recover)
        await self._mailer.begin()
        self.store.on_commit(self._woken)
        self._tasks = [asyncio.create_task(self._act(), name="executor")]
        self._work.set()
        self._tasks.append(asyncio.create_task(self._look_on(), name="polls"))
        if isinstance(self.batch, TellsChanges):
            self._tasks.append(asyncio.create_task(self._hear_changes(self.batch), name="changes"))
        self._tasks.append(asyncio.create_task(self._go_on(), name="workflows"))
        self._tasks.append(asyncio.create_task(_every(LISTEN_S, self._hearing.listen), name="hearing"))
        times = DayTimes(self.settings, self.store, self.clock, self.prune)
        self._tasks.append(asyncio.create_task(times.run(), name="times-of-day"))
        self._tasks.append(asyncio.create_task(self.hindsight.run(), name="hindsight"))
        self._tasks.append(asyncio.create_task(self._try_spool(), name="spool-speed"))
        self._tasks.append(asyncio.create_task(self._health.watch(), name="health"))
        self._tasks.append(asyncio.create_task(self._mailer.run(), name="mails"))
        self._tasks.append(asyncio.create_task(_every(TELL_S, self._tell_workers), name="telling"))

    async def stop(self) -> None:
        """Let what is under way end within a bound. Jobs, workers and ranks live on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._executor is not None:
            await self._executor.stop()
        await self.batch.close()

    def publish(self, url: str) -> None:
        """Tell workers where to find this daemon."""
        self.hands.publish(self.settings.advertise_url or url)

    def _recover(self, session: Session) -> None:
        assert self._executor is not None
        self._executor.recover(session)
        now = self.clock()
        for worker in session.scalars(select(Worker).where(Worker.alive)):
            # They could not reach us while we were away; but what they were silent before that counts.
            self._memory.seen[worker.id] = now - (worker.silent_s or 0.0)
        self._memory.offers = recent_offers(session)
        add_event(session, EventKind.DAEMON_STARTED, now)

    async def _tell_workers(self) -> None:
        await asyncio.to_thread(self.hands.tell)

    async def _try_spool(self) -> None:
        """How fast the spool is, for as long as no checkpoint has told."""
        self._spool_speed = await asyncio.to_thread(self.spool.measure_speed)

    async def _look_on(self) -> None:
        """Poll by the timer, and sooner where a worker's word makes it worth while."""
        while True:
            await self._looks.wait()
            try:
                await self.poll()
            except Exception as error:
                log.error("timer-fault", what="poll", error=repr(error), exc_info=error)
            self._looks.ended(asyncio.get_running_loop().time())

    async def _hear_changes(self, batch: TellsChanges) -> None:
        """Look at once where the batch system says that something has changed; while it is away the timer is enough."""
        seen = -1
        while True:
            try:
                now = await batch.changed(seen)
            except BatchError:
                await asyncio.sleep(RETRY_S)
                continue
            if now != seen:
                seen = now
                self._looks.told(asyncio.get_running_loop().time())

    async def _act(self) -> None:
        """Carry intents out whenever there are any."""
        assert self._executor is not None
        while True:
            self._work.clear()
            try:
                more = await self.store.write(self._receive, patient=True)
                with self._health.passing():
                    next_s = await self._executor.run_due()
                if more:
                    next_s = self.clock()
                elif self._backlog:  # a submission that comes now waits behind others, and wakes no task
                    next_s = min(self.clock() + RETRY_S, self.clock() + RETRY_S if next_s is None else next_s)
            except EjbError as error:
                log.error("executor", error=error.sentence())
                next_s = self.clock() + RETRY_S
            except Exception as error:
                log.error("executor-fault", error=repr(error), exc_info=error)
                next_s = self.clock() + RETRY_S
            least_s = BACKLOG_S if self._backlog else 0.05
            timeout = None if next_s is None else max(least_s, next_s - self.clock())
            try:
                await asyncio.wait_for(self._work.wait(), timeout)
            except TimeoutError:
                pass

    def _receive(self, session: Session) -> bool:
        """New jobs go into the batch system's queue at once; windows are looked at with the next poll.

        Some at a time, since others wait for the writer too, and in a flood no more than the executor has use for.
        True: there may be more.
        """
        ctx = self._context(session)
        decider = Decider(ctx)
        most = 2 * self.settings.limits.submit_concurrency * SUBMISSIONS_A_PASS - submissions_due(session, ctx.now)
        self._backlog = most <= 0
        carry_out(ctx, dependencies.step(ctx))
        more = carry_out(ctx, arraysteps.step(ctx, max(0, min(most, RECEIVED_AT_ONCE))))
        if most <= 0:
            return False  # the executor comes back here once it has made some
        query = select(Job).where(Job.state == JobState.RECEIVED, Job.kind != JobKind.ARRAY)
        query = query.where(Job.id.not_in(select(Dependency.job_id)))
        if self.hands.by_user:  # one of each, before the next of any
            query = query.order_by(func.row_number().over(partition_by=Job.user, order_by=Job.seq))
        query = query.order_by(Job.seq).limit(min(most, RECEIVED_AT_ONCE))
        if kept_back := queues_kept_back(session, ctx.now):
            query = query.where(kept_back.takes())
        jobs = list(session.scalars(query))
        for job in jobs:
            in_savepoint(JobWorld(ctx, job, _subjobs=[]), decider.receive)
        return more or (len(jobs) == RECEIVED_AT_ONCE and any(job.state != JobState.RECEIVED for job in jobs))

    def _woken(self, topics: frozenset[str]) -> None:
        if INTENTS_TOPIC in topics or (NEW_JOBS_TOPIC in topics and not self._backlog):
            self._work.set()
        if WORKFLOWS_TOPIC in topics or NEW_JOBS_TOPIC in topics:
            self._flow.set()
        if STARTED_TOPIC in topics:
            self._looks.ask(asyncio.get_running_loop().time())
        if LEFT_TOPIC in topics:
            self._looks.ask(asyncio.get_running_loop().time(), LEAVING_S, ends=True)
        self._calls.wake(topics)
        self._mailer.woken(topics)
        if "events" in topics:
            self._newest = None
            self._news.set()
            self._news = asyncio.Event()

    async def _go_on(self) -> None:
        """Go on with workflows when something has begun or ended; while one is open, by the clock, too."""
        while True:
            self._flow.clear()
            try:
                any_open = await self.workflows.advance()
            except Exception as error:
                any_open = True
                log.error("timer-fault", what="workflows", error=repr(error), exc_info=error)
            try:
                await asyncio.wait_for(
                    self._flow.wait(), 0 if self.workflows.waiting else CLOCK_S if any_open else None
                )
            except TimeoutError:
                pass

    async def subjob_secret(self, subjob: str) -> str | None:
        """What the workers of a subjob prove to know; None where there is no such subjob."""
        return (
            await self.store.read(lambda s: s.scalar(select(Subjob.worker_secret).where(Subjob.id == subjob))) or None
        )

    async def register_worker(self, subjob: str, request: dict[str, Any]) -> ToldRegistration:
        """A worker is there: its id, and how often it should call."""
        return await self._calls.register(subjob, request)

    async def worker_operations(self, subjob: str, worker: str, after: int, wait_s: float) -> list[ToldOperation]:
        """Operations for a worker; waits for one for up to `wait_s`."""
        return await self._calls.operations(subjob, worker, wait_s)

    async def elastic_call(self, subjob: str, call: dict[str, Any]) -> ToldElastic:
        """What a process of a subjob asks of its own job; what the job has by then, and by its course."""
        return await self._calls.elastic(subjob, call)

    async def worker_reports(self, subjob: str, worker: str, reports: list[dict[str, Any]]) -> int:
        """Store a worker's reports; the highest number stored. An empty list is a heartbeat."""
        return await self._calls.reports(subjob, worker, reports)


def _with_files(session: Session) -> dict[str, str]:
    """Jobs that are not over and of which the batch system has had something, each with its user."""
    query = select(Job.id, Job.user).join(Subjob, Subjob.job_id == Job.id)
    found = session.execute(query.where(Job.state.not_in(TERMINAL_JOB), Subjob.batch_id.is_not(None)))
    return {row.id: row.user for row in found}


async def _every(period_s: float, what: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, by the event loop's clock, which is never set; never twice at a time."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + period_s
    while True:
        await asyncio.sleep(due_s - loop.time())
        try:
            await what()
        except Exception as error:
            log.error("timer-fault", what=what.__name__, error=repr(error), exc_info=error)
        due_s = max(due_s + period_s, loop.time())  # what was missed is not made up for
