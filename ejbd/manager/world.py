"""What the parts of the manager share: settings, the store, the batch system, files, and what is remembered."""

from __future__ import annotations

import asyncio
import os
import pwd
from abc import ABC, abstractmethod

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem
from ejbd.config import Settings
from ejbd.core.view import ClusterView
from ejbd.identity.sessions import Helper
from ejbd.manager.acts.executor import Executor
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.facts.context import Context, Overridden
from ejbd.manager.facts.listing.roster import Specs
from ejbd.manager.facts.listing.workingset import WorkingSet
from ejbd.manager.facts.memory import Memory
from ejbd.manager.facts.owners import Owners
from ejbd.manager.facts.past.history import LEARNT_TOPIC, Remembered
from ejbd.manager.facts.subscribers import Subscribers
from ejbd.manager.hands.fenced import FencedFiles, Prove
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.hands import Hands, UsersHands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.listening.calls import WorkerCalls
from ejbd.manager.listening.hearing import Hearing
from ejbd.manager.poll.looks import Looks
from ejbd.manager.poll.oneatatime import OneAtATime
from ejbd.manager.poll.others import Others
from ejbd.manager.rules.learning.measuring import learn_of_end
from ejbd.manager.rules.learning.pastruns import note_end as note_run
from ejbd.manager.rules.learning.retrying import next_place_holder, take_next
from ejbd.manager.rules.planning.policyends import ask_policy
from ejbd.manager.rules.queues import losing, queuepause
from ejbd.manager.service.health import Health
from ejbd.manager.service.hindsight import Hindsight
from ejbd.manager.service.mailer import Mailer
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.submission.flows import Workflows
from ejbd.manager.submission.intake import Accepted, Submission
from ejbd.manager.submission.submitting import Submissions
from ejbd.store.changes import ANY_JOB_TOPIC, WriterSession
from ejbd.store.models import Job
from ejbd.store.retention import in_use, prune_all, prune_others
from ejbd.store.store import Store
from ejbd.store.transitions import QUEUES_TOPIC

SUBSCRIBERS = Subscribers(
    asked=(ask_policy, take_next, next_place_holder),
    told=(learn_of_end, note_run, queuepause.note_end, losing.note_end),
)
"""What is asked and told when something ends."""


class World(ABC):
    """Made once in a daemon's life."""

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
        self.hindsight = Hindsight(store, kept_days, self.clock, lambda: self.view, self._others, batch)
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
        self._polling = OneAtATime()
        self._looks = Looks(settings.poll_s, settings.limits.early_looks)
        self._work = asyncio.Event()
        self._news = asyncio.Event()  # of the events that come next; a new one for each
        self._newest: asyncio.Future[int] | None = None  # the number of the last event, once it was asked for
        self._executor: Executor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @abstractmethod
    async def _submit(self, submission: Submission) -> Accepted:
        """As a user's: workflows submit their stages by it."""

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

    def _forget(self, topics: frozenset[str]) -> None:
        if LEARNT_TOPIC in topics:
            self._remembered = Remembered()

    def _forget_overridden(self, topics: frozenset[str]) -> None:
        if QUEUES_TOPIC in topics or ANY_JOB_TOPIC in topics:
            self._overridden.settings = None

    def read_output(self, user: str, path: str, most: int, offset: int) -> bytes:
        """Part of a job's output, read for its user. Blocks; raises OSError."""
        return self.hands.output(user, path, most, offset)
