"""The roster, kept in memory between polls.

Read whole once, it is kept up by what commits say that they changed: a poll reads those jobs again and no others.
Rows of jobs and subjobs are changed through the store's writer only. On its thread the set of changed jobs is filled,
after each commit, and taken. What is read after that holds every change in the set, and what comes later is in the next
one. Where a transaction's fate is not known, or one may have changed any job, all of it is read again. All of it is
also read once in a while, and held against what was kept. A difference is a fault of the daemon's, and is logged as
`working-set-differs`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import structlog
from sqlalchemy.orm import Session

from ejbd.manager.facts.listing.keptworlds import KeptWorlds
from ejbd.manager.facts.listing.roster import Roster
from ejbd.store.changes import ANY_JOB_TOPIC
from ejbd.store.store import Store
from ejbd.store.transitions import JOB_TOPICS, ROWS_TOPICS, WAKE, job_topic, rows_topic

READ_ANEW_S = float(os.environ.get("EJBD_READ_ANEW_S", 600.0))
MOST_CHANGES = 0.25  # of the jobs, beyond which reading all of them costs no more
FEW = 200  # changes are always read by themselves

log = structlog.get_logger(__name__)


class WorkingSet:
    """:meth:`now` is the roster; it stays as it is until it is asked for again, by one task at a time."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._roster: Roster | None = None
        self._read_at = 0.0
        # The writer's thread's alone:
        self._changed: set[str] = set()
        self._beside: set[str] = set()  # jobs of which only rows beside their own and their subjobs' were changed
        self._any = False
        self._running = KeptWorlds(self._has_changed)
        store.on_commit(self._committed, on_writer=True)

    async def now(self) -> Roster:
        """What is open, with every change that was committed before this was called. Raises EjbError (store)."""
        roster, self._roster = self._roster, None  # it is lost if anything fails on the way
        taken = await self._store.write(self._take)
        changed = None if taken is None else taken[0]
        old = self._monotonic() - self._read_at > READ_ANEW_S
        self._running.drop(() if taken is None else taken[1])
        if roster is None or changed is None or old or len(changed) > max(FEW, int(MOST_CHANGES * len(roster.jobs))):
            kept, roster, self._read_at = roster, await self._store.read(Roster.read), self._monotonic()
            self._running.clear()
            roster = replace(roster, running=self._running)
            if kept is not None and changed is not None:
                await self._compare(kept, roster, changed)
        elif changed:
            ids = sorted(changed)
            roster.replace(ids, await self._store.read(lambda session: Roster.of(session, ids)))
        self._roster = roster
        return roster

    def forget_running(self) -> None:
        """Have the rows of running jobs read again: a poll that loaded some of them has failed."""
        self._running.clear()

    async def _compare(self, kept: Roster, anew: Roster, changed: set[str]) -> None:
        """Whether all is as it was kept, but for what is known to have changed."""
        later, any_job = await self._store.write(lambda _: (set(self._changed), self._any))
        if any_job:
            return
        ids = (kept.jobs.keys() | anew.jobs.keys() | kept.subjobs.keys() | anew.subjobs.keys()) - changed - later
        wrong = [i for i in ids if (kept.jobs.get(i), kept.subjobs.get(i)) != (anew.jobs.get(i), anew.subjobs.get(i))]
        if wrong:
            log.error("working-set-differs", jobs=sorted(wrong)[:10], number=len(wrong))

    def _committed(self, topics: frozenset[str]) -> None:
        if ANY_JOB_TOPIC in topics:
            self._any = True
        self._changed.update(topic.removeprefix(JOB_TOPICS) for topic in topics if topic.startswith(JOB_TOPICS))
        self._beside.update(topic.removeprefix(ROWS_TOPICS) for topic in topics if topic.startswith(ROWS_TOPICS))

    def _take(self, _session: Session) -> tuple[set[str], set[str]] | None:
        """The jobs that were changed since the last time, and those of which other rows were. None: it may be any."""
        changed, beside, any_job = self._changed, self._beside, self._any
        self._changed, self._beside, self._any = set(), set(), False
        return None if any_job else (changed, beside)

    def _has_changed(self, session: Session, id: str) -> bool:
        """Whether rows of a job may have changed since the roster was made, by this transaction or an earlier one."""
        if self._any or id in self._changed or id in self._beside:
            return True
        topics = session.info.get(WAKE, ())
        return job_topic(id) in topics or rows_topic(id) in topics
