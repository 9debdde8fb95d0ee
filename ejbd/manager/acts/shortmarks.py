"""Tells J0s, by files of the spool, whether the job that they begin needs no workers since runs like it are short.

A J0 may wait for days, and what is known of runs changes meanwhile. So its script looks at the mark of its kind and
width as it starts: a file with a byte in it (short) or none. Where no daemon is there the last word stands.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy.orm import Session

from ejbd.errors import EjbError
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.pastruns import key_of
from ejbd.manager.facts.past.shortness import Kind, kind_of, needs_no_workers, with_new_runs
from ejbd.manager.hands.hands import Hands
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Job
from ejbd.store.store import Store

log = structlog.get_logger(__name__)

MOST_KINDS = 10_000  # have marks that are kept up to date: those of the J0s that were submitted last


class ShortMarks:
    """The marks that this daemon has made, and whether each says "short"."""

    def __init__(self, store: Store, hands: Hands, context: Callable[[Session], Context]) -> None:
        self._store = store
        self._hands = hands
        self._context = context
        self._said: dict[Kind, dict[int, bool]] = {}
        self._newest = 0
        self._lock = threading.Lock()

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
        """Say anew what runs that have ended since the last time have changed."""
        with self._lock:
            kinds, newest = list(self._said), self._newest
        if not kinds:
            return
        changed, self._newest = await self._store.read(lambda s: with_new_runs(self._context(s), kinds, newest))
        for kind in changed:
            try:
                await asyncio.to_thread(self._say_again, kind)
            except EjbError as error:  # the last word stands
                log.warning("no-short-mark", user=kind.user, error=error.sentence())

    def _say_again(self, kind: Kind) -> None:
        with self._lock:
            widths = list(self._said.get(kind, ()))
        for width in widths:
            self._say(kind, width)

    def _say(self, kind: Kind, width: int) -> None:
        """Raises EjbError (SPOOL)."""
        short = self._store.read_sync(lambda s: needs_no_workers(self._context(s), kind, width))
        with self._lock:
            said = self._said.setdefault(kind, {})
            if said.get(width) is short:
                return
            path, files = self._path(kind, width), self._hands.spool_of(kind.user).files
            files.folder(path.parent)
            files.put(path, b"1" if short else b"")
            said[width] = short
            while len(self._said) > MOST_KINDS:
                del self._said[next(iter(self._said))]

    def _path(self, kind: Kind, width: int) -> Path:
        return self._hands.spool_of(kind.user).short_mark(f"{key_of(*kind) & (1 << 64) - 1:016x}", width)
