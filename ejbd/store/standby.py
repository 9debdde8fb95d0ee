"""Two daemons on one PostgreSQL: which one leads, and when the other takes over.

The one that leads holds the right to write (:mod:`ejbd.store.lock`) and counts a beat up, in the database, every few
seconds. The other one looks. It leads as soon as the right is free. Where the beat stands still for `after_s`, it ends
the session that holds the right. Whatever that session had not committed is undone by the database. From then on the
term is another one, which every commit holds its own number against.

Only looks that came one after the other count. So a daemon that was stopped itself, or had lost the database, does not
take its own absence for the other's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store import marks
from ejbd.store.engine import is_sqlite
from ejbd.store.lock import ADVISORY_KEY
from ejbd.store.store import Store

BEATS = 4  # in the time after which a daemon that has not been heard of is no leader any more
LOOK_S = 1.0
LONGEST_GAP_S = 3.0  # between two looks that follow each other

_HOLDERS = f"""
    SELECT count(pg_terminate_backend(pid)) FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 0 AND objid = {ADVISORY_KEY} AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look has shown. `leads`: this daemon has the right to write now. `ended`: sessions that were ended."""

    leads: bool
    beat: str | None = None
    still_s: float = 0.0
    ended: int = 0


class Standby:
    """The daemon that waits. Every call blocks its thread as long as the database takes to answer."""

    def __init__(self, store: Store, after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        if is_sqlite(store.url):
            hint = "give both daemons the same database_url of PostgreSQL, or leave `standby` out"
            raise EjbError(Code.INVALID, "only daemons on PostgreSQL stand by for each other", hint=hint)
        self._store = store
        self._after_s = after_s
        self._clock = clock
        self._beat: str | None = None
        self._since_s = self._looked_s = clock()

    def look(self) -> Looked:
        """Take the lead where it is free, or where the one that has it stands still. Raises EjbError (STORE)."""
        if self._takes():
            return Looked(True)
        now = self._clock()
        beat = self._seen()
        if beat is None or beat != self._beat or now - self._looked_s > LONGEST_GAP_S:
            self._beat, self._since_s = beat, now
        self._looked_s = now
        still_s = now - self._since_s
        if beat is None or still_s < self._after_s:
            return Looked(False, beat, still_s)
        ended = self._store.read_sync(lambda session: int(session.execute(text(_HOLDERS)).scalar_one()))
        self._since_s = now  # its successor, if that is yet another daemon, has its time, too
        return Looked(self._takes(), beat, still_s, ended)

    def _takes(self) -> bool:
        try:
            self._store.acquire_single_writer()
        except EjbError as error:
            if error.code is not Code.CONFLICT:
                raise
            return False
        return True

    def _seen(self) -> str | None:
        """The beat; None of a daemon that counts none, and while the tables are being made."""
        try:
            return self._store.read_sync(marks.beat_now)
        except DBAPIError:
            return None


def beat(session: Session) -> None:
    """The daemon that leads is there."""
    marks.next_beat(session)
