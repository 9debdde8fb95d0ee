"""Tells J0s, by files of the spool, whether the job that they begin needs no workers since runs like it are short.

A J0 may wait for days. What is known of runs changes meanwhile, and so may its queue's settings. So its script looks
at the mark of its kind and width as it starts: a file with a byte in it (short) or none. Where no daemon is there the
last word stands; the next one looks at it again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import structlog
from sqlalchemy.orm import Session

from ejbd.errors import EjbError
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.pastruns import key_of
from ejbd.manager.facts.past.shortness import (
    Kind,
    kind_of,
    needs_no_workers,
    newest_run,
    waiting_kinds,
    with_news,
)
from ejbd.manager.hands.hands import Hands
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Job
from ejbd.store.store import Store

log = structlog.get_logger(__name__)

MOST_KINDS = 10_000  # have marks that are kept up to date: those of the J0s that were submitted last
Marks = dict[int, bool | None]  # of a kind, by width: what its mark says (None: an earlier daemon's word, not known)


class ShortMarks:
    """The marks that this daemon has made, and whether each says "short".

    Where the files of one user do not answer, no other user's marks wait for them.
    """

    def __init__(self, store: Store, hands: Hands, context: Callable[[Session], Context]) -> None:
        self._store = store
        self._hands = hands
        self._context = context
        self._said: dict[Kind, Marks] = {}
        self._times: dict[str, float] = {}  # by queues: what marks were judged by
        self._newest: int | None = None  # the run after which marks have to be looked at again; None: they all have
        self._lock = threading.Lock()  # of the above; held for moments
        self._of_user: dict[str, threading.Lock] = {}  # held while a mark of that user is judged and written
        self._due: dict[str, set[Kind]] = {}
        self._renewing: dict[str, asyncio.Task[None]] = {}

    def mark_for(self, job: Job, spec: JobSpec) -> Path | None:
        """The mark that this job's J0 is to look at, as things stand now; None where it cannot be made. Blocks."""
        kind = kind_of(job.user, spec, job.queue, job.engine)
        try:
            self._say(kind, spec.processes)
        except EjbError as error:  # the J0 starts workers
            log.warning("no-short-mark", user=job.user, error=error.sentence())
            return None
        return self._path(kind, spec.processes)

    async def refresh(self) -> None:
        """Say anew what runs that have ended since the last time have changed, or a queue's settings.

        Raises what an earlier pass has met.
        """
        for user in [user for user, task in self._renewing.items() if task.done()]:
            self._renewing.pop(user).result()
        newest = await self._recall() if self._newest is None else self._newest
        with self._lock:
            kinds, times = list(self._said), dict(self._times)
        changed, self._newest, times = await self._store.read(
            lambda s: with_news(self._context(s), kinds, newest, times)
        )
        with self._lock:
            self._times.update(times)
            for kind in changed:
                self._due.setdefault(kind.user, set()).add(kind)
            now = {user: self._due.pop(user) for user in self._due.keys() - self._renewing.keys()}
        for user, due in now.items():
            self._renewing[user] = asyncio.create_task(asyncio.to_thread(self._renew, due), name=f"marks-of-{user}")
        if not self._hands.by_user and self._renewing:
            await asyncio.wait(self._renewing.values())

    async def _recall(self) -> int:
        """The marks that J0s look at which an earlier daemon submitted are looked at again, too. The newest run."""

        def look(session: Session) -> tuple[int, list[tuple[Kind, int]]]:
            ctx = self._context(session)
            return newest_run(session), waiting_kinds(ctx, MOST_KINDS) if ctx.settings.traits.begins_at_once else []

        newest, waiting = await self._store.read(look)
        with self._lock:
            for kind, width in waiting:
                self._said.setdefault(kind, {}).setdefault(width, None)
                self._due.setdefault(kind.user, set()).add(kind)
        return newest

    async def stop(self) -> None:
        """Let go of what has not ended: the marks stay as they are."""
        for task in self._renewing.values():
            task.cancel()
        await asyncio.gather(*self._renewing.values(), return_exceptions=True)

    def _renew(self, kinds: Collection[Kind]) -> None:
        for kind in kinds:
            with self._lock:
                widths = list(self._said.get(kind, ()))
            try:
                for width in widths:
                    self._say(kind, width)
            except EjbError as error:  # the last word stands until the next look: a disk may be full
                log.warning("no-short-mark", user=kind.user, error=error.sentence())
                with self._lock:
                    self._due.setdefault(kind.user, set()).add(kind)

    def _say(self, kind: Kind, width: int) -> None:
        """Raises EjbError (SPOOL)."""
        with self._lock:
            of_user = self._of_user.setdefault(kind.user, threading.Lock())
        with of_user:
            short, times = self._store.read_sync(lambda s: needs_no_workers(self._context(s), kind, width))
            with self._lock:
                self._times.setdefault(kind.queue, times)
            if self._said.get(kind, {}).get(width) is short:
                return
            path, files = self._path(kind, width), self._hands.spool_of(kind.user).files
            files.folder(path.parent)
            files.put(path, b"1" if short else b"")
        with self._lock:
            self._said.setdefault(kind, {})[width] = short
            if self._times[kind.queue] != times:  # settings have changed since
                self._due.setdefault(kind.user, set()).add(kind)
            while len(self._said) > MOST_KINDS:
                del self._said[next(iter(self._said))]

    def _path(self, kind: Kind, width: int) -> Path:
        return self._hands.spool_of(kind.user).short_mark(f"{key_of(*kind) & (1 << 64) - 1:016x}", width)
