"""How jobs ended, written down in the daemon's own spool, too: a database that is restored from an older copy learns it
from there.

A file in the folder `ended` has up to JOBS_A_FILE jobs. The newest is written anew with each few that end. None is
older than the events in the database are kept.
"""

from __future__ import annotations

import json
from typing import Any

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.errors import EjbError
from ejbd.files.userfiles import apart
from ejbd.manager.hands.spool import Spool
from ejbd.manager.world import World
from ejbd.store import marks
from ejbd.store.models import Event, Job
from ejbd.store.states import TERMINAL_JOB
from ejbd.wire.kinds import JOB_EVENT

log = structlog.get_logger(__name__)

FOLDER = "ended"
JOBS_A_FILE = 200
MOST_AT_ONCE = 1000
MOST_BYTES = 4 << 20
PATIENCE_S = 10.0
_KINDS = [JOB_EVENT[state] for state in TERMINAL_JOB]
_KEPT = ("state", "start_s", "end_s", "exit_code", "exit_signal", "reason")
Ends = dict[str, dict[str, Any]]
"""Job -> those columns of its row."""


class EndNotes:
    """`note` writes down what has ended since it did so last, in whichever run of the daemon."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._after: int | None = None  # the event up to which that is done
        self._file = 0
        self._newest: Ends = {}

    async def note(self) -> None:
        """Raises EjbError (STORE). What the spool does not take now comes with a later call."""
        store = self._world.store
        after = self._after if self._after is not None else await store.write(marks.ends_noted)
        ends, upto = await store.read(lambda session: _load_ended(session, after))
        if not ends:
            self._after = upto
            return
        try:
            await apart(lambda: self._write_notes(ends), PATIENCE_S)
        except (EjbError, OSError, TimeoutError) as error:
            log.warning("ends-not-noted", jobs=len(ends), error=str(error))
            return
        await store.write(lambda session: marks.set_ends_noted(session, upto))
        self._after = upto

    def _write_notes(self, ends: Ends) -> None:
        spool = self._world.spool
        folder = spool.root / FOLDER
        if not self._file:
            spool.files.folder(folder)
            self._file = max((int(path) for path in _note_names(spool)), default=0) + 1
        kept = {**self._newest, **ends}
        spool.files.put(folder / f"{self._file:08d}.json", json.dumps(kept).encode())
        full = len(kept) >= JOBS_A_FILE
        self._file, self._newest = self._file + full, {} if full else kept


def _load_ended(session: Session, after: int) -> tuple[Ends, int]:
    """The jobs that have ended behind an event, and the last event that was looked at."""
    newest = session.scalar(select(func.max(Event.id))) or 0
    query = select(Event.id, Event.job_id).where(Event.id > after, Event.kind.in_(_KINDS)).order_by(Event.id)
    rows = session.execute(query.limit(MOST_AT_ONCE)).all()
    upto = rows[-1].id if len(rows) == MOST_AT_ONCE else newest
    columns = select(Job.id, *(getattr(Job, name) for name in _KEPT)).where(Job.id.in_({row.job_id for row in rows}))
    found = session.execute(columns.where(Job.state.in_(TERMINAL_JOB))).mappings() if rows else ()
    return {row["id"]: {name: row[name] for name in _KEPT} for row in found}, upto


def _note_names(spool: Spool) -> list[str]:
    """Their names without `.json`, the oldest first."""
    try:
        names = spool.files.names(spool.root / FOLDER)
    except OSError:
        return []
    return sorted(name.removesuffix(".json") for name in names if name.removesuffix(".json").isdecimal())


def read_ends(spool: Spool) -> Ends:
    """All that are noted. Blocks; what cannot be read is left out."""
    found: Ends = {}
    for name in _note_names(spool):
        try:
            told = json.loads(spool.files.read(spool.root / FOLDER / f"{name}.json", MOST_BYTES)[0])
            found |= {id: row for id, row in told.items() if row["state"] in TERMINAL_JOB}
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
            continue
    return found


def drop_ends(spool: Spool, before_s: float) -> None:
    """Delete the files that have not changed since then (epoch seconds). Blocks."""
    for name in _note_names(spool):
        path = spool.root / FOLDER / f"{name}.json"
        try:
            if spool.files.read(path, 1)[1] < before_s:
                spool.files.remove(path)
        except OSError:
            continue
