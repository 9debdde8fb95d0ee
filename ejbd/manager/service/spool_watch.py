"""Whether the daemon has its own spool, and has it alone: before it begins, and for as long as it lives.

The spool is known by its mark (`identity.json`), and by the database, which knows the folder. Where the mark is not
seen, the file system is away: nothing is made there, and nothing is begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import apart, begin_apart
from ejbd.manager.hands.files import spool_faults
from ejbd.manager.service.health import Fault
from ejbd.manager.service.signs import MOST_BYTES, SIGN_NAME, Rivals, Sign
from ejbd.manager.world import World
from ejbd.store import marks
from ejbd.store.models import Job, Subjob
from ejbd.store.states import LIVING_JOB

log = structlog.get_logger(__name__)

PATIENCE_S = 10.0  # for one trial of the spool
END_S = 2.0
LEAST_BYTES = 1 << 20


class _Known(NamedTuple):
    """What the database says: its name, whether that is new, the number of the next sign, and its spool's folder."""

    database: str
    is_new: bool
    number: int
    folder: str


class SpoolWatch:
    """`look` tries the spool. `on_rival` is called where this daemon has begun, and has to end for another one.

    `rival`: why it has to. `later`: the number of a sign that the database does not know: it was restored from an older
    copy. No sign is left before what the spool and the batch system know was adopted, and this is None again.
    """

    def __init__(
        self, world: World, on_rival: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.rival = ""
        self._world = world
        self._on_rival = on_rival
        self._run = secrets.token_hex(8)
        self._rivals = Rivals(world.settings.standby, monotonic)
        self._is_open = False
        self._before: int | None = None  # the number that the database had
        self._left: Sign | None = None
        self._trial: asyncio.Future[None] | None = None
        self.later: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the spool was this daemon's own once: it may begin."""
        return self._is_open

    def fault(self) -> Fault | None:
        """What is wrong with the spool."""
        closed = self._world.closed
        trouble = self._world.spool.trouble or (closed.sentence() if closed is not None else "")
        if not trouble:
            return None
        hint = "nothing is begun meanwhile, and jobs that run go on; the daemon goes on by itself when it is back"
        return Fault(Code.SPOOL, trouble, hint)

    async def look(self, *, first: bool = False) -> None:
        """Try the spool. Raises EjbError: STORE, and the `first` time what waiting would not mend."""
        store, spool = self._world.store, self._world.spool
        if self._trial is not None and not self._trial.done():
            return  # as it was: it does not answer

        def begin(session: Session) -> _Known:
            return _Known(*marks.identity(session), marks.next_sign(session), marks.spool(session))

        known = await store.write(begin)
        self._before = known.number - 1 if self._before is None else self._before
        expected = {} if self._is_open else await store.read(_with_files)
        is_set_up = self._is_open or known.folder == str(spool.root)
        try:
            future = begin_apart(lambda: self._try(known, expected, is_set_up=is_set_up))
            self._trial = asyncio.wrap_future(future)
            self._trial.add_done_callback(lambda trial: trial.exception())
            await asyncio.wait_for(asyncio.shield(self._trial), PATIENCE_S)
        except TimeoutError:
            self._tell(EjbError(Code.SPOOL, "it does not answer", where=str(spool.root), transient=True), True)
        except EjbError as error:
            if first and not error.transient:
                raise
            self._tell(error)
            if self.rival:
                self._on_rival()
        except OSError as error:
            self._tell(EjbError(Code.SPOOL, error.strerror or str(error), where=str(spool.root), transient=True))
        else:
            if not is_set_up:
                await store.write(lambda session: marks.set_spool(session, str(spool.root)))
            self._tell(None)
            self._is_open = True

    async def end(self) -> None:
        """This daemon ends in order: the next one need not wait for its sign to grow old."""
        sign = self._left
        if sign is not None and not (self._world.spool.trouble or self._world.store.fenced):
            files, path = self._world.spool.files, self._world.spool.root / SIGN_NAME
            last = replace(sign, has_ended=True).to_bytes()
            with contextlib.suppress(EjbError, TimeoutError):
                await apart(lambda: files.put(path, last), END_S)

    def _try(self, known: _Known, expected: Mapping[str, str], *, is_set_up: bool) -> None:
        """Raises EjbError. Nothing is made where the spool was set up, and its mark is not there."""
        world, bare = self._world, self._world.bare_spool
        path = bare.root / SIGN_NAME
        if is_set_up:
            bare.require_mark(known.database)
        try:
            sign = Sign.parse(bare.files.read(path, MOST_BYTES)[0])
        except OSError:
            sign = None
        if rival := self._rivals.find(sign, self._before or 0):
            if bare.database() != known.database:
                rival, hint = (
                    "it belongs to a database of its own, and a daemon has it",
                    "set `spool` to another folder",
                )
                raise EjbError(Code.CONFLICT, rival, where=str(bare.root), hint=hint)
            self.rival = rival if self._is_open else ""
            hint = "end one of the two; `ejb admin adopt` makes a copy of a database another site's"
            raise EjbError(Code.CONFLICT, rival, where=str(bare.root), hint=hint, transient=True)
        if not self._is_open:
            bare.prepare()
            bare.claim_for(known.database, known.is_new, world.hands.in_own(expected))
            world.spool.trouble, world.spool.is_silent, world.database = "", False, known.database
            world.hands.begin(expected.values(), known.database)
        with spool_faults(bare.root):
            if shutil.disk_usage(bare.root).free < LEAST_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sign is not None and not self._is_open and sign.number > (self._before or 0):
            self.later = sign.number
        if self.later is None:
            self._left = Sign.of_this_process(self._run, known.number)
            bare.files.put(path, self._left.to_bytes())

    def _tell(self, error: EjbError | None, is_silent: bool = False) -> None:
        spool, trouble = self._world.spool, "" if error is None else error.sentence()
        if trouble and trouble != spool.trouble:
            log.error("spool-away", error=trouble)
        elif spool.trouble and not trouble:
            log.info("spool-is-back", spool=str(spool.root))
        spool.trouble, spool.is_silent = trouble, is_silent
        if not self._is_open:
            self._world.closed = error


def _with_files(session: Session) -> dict[str, str]:
    """Jobs that are not over and of which the batch system has had something, each with its user."""
    query = select(Job.id, Job.user).join(Subjob, Subjob.job_id == Job.id)
    found = session.execute(query.where(Job.state.in_(LIVING_JOB), Subjob.batch_id.is_not(None)))
    return {row.id: row.user for row in found}
