"""Whether the daemon does its work: what `/v1/health` answers and what systemd's watchdog is fed by.

Ages are of the monotonic clock, so that a clock that is set says nothing here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict

import structlog
from sqlalchemy import text
from sqlalchemy.orm import Session

from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store.engine import is_sqlite
from ejbd.store.store import Store

log = structlog.get_logger(__name__)

TRIAL_S = 10.0  # between two trials whether the database takes a change, and the spool
WRITER_S = 30.0  # one commit, and what waits for it
COMMANDS_S = 60.0  # beyond the time-outs of the batch commands that a poll or a pass of the executor makes
POLLS = 3  # that may be missing
PASSES = 8  # time-outs of a submission that one pass of the executor may wait for, one after the other


class ToldFault(TypedDict):
    """A :class:`Fault` as it is told."""

    code: str
    what: str
    hint: str
    stuck: bool


class ToldHealth(TypedDict):
    """Whether the daemon does its work (`ok`), what keeps it from it, and how its polls go.

    `batch_error`: why the batch system does not answer; `blind`: why no window is used; "" where there is nothing.
    """

    ok: bool
    faults: list[ToldFault]
    batch: str
    batch_error: str
    last_poll_s: float | None
    polls: int
    failed_polls: int
    unparsed_rows: int
    blind: str
    started_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that keeps the daemon from its work. `stuck`: a daemon that is started anew may do better."""

    code: Code
    what: str
    hint: str
    stuck: bool = False

    def to_json(self) -> ToldFault:
        return {"code": self.code.value, "what": self.what, "hint": self.hint, "stuck": self.stuck}


class Health:
    """Told of polls and passes as they come and go; answers at any time, without waiting."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        monotonic: Callable[[], float] = time.monotonic,
        spool: Callable[[], Fault | None] = lambda: None,
    ) -> None:
        """`spool`: what is wrong with the spool."""
        self._store = store
        self._spool = spool
        self._monotonic = monotonic
        batch = settings.traits
        self.poll_limit_s = POLLS * settings.poll_s + COMMANDS_S + POLLS * batch.command_s
        self.pass_limit_s = COMMANDS_S + PASSES * batch.submit_s
        self._looked = monotonic()
        self._passing: float | None = None
        self._refused = ""
        self._trials = 0

    def looked(self) -> None:
        """A poll has come to its end: it is stored, or the batch system did not answer, which is told elsewhere."""
        self._looked = self._monotonic()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Around one pass of the executor."""
        self._passing = self._monotonic()
        try:
            yield
        finally:
            self._passing = None

    async def watch(self, try_spool: Callable[[], Awaitable[None]]) -> None:
        """Try for ever whether the database takes a change, and the spool: an idle daemon would learn of a full disk
        from a user."""
        while True:
            await asyncio.sleep(TRIAL_S)
            await self.try_database()
            try:
                await try_spool()
            except Exception as error:
                log.error("spool-not-tried", error=str(error))

    async def try_database(self) -> None:
        """One small change that has to reach the disk."""
        self._trials += 1
        number = self._trials
        try:
            await self._store.write(lambda session: _touch(session, is_sqlite(self._store.url), number))
        except EjbError as error:
            self._refused = error.message
        else:
            self._refused = ""

    def faults(self) -> list[Fault]:
        """What is wrong, the cause before what comes of it. The batch system is not looked at here."""
        now, writer, found = self._monotonic(), self._store.writer_status(), list(filter(None, (self._spool(),)))
        if self._store.fenced:
            found.append(Fault(Code.CONFLICT, "another ejbd has taken the database over: this one ends", ""))
        elif not writer.alive:
            found.append(Fault(Code.STORE, "the thread that writes the database has ended", _RESTART, True))
        elif writer.busy_s > WRITER_S:
            what = f"the database has been at one commit for {writer.busy_s:.0f} s, and {writer.waiting} changes wait"
            hint = "look at the disk or the server that holds the database"
            found.append(Fault(Code.STORE, what, hint, not found))
        elif writer.error or self._refused:
            hint = "free space on its disk, or see that its server runs; the daemon goes on by itself"
            found.append(Fault(Code.STORE, writer.error or self._refused, hint))
        if now - self._looked > self.poll_limit_s:
            what = f"the last look at the batch system was {now - self._looked:.0f} s ago"
            found.append(Fault(Code.INTERNAL, what, _RESTART, not found or found[0].stuck))
        passing = self._passing
        if passing is not None and now - passing > self.pass_limit_s:
            what = f"what the batch system was asked to do has been under way for {now - passing:.0f} s"
            found.append(Fault(Code.INTERNAL, what, _RESTART, not found or found[0].stuck))
        return found


_RESTART = "restart ejbd (jobs go on without it), and report what its log says"


def _touch(session: Session, sqlite: bool, number: int) -> None:
    # SQLite writes nothing where nothing changes; this number is in its header, for applications to use.
    statement = f"PRAGMA user_version = {number}" if sqlite else "UPDATE alembic_version SET version_num = version_num"
    session.execute(text(statement))
