"""The live world: one asyncio process that observes, decides and acts.

Everything that changes state is a function of one transaction and runs on the store's one writer thread. Polls, reports
of workers, requests of users and results of the executor come one after the other. The event loop only waits, for the
timer, the batch system, workers and users.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchEnd, BatchSystem, TellsChanges
from ejbd.config import Settings
from ejbd.core.room.suspended import kept_for_suspended
from ejbd.core.timeline import PlannedTimeline
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError, Code, EjbError
from ejbd.files.userfiles import each_apart
from ejbd.identity.sessions import Helper
from ejbd.manager.acts.carrying import carry_out, in_savepoint, run
from ejbd.manager.acts.executor import SUBMISSIONS_A_PASS, Executor
from ejbd.manager.acts.intents import submissions_due
from ejbd.manager.acts.numbers import settled
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts import drains as known_drains
from ejbd.manager.facts.batchjob import numbers
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.facts.context import Context, Overridden
from ejbd.manager.facts.drains import ToldDrain
from ejbd.manager.facts.elasticity import ToldElastic
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.roster import Specs, SubjobRow
from ejbd.manager.facts.listing.workingset import WorkingSet
from ejbd.manager.facts.memory import Memory
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.facts.owners import Owners
from ejbd.manager.facts.past.history import LEARNT_TOPIC, Remembered
from ejbd.manager.facts.placing.checkpointing import recent_offers
from ejbd.manager.facts.queues import kept_back as queues_kept_back
from ejbd.manager.facts.subscribers import Subscribers
from ejbd.manager.hands.fenced import FencedFiles, Prove
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.hands import Hands, UsersHands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import Reading
from ejbd.manager.listening.calls import ToldRegistration, WorkerCalls
from ejbd.manager.listening.hearing import LISTEN_S, Hearing
from ejbd.manager.poll.looks import Looks
from ejbd.manager.poll.others import Noting, Others
from ejbd.manager.poll.tick import Tick
from ejbd.manager.rules.learning import gaps, raising
from ejbd.manager.rules.learning.measuring import learn_of_end
from ejbd.manager.rules.learning.pastruns import note_end as note_run
from ejbd.manager.rules.learning.retrying import next_place_holder, take_next
from ejbd.manager.rules.linked import arraysteps, dependencies
from ejbd.manager.rules.looks import drains
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.rules.planning.policyends import ask_policy
from ejbd.manager.rules.queues import losing, queuepause
from ejbd.manager.rules.requests import reports as workers
from ejbd.manager.rules.requests import requests
from ejbd.manager.service.daytimes import DayTimes
from ejbd.manager.service.health import Fault, Health, ToldHealth
from ejbd.manager.service.hindsight import Hindsight
from ejbd.manager.service.mailer import Mailer
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.submission import queues
from ejbd.manager.submission.flows import CLOCK_S, Asked, Workflows
from ejbd.manager.submission.intake import Accepted, Submission
from ejbd.manager.submission.submitting import Submissions
from ejbd.manager.submission.told import ToldPlan, ToldQueue, ToldWindow
from ejbd.manager.telling import explaining
from ejbd.manager.telling.cluster import ToldCluster, told_cluster
from ejbd.manager.telling.told import ToldCourse, ToldExplanation, told_course
from ejbd.store import marks, queries
from ejbd.store.changes import ANY_JOB_TOPIC, WriterSession
from ejbd.store.flows import WORKFLOWS_TOPIC
from ejbd.store.models import Dependency, Event, Job, Subjob, Worker
from ejbd.store.retention import in_use, prune_all, prune_others
from ejbd.store.shifting import shift
from ejbd.store.states import TERMINAL_JOB, JobState
from ejbd.store.store import Store
from ejbd.store.transitions import INTENTS_TOPIC, LEFT_TOPIC, NEW_JOBS_TOPIC, QUEUES_TOPIC, STARTED_TOPIC, add_event
from ejbd.wire.kinds import EventKind, JobKind

log = structlog.get_logger(__name__)

RETRY_S = 1.0
TELL_S = 2.0  # between two tries to tell workers where the daemon is, where a spool could not be written
ASK_AGAIN_S = 60.0
RECEIVED_AT_ONCE = 8
LEAVING_S = 0.5  # from what a worker tells last until the batch system has its processors back
BACKLOG_S = 0.2  # between two passes of the executor over a backlog: some submissions each, not one
SUBSCRIBERS = Subscribers(
    asked=(ask_policy, take_next, next_place_holder),
    told=(learn_of_end, note_run, queuepause.note_end, losing.note_end),
)
"""What is asked and told when something ends."""


class Manager:
    """The daemon without its network. `start` begins to poll; `stop` ends without harm to any job."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        batch: BatchSystem,
        clock: SteadyClock | None = None,
        runs_as: str | None = None,
        subscribers: Subscribers = SUBSCRIBERS,
        helper: Helper | None = None,
        prove: Prove | None = None,
    ) -> None:
        """`prove`: that this daemon leads, before it writes to a spool (None: there is no other)."""
        self.subscribers = subscribers
        self.settings = settings
        self.store = store
        self.batch = batch
        self.clock = clock or SteadyClock()
        self.runs_as = runs_as or pwd.getpwuid(os.geteuid()).pw_name
        self.spool = Spool(settings.spool_dir, OWN_FILES if prove is None else FencedFiles(OWN_FILES, prove))
        self.hands = Hands(self.spool) if helper is None else UsersHands(self.spool, helper, prove)
        self.telemetry = Telemetry(batch.command_counts)
        self.view: ClusterView | None = None
        self.batch_error: str = ""
        self.polls = 0
        self.failed_polls = 0
        self.started_s = self.clock()
        self._owners = None if helper is None else Owners()
        self._looked_s: float | None = None  # when the view was taken
        self._ahead_s = 0.0  # by how much the machine's clock was set forward in this daemon's life
        self._memory = Memory()
        self._spool_speed: float | None = None
        self._remembered = Remembered()
        self._specs = Specs()
        self._open = WorkingSet(store)
        kept_days = settings.limits.others_retention_days
        self._others = Others(store) if kept_days > 0 else None
        priorities = self._others.priorities if self._others is not None else {}
        self.hindsight = Hindsight(store, kept_days, self.clock, lambda: self.view, priorities)
        self._overridden = Overridden()
        runs = self.runs_as if helper is None else None
        self._submissions = Submissions(settings, store, batch, runs, self._context, lambda: self.view)
        self.workflows = Workflows(store, self._context, self._submit)
        self._flow = asyncio.Event()  # there may be something to do for a workflow
        self._backlog = False  # more jobs were received than the executor has use for now
        self._health = Health(settings, store)
        self._mailer = Mailer(settings, store, batch, self.clock)
        self._calls = WorkerCalls(settings, store, self.hands, self.clock, self._context, self._memory.seen)
        self._hearing = Hearing(self.clock, self._memory.seen)
        store.on_commit(self._forget)
        store.on_commit(self._forget_overridden, on_writer=True)
        self._polling = asyncio.Lock()
        self._looks = Looks(settings.poll_s, settings.limits.early_looks)
        self._work = asyncio.Event()
        self._news = asyncio.Event()  # of the events that come next; a new one for each
        self._newest: asyncio.Future[int] | None = None  # the number of the last event, once it was asked for
        self._executor: Executor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the spool, take up what an earlier daemon left, and begin to poll."""
        self.spool.prepare()
        database, new = await self.store.write(marks.identity)
        expected = await self.store.read(_with_files)
        self.spool.claim_for(database, new, self.hands.in_own(expected))
        self.hands.begin(expected.values())
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

    def _context(self, session: Session) -> Context:
        return Context(
            session,
            self.clock(),
            self.settings,
            self.hands,
            self.view,
            self._memory if isinstance(session, WriterSession) else self._memory.snapshot(),
            spool_speed=self._spool_speed,
            remembered=self._remembered,
            up_since=self.started_s,
            subscribers=self.subscribers,
            looked_s=self._looked_s,
            overridden=self._overridden,
        )

    async def prune(self) -> None:
        """Let go of what is old: rows of the database, folders of the spool."""
        limits = self.settings.limits
        now = self.clock() - self._ahead_s  # a clock that was set to next year ages nothing
        await prune_all(self.store, now, limits.event_retention_days)
        await prune_others(self.store, now, limits.others_retention_days, limits.event_retention_days)
        # Before the database is asked: the row of a job is there before its folder.
        users = await self.store.read(lambda s: list(s.scalars(select(Job.user).distinct())))
        there = await asyncio.to_thread(self.hands.job_folders, users)
        kept = await self.store.read(lambda s: in_use(s, now, limits.spool_retention_days))
        for spool, jobs in there:
            await asyncio.to_thread(spool.drop_jobs, jobs - kept)

    # -- observe and decide -------------------------------------------------------------------------------------------

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

    async def poll(self) -> None:
        """One round. A batch system that does not answer changes nothing."""
        async with self._polling:
            self._looks.begun(asyncio.get_running_loop().time())
            try:
                await self._mind_the_clock()
                with self.telemetry.poll("observe"):
                    view = await self._with_owners(kept_for_suspended(await self.batch.observe()))
                drained = await self.store.read(known_drains.reservations)
                if drained:
                    view = replace(view, site_reservations=known_drains.with_drains(view, drained))
                if self.clock.drift():  # set in between: the view's times are of another clock than ours
                    return
                roster = await self._open.now()
                view = roster.known_in(view)
                unlisted = roster.unlisted(view)
                lost = {
                    id: subjob
                    for id, subjob in unlisted.items()
                    if (subjob.submit_s or 0) < view.time_s - 1.0 and self._asks(subjob)
                }
                outcomes = await self.batch.outcomes(await self._exit_files(lost)) if lost else {}
                ends = await self._ends_of_others(view)
                left = await self._left_behind({*unlisted, *(job.id for job in view.jobs if job.state.ended)})
            except BatchError as error:
                await self._no_answer(error)
                return
            except EjbError as error:
                self._not_stored(error)
                return
            self._hearing.database_answers()
            looked_s, self.view = self.clock(), view
            self.polls += 1
            if self.batch_error:
                self.batch_error = ""
                await self._tell(EventKind.BATCH_ANSWERS)
            reach(CrashPoint.TICK_BEFORE_COMMIT)
            try:
                with self.telemetry.poll("store"):
                    tick = Tick(view, roster, outcomes, left, self._specs)
                    while await self.store.write(lambda s: tick.step(self._context(s))):
                        pass
                    await self._note_others(view, ends)
                await self._fill_gaps()
                if await self.store.read(lambda s: raising.is_wanted(self._context(s))):
                    await self.store.write(lambda s: run(self._context(s), raising.plan))
            except EjbError as error:
                self._not_stored(error)
                return
            if await self.store.read(dependencies.any_wait):  # for time, or for jobs that are not EJB's
                self._work.set()
            self._looked_s = looked_s
            reach(CrashPoint.TICK_AFTER_COMMIT)
            self._health.looked()
            self.telemetry.last_poll.set(self.clock())

    async def _ends_of_others(self, view: ClusterView) -> Mapping[str, BatchEnd]:
        """What is still known of jobs that are not EJB's, and that ended while no poll looked."""
        gone = await self._others.unlisted(view) if self._others is not None else []
        if not gone:
            return {}
        try:
            return await self.batch.outcomes(dict.fromkeys(gone, self.settings.spool_dir / "no-exit-file"))
        except BatchError as error:
            log.warning("others-unknown", jobs=len(gone), error=error.sentence())
            return {}

    async def _note_others(self, view: ClusterView, ends: Mapping[str, BatchEnd]) -> None:
        if self._others is None:
            return
        try:
            noting = Noting(self._others, view, ends)
            while await self.store.write(noting.step):
                pass
        except BaseException:
            self._others.forget()
            raise

    def _not_stored(self, error: EjbError) -> None:
        log.error("poll-not-stored", error=error.sentence())
        self._hearing.database_away(self._looked_s)

    async def _fill_gaps(self) -> None:
        """Jobs go into windows shorter than their request: chosen beside the writer, and looked at again on it."""
        stands, found = await self.store.read(lambda s: (gaps.any_stands(s), gaps.look(self._context(s))))
        if stands:
            await self.store.write(lambda s: run(self._context(s), gaps.mind))
        chosen, self._memory.gap_verdicts = await asyncio.to_thread(gaps.choose_all, found) if found else ([], {})
        for one in chosen:
            await self.store.write(lambda s, one=one: run(self._context(s), gaps.send, one))  # type: ignore[misc]

    async def _mind_the_clock(self) -> None:
        """Where the machine's clock was set: tell it, and let intervals that are under way last as they would.

        Raises EjbError where the database does not take it. Until it does, time goes on as if no clock were set.
        """
        by_s = self.clock.drift()
        if not by_s:
            return
        log.warning("clock-was-set", by_s=round(by_s, 1))
        stepped = False

        def step(session: Session) -> None:
            nonlocal stepped
            shift(session, by_s)
            add_event(session, EventKind.CLOCK_SET, self.clock() + by_s, by_s=by_s)
            self.clock.step(by_s)  # with the rows, for the next transaction
            self._memory.shift(by_s)
            self._hearing.shift(by_s)
            stepped = True

        try:
            await self.store.write(step)
        except BaseException:
            if stepped:
                self.clock.step(-by_s)
                self._memory.shift(-by_s)
                self._hearing.shift(-by_s)
            raise
        self.started_s += by_s
        self._ahead_s += max(0.0, by_s)
        if self._looked_s is not None:
            self._looked_s += by_s
        self._work.set()

    async def _with_owners(self, view: ClusterView) -> ClusterView:
        """The view without the marks that one user has put on a batch job in another's name."""
        if self._owners is None:
            return view
        if unknown := self._owners.unknown(view):
            await self.store.read(partial(self._owners.read, jobs=unknown))
        return self._owners.verified(view)

    async def _exit_files(self, subjobs: Mapping[str, SubjobRow]) -> dict[str, Path]:
        """Where these batch jobs write how they ended."""
        users = await self.store.read(lambda s: self.hands.users_of(s, {row.job_id for row in subjobs.values()}))
        spools = {job: self.hands.spool_of(user) for job, user in users.items()}
        return {id: spools.get(row.job_id, self.spool).exit_file(row.job_id, row.id) for id, row in subjobs.items()}

    def _asks(self, subjob: SubjobRow) -> bool:
        """Whether to ask now how a job ended: of one that was not known for long, once a minute is enough."""
        since = subjob.missing_since_s
        if since is None or self.clock() - since <= 2 * self.settings.limits.missing_grace_s:
            return True
        return self.polls % max(1, round(ASK_AGAIN_S / self.settings.poll_s)) == 0

    async def _no_answer(self, error: BatchError) -> None:
        self.failed_polls += 1
        self._health.looked()
        self.telemetry.failed_polls.inc()
        log.warning("batch-unavailable", error=error.sentence(), stderr=error.stderr)
        if self.batch_error:
            return
        self.batch_error = error.sentence()
        await self._tell(EventKind.BATCH_SILENT, error=self.batch_error)

    async def _tell(self, kind: EventKind, **data: Any) -> None:
        """An event of the daemon itself. A database that fails costs nothing else."""
        try:
            await self.store.write(lambda s: add_event(s, kind, self.clock(), **data))
        except EjbError as error:
            log.error("event-not-stored", kind=kind, error=error.sentence(), **data)

    async def _left_behind(self, gone: set[str]) -> dict[str, list[dict[str, Any]]]:
        """What workers of batch jobs that have ended could not tell, read before the writer needs it."""
        if not gone:
            return {}
        files = await self.store.read(lambda s: workers.report_files(self._context(s), gone))
        if not files:
            return {}
        # By their folders' users: where the files of one do not come, those of others do.
        of_users: dict[str, list[str]] = {}
        for file in files:
            of_users.setdefault(self.hands.user_at(Path(file)), []).append(file)
        read = [partial(workers.read_left_behind, of_one, self.hands.read) for of_one in of_users.values()]
        found: dict[str, list[dict[str, Any]]] = {file: [] for file in files}
        for of_one, reports in zip(of_users.values(), await each_apart(read), strict=True):
            if reports is None:
                log.warning("reports-unreadable", files=len(of_one), error="the file system does not answer")
            found |= reports or {}
        return found

    # -- act ----------------------------------------------------------------------------------------------------------

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

    def _forget(self, topics: frozenset[str]) -> None:
        if LEARNT_TOPIC in topics:
            self._remembered = Remembered()

    def _forget_overridden(self, topics: frozenset[str]) -> None:
        if QUEUES_TOPIC in topics or ANY_JOB_TOPIC in topics:
            self._overridden.settings = None

    def read_output(self, user: str, path: str, most: int, offset: int) -> bytes:
        """Part of a job's output, read for its user. Blocks; raises OSError."""
        return self.hands.output(user, path, most, offset)

    # -- requests of users --------------------------------------------------------------------------------------------

    def refuse_others(self, user: str) -> None:
        """Raise EjbError (FORBIDDEN) for a user that this daemon runs no jobs of."""
        self._submissions.refuse_others(user)

    async def submit(self, job: Reading, user: str, idempotency_key: str | None, request_hash: str) -> Accepted:
        """Store a job; durable when this returns. One that is passed through is shown to the batch system before."""
        self._submissions.refuse_others(user)
        return await self._submit(Submission(job, user, idempotency_key, request_hash))

    async def _submit(self, submission: Submission) -> Accepted:
        await self._see()
        return await self._submissions.submit(submission)

    async def check_workflow(self, plan: Asked) -> None:
        """Raise EjbError where a plan cannot be right, or this site would not take one of its allocations."""
        await self._see()
        await self.workflows.check(plan)

    async def submit_workflow(self, plan: Asked, user: str, key: str | None) -> tuple[str, bool]:
        """Store a workflow; its id, and whether it is new. Durable when this returns."""
        self._submissions.refuse_others(user)
        await self._see()
        return await self.workflows.submit(plan, user, key)

    async def cancel_workflow(self, id: str, by: str) -> None:
        await self.workflows.cancel(id, by)

    async def retry_workflow(self, id: str) -> None:
        await self.workflows.retry(id)

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        """What submitting would do now (dry run)."""
        self._submissions.refuse_others(user)
        await self._see()
        return await self._submissions.plan(job, user)

    async def cancel(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.cancel, job_id, by))

    async def cancel_elements(self, job_id: str, elements: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.cancel_elements, job_id, elements, by))

    async def signal(self, job_id: str, signal: str, to: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.signal, job_id, signal, to, by))

    async def evolve(self, job_id: str, tail: str, dry_run: bool, by: str) -> ToldCourse:
        return await self.store.write(
            lambda s: told_course(run(self._context(s), requests.evolve, job_id, tail, dry_run, by))
        )

    async def resize(
        self, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
    ) -> ToldCourse:
        return await self.store.write(
            lambda s: told_course(run(self._context(s), requests.resize, job_id, places, by, change, key))
        )

    async def number(self, job_id: str, wait_s: float) -> str:
        """The number that a job goes by from now on; that of its J0 is waited for, at most `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        while True:
            found, may_come, newest = await self.store.read(lambda s: self._number(s, job_id))
            left = deadline - time.monotonic()
            if found is not None:
                return found
            if not may_come or left <= 0:
                return await self.store.write(lambda s: settled(queries.job(s, job_id)))
            await self.wait_for_events(newest, left)

    def _number(self, session: Session, job_id: str) -> tuple[str | None, bool, int]:
        job = queries.job(session, job_id)
        newest = session.scalar(select(func.max(Event.id))) or 0
        return job.number, numbers.may_come(self._context(session), job), newest

    async def hold(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.hold, job_id, by))

    async def release(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.unhold, job_id, by))

    async def _see(self) -> None:
        """The first requests may come before the first poll."""
        if self.view is None and not self.batch_error:
            await self.poll()

    async def explain(self, job_id: str) -> ToldExplanation:
        """Every decision about a job with its reasons, and what the policy says right now."""
        return await self.store.read(lambda s: explaining.explain(self._context(s), job_id, self.batch_error))

    async def planned(self, job_id: str) -> PlannedTimeline:
        """What is to come of a job by its plan, from now on."""
        return await self.store.read(lambda s: explaining.plan_of(self._context(s), job_id))

    async def windows(self, queue: str | None) -> list[ToldWindow]:
        """The slots that could be used now, for one queue or all."""
        return queues.windows_of(await self._view(), queue, self._memory.promises.snapshot())

    async def _view(self) -> ClusterView:
        await self._see()
        if self.view is None:
            raise EjbError(
                Code.BATCH_UNAVAILABLE, f"the batch system does not answer: {self.batch_error}", transient=True
            )
        return self.view

    async def cluster(self, user: str, sees_all: bool, since_s: float) -> ToldCluster:
        """What runs and is planned, as this user may see it; with subjobs that ended after `since_s`."""
        view = await self._view()
        return await self.store.read(lambda s: told_cluster(s, view, user, sees_all, since_s))

    async def queues(self) -> list[ToldQueue]:
        """Every queue with its elasticity."""
        view = await self._view()
        return await self.store.read(lambda s: queues.queues(self._context(s), view))

    async def set_queue(self, name: str, changes: dict[str, Any], by: str) -> ToldQueue:
        await self.store.write(lambda s: queues.set_queue(self._context(s), name, changes, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def set_queue_window(self, name: str, when: str, changes: dict[str, Any], by: str) -> ToldQueue:
        """Have settings of a queue hold in a window of the week."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queues.set_window, name, when, changes, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def clear_queue_windows(self, name: str, when: str | None, by: str) -> ToldQueue:
        """Take out a window of a queue, or all of them."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queues.clear_windows, name, when, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def resume_queue(self, name: str, by: str) -> ToldQueue:
        """Try a paused queue again at once."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queuepause.resume, name, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def drains(self) -> list[ToldDrain]:
        """What is drained for operators, the jobs that are still there, and when the nodes should be free."""
        view = await self._view()
        return await self.store.read(lambda s: known_drains.told(self._context(s), view))

    async def drain(self, nodes: str, by_s: float, by: str) -> list[ToldDrain]:
        """Have elastic jobs leave these nodes by a time; durable when this returns."""
        view = await self._view()
        await self.store.write(lambda s: run(self._context(s), drains.drain, view, nodes, by_s, by))
        await self._see_drains()
        return await self.drains()

    async def cancel_drain(self, nodes: str, by: str) -> list[ToldDrain]:
        """Use these nodes again."""
        await self.store.write(lambda s: run(self._context(s), drains.cancel, nodes, by))
        await self._see_drains()
        return await self.drains()

    async def _see_drains(self) -> None:
        """Windows are as of now, and not as of the next poll."""
        drained = await self.store.read(known_drains.reservations)
        if self.view is not None:
            self.view = replace(self.view, site_reservations=known_drains.with_drains(self.view, drained))

    async def wait_for_events(self, after_id: int, timeout_s: float) -> None:
        """Return when there is an event newer than `after_id`, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            news = self._news  # before the look: what comes while it lasts is not missed
            newest = await self._newest_event()
            left = deadline - time.monotonic()
            if newest > after_id or left <= 0:
                return
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                return

    async def _newest_event(self) -> int:
        """The last event's number. A hundred that wait for the next one have it read once for all of them."""
        if not self._tasks:  # no commit is told yet
            return await self.store.read(_newest_event)
        found = self._newest
        if found is None:
            found = self._newest = asyncio.ensure_future(self.store.read(_newest_event))
        try:
            return await asyncio.shield(found)
        except BaseException:
            if self._newest is found and found.done():
                self._newest = None
            raise

    def faults(self) -> list[Fault]:
        """What keeps the daemon from its work, the cause before what comes of it."""
        found = self._health.faults()
        if any(task.done() and task.get_name() == "executor" for task in self._tasks):
            found.append(Fault(Code.INTERNAL, "the task that acts on the batch system has ended", "restart ejbd", True))
        if self.batch_error:
            hint = "no job fails for it; the daemon asks again with every poll"
            found.append(Fault(Code.BATCH_UNAVAILABLE, self.batch_error, hint))
        elif self.view is None and not found:
            found.append(Fault(Code.BATCH_UNAVAILABLE, "the batch system has not answered yet", "ask again in seconds"))
        return found

    def health(self) -> ToldHealth:
        """Whether the daemon does its work, and what keeps it from it."""
        view, faults = self.view, self.faults()
        return {
            "ok": not faults,
            "faults": [fault.to_json() for fault in faults],
            "batch": self.batch.name,
            "batch_error": self.batch_error,
            "last_poll_s": view.time_s if view else None,
            "polls": self.polls,
            "failed_polls": self.failed_polls,
            "unparsed_rows": view.unparsed if view else 0,
            "blind": view.blind if view else "",
            "started_s": self.started_s,
        }

    # -- workers ------------------------------------------------------------------------------------------------------

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


def _newest_event(session: Session) -> int:
    return session.scalar(select(func.max(Event.id))) or 0


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
