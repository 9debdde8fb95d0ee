"""What the parts of the manager share: settings, the store, the batch system, files, and what is remembered."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem
from ejbd.config import Settings
from ejbd.core.view import ClusterView
from ejbd.errors import Code, EjbError
from ejbd.identity.sessions import Helper
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.facts.context import Context, Overridden
from ejbd.manager.facts.memory import Memory
from ejbd.manager.facts.past.history import LEARNT_TOPIC, Remembered
from ejbd.manager.facts.subscribers import Subscribers
from ejbd.manager.hands.fenced import FencedFiles, Prove
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.hands import Hands, UsersHands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.rules.learning.measuring import learn_of_end
from ejbd.manager.rules.learning.pastruns import note_end as note_run
from ejbd.manager.rules.learning.retrying import next_place_holder, take_next
from ejbd.manager.rules.planning.policyends import ask_policy
from ejbd.manager.rules.queues import losing, queuepause
from ejbd.store.changes import ANY_JOB_TOPIC, WriterSession
from ejbd.store.store import Store
from ejbd.store.transitions import QUEUES_TOPIC

SUBSCRIBERS = Subscribers(
    asked=(ask_policy, take_next, next_place_holder),
    told=(learn_of_end, note_run, queuepause.note_end, losing.note_end),
)
"""What is asked and told when something ends."""


class World:
    """Made once in a daemon's life, and given to the parts of the manager.

    `view`: as the last poll saw the cluster, at `looked_s` once it was stored. `ahead_s`: by how much the machine's
    clock was set forward in this daemon's life. `one_user`: the owner of all jobs (None: each is its own user's).
    `spool_speed`: as the daemon itself has measured it. `bare_spool`: the spool where its mark is not asked for.
    `database`: what the spool's mark has to say ("": it was not looked at yet). `closed`: why nothing is begun yet.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        batch: BatchSystem,
        clock: SteadyClock | None = None,
        runs_as: str | None = None,
        helper: Helper | None = None,
        prove: Prove | None = None,
    ) -> None:
        """`prove`: that this daemon leads, before it writes to a spool (None: there is no other)."""
        self.subscribers = SUBSCRIBERS
        self.settings = settings
        self.store = store
        self.batch = batch
        self.clock = clock or SteadyClock()
        self.runs_as = runs_as or pwd.getpwuid(os.geteuid()).pw_name
        self.one_user = self.runs_as if helper is None else None
        self._prove_lead = prove
        self.bare_spool = Spool(settings.spool_dir, OWN_FILES if prove is None else FencedFiles(OWN_FILES, prove))
        self.spool = Spool(settings.spool_dir, FencedFiles(OWN_FILES, self._prove_spool, self._spool_answers))
        self.database = ""
        self.closed: EjbError | None = None
        self.hands = Hands(self.spool) if helper is None else UsersHands(self.spool, helper, prove)
        self.view: ClusterView | None = None
        self.looked_s: float | None = None
        self.started_s = self.clock()
        self.ahead_s = 0.0
        self.memory = Memory()
        self.spool_speed: float | None = None
        self.remembered = Remembered()
        self._overridden = Overridden()
        store.on_commit(self._forget)
        store.on_commit(self._forget_overridden, on_writer=True)

    def context(self, session: Session) -> Context:
        """What a transaction works with, now."""
        return Context(
            session,
            self.clock(),
            self.settings,
            self.hands,
            self.view,
            self.memory if isinstance(session, WriterSession) else self.memory.snapshot(),
            spool_speed=self.spool_speed,
            remembered=self.remembered,
            up_since=self.started_s,
            subscribers=self.subscribers,
            looked_s=self.looked_s,
            overridden=self._overridden,
        )

    def refuse_if_closed(self) -> None:
        """Raise EjbError where this daemon has not begun: its spool is away, or another daemon's."""
        if self.closed is not None:
            raise self.closed

    def _prove_spool(self) -> None:
        if self._prove_lead is not None:
            self._prove_lead()
        if self.spool.trouble:
            raise EjbError(Code.SPOOL, self.spool.trouble, where=str(self.spool.root), transient=True)
        if self.database:
            self.bare_spool.require_mark(self.database)

    def _spool_answers(self, path: Path) -> None:
        if self.spool.is_silent:
            raise TimeoutError(errno.ETIMEDOUT, "the file system does not answer", str(path))

    def shift(self, by_s: float) -> None:
        """The machine's clock was set, and the rows and the memory are shifted."""
        self.started_s += by_s
        self.ahead_s += max(0.0, by_s)
        if self.looked_s is not None:
            self.looked_s += by_s

    def _forget(self, topics: frozenset[str]) -> None:
        if LEARNT_TOPIC in topics:
            self.remembered = Remembered()

    def _forget_overridden(self, topics: frozenset[str]) -> None:
        if QUEUES_TOPIC in topics or ANY_JOB_TOPIC in topics:
            self._overridden.settings = None
