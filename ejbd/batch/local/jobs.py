"""What the embedded cluster keeps of each job, and where: one SQLite file that survives the server."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ejbd.batch.local.nodes import ANYWHERE, Layout, Shares
from ejbd.core.view import BatchState

Places = tuple[tuple[str, tuple[int, ...]], ...]  # node and the numbers of its processors

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, comment TEXT NOT NULL, user TEXT NOT NULL,
    processors INTEGER NOT NULL, walltime_s REAL NOT NULL,
    state TEXT NOT NULL, submit_s REAL NOT NULL, start_s REAL, end_s REAL, nodes TEXT NOT NULL,
    exit_code INTEGER, reason TEXT NOT NULL, cancelled INTEGER NOT NULL,
    spec TEXT NOT NULL, begin_s REAL NOT NULL DEFAULT 0,
    folds INTEGER NOT NULL DEFAULT 0, holds TEXT NOT NULL DEFAULT '[]', moves INTEGER NOT NULL DEFAULT 0,
    places TEXT NOT NULL DEFAULT '[]', layout TEXT NOT NULL DEFAULT '{}', eligible_s REAL NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_by_name ON jobs (name);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state);
"""
_ADDED = {
    "begin_s": "REAL NOT NULL DEFAULT 0",
    "folds": "INTEGER NOT NULL DEFAULT 0",
    "holds": "TEXT NOT NULL DEFAULT '[]'",
    "moves": "INTEGER NOT NULL DEFAULT 0",
    "places": "TEXT NOT NULL DEFAULT '[]'",
    "layout": "TEXT NOT NULL DEFAULT '{}'",
    "eligible_s": "REAL NOT NULL DEFAULT 0",
}
_COLUMNS = (
    "id, name, comment, user, processors, walltime_s, state, submit_s, start_s, end_s, nodes, exit_code, reason, "
    "cancelled, begin_s, folds, holds, moves, places, layout, eligible_s"
)
_LIVE = tuple(str(state) for state in BatchState if not state.ended)
_MOST_VARIABLES = 500  # SQLite's limit on ? in one statement is far higher in every version in use


@dataclass(slots=True)
class Job:
    """One job. Times are seconds since the epoch; `end_s` is planned while the job runs and actual afterwards."""

    id: int
    name: str
    comment: str
    user: str
    processors: int
    walltime_s: float
    state: BatchState
    submit_s: float
    start_s: float | None = None
    end_s: float | None = None
    nodes: Shares = ()
    exit_code: int | None = None
    reason: str = ""
    cancelled: bool = False
    begin_s: float = 0.0  # it may not begin before, and its processors are kept for then
    folds: bool = False  # it may be folded onto half of its processors
    moves: bool = False  # it saves its work where its end is moved forward
    holds: Shares = ()  # of `nodes`, what it has while it is folded; none: all
    places: Places = ()  # which of their processors those are, in a pool
    layout: Layout = ANYWHERE  # how they are to lie
    eligible_s: float = 0.0  # it may not begin before, and nothing is kept for it

    def wire(self) -> dict[str, Any]:
        """As the listing shows it."""
        return {
            "id": str(self.id),
            "name": self.name,
            "user": self.user,
            "state": str(self.state),
            "processors": self.processors,
            "walltime_s": self.walltime_s,
            "submit_s": self.submit_s,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "nodes": [name for name, _ in self.nodes],
            "exit_code": self.exit_code,
            "reason": self.reason,
            "begin_s": max(self.begin_s, self.eligible_s),
            "share": [list(share) for share in (self.held if self.folds else ())],
            "places": self.places,
        }

    def may_begin(self, now: float) -> bool:
        """Whether its time has come."""
        return max(self.begin_s, self.eligible_s) <= now

    @property
    def held(self) -> Shares:
        """The processors that it has now."""
        return self.holds or self.nodes


class JobFile:
    """The jobs on disk. Every method is one transaction; sqlite3.Error where the disk does not take it."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(_SCHEMA)
        there = [row[1] for row in self._db.execute("PRAGMA table_info(jobs)")]
        for name, kind in _ADDED.items():
            if name not in there:  # made by an older server
                self._db.execute(f"ALTER TABLE jobs ADD COLUMN {name} {kind}")
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('cluster', ?)", (uuid.uuid4().hex,))
        self.cluster: str = self._db.execute("SELECT value FROM meta WHERE key = 'cluster'").fetchone()[0]

    def close(self) -> None:
        self._db.close()

    def shape(self) -> tuple[int, int] | None:
        """Nodes and processors a node that the cluster had last; None for a new one."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'shape'").fetchone()
        if row is None:
            return None
        nodes, processors = json.loads(row[0])
        return nodes, processors

    def set_shape(self, nodes: int, processors: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('shape', ?)", (json.dumps([nodes, processors]),))

    def add(self, job: Job, spec: dict[str, Any]) -> int:
        """Store a new job and give it its number, which no other job ever had."""
        cursor = self._db.execute(
            f"INSERT INTO jobs ({_COLUMNS}, spec) VALUES (NULL{', ?' * 21})", (*_values(job), json.dumps(spec))
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def save(self, jobs: Iterable[Job]) -> None:
        """Store what has changed of these jobs; the script and environment of an ended one are dropped."""
        assignments = ", ".join(f"{column} = ?" for column in _COLUMNS.split(", ")[1:])
        self._db.execute("BEGIN")
        try:
            for job in jobs:
                self._db.execute(f"UPDATE jobs SET {assignments} WHERE id = ?", (*_values(job), job.id))
                if job.state.ended:
                    self._db.execute("UPDATE jobs SET spec = '{}' WHERE id = ?", (job.id,))
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def spec(self, id: int) -> dict[str, Any]:
        """What a job that has not ended is to run."""
        row = self._db.execute("SELECT spec FROM jobs WHERE id = ?", (id,)).fetchone()
        found: dict[str, Any] = json.loads(row[0])
        return found

    def live_or_ended_since(self, time_s: float) -> list[Job]:
        """In the order of their numbers."""
        where = f"state IN ({', '.join('?' * len(_LIVE))}) OR end_s >= ?"
        return self._select(where, (*_LIVE, time_s))

    def by_ids(self, ids: Sequence[int]) -> list[Job]:
        found: list[Job] = []
        for first in range(0, len(ids), _MOST_VARIABLES):
            some = ids[first : first + _MOST_VARIABLES]
            found += self._select(f"id IN ({', '.join('?' * len(some))})", some)
        return found

    def by_names(self, names: Sequence[str]) -> dict[str, int]:
        """Name -> number; the newest of several jobs of one name."""
        found: dict[str, int] = {}
        for first in range(0, len(names), _MOST_VARIABLES):
            some = names[first : first + _MOST_VARIABLES]
            marks = ", ".join("?" * len(some))
            found.update(
                self._db.execute(f"SELECT name, max(id) FROM jobs WHERE name IN ({marks}) GROUP BY name", some)
            )
        return found

    def forget_ended_before(self, time_s: float) -> None:
        self._db.execute(
            f"DELETE FROM jobs WHERE end_s < ? AND state NOT IN ({', '.join('?' * len(_LIVE))})", (time_s, *_LIVE)
        )

    def _select(self, where: str, values: Sequence[Any]) -> list[Job]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {where} ORDER BY id", values)
        return [_job(row) for row in rows]


def _values(job: Job) -> tuple[Any, ...]:
    return (
        job.name,
        job.comment,
        job.user,
        job.processors,
        job.walltime_s,
        str(job.state),
        job.submit_s,
        job.start_s,
        job.end_s,
        json.dumps(job.nodes),
        job.exit_code,
        job.reason,
        int(job.cancelled),
        job.begin_s,
        int(job.folds),
        json.dumps(job.holds),
        int(job.moves),
        json.dumps(job.places),
        json.dumps(job.layout.to_json()),
        job.eligible_s,
    )


def _job(row: tuple[Any, ...]) -> Job:
    id, name, comment, user, processors, walltime, state, submit, start, end, nodes, code, reason = row[:13]
    cancelled, begin, folds, holds, moves, places, layout, eligible = row[13:]
    return Job(
        id,
        name,
        comment,
        user,
        processors,
        walltime,
        BatchState(state),
        submit,
        start,
        end,
        _shares(nodes),
        code,
        reason,
        bool(cancelled),
        begin,
        bool(folds),
        bool(moves),
        _shares(holds),
        tuple((node, tuple(numbers)) for node, numbers in json.loads(places)),
        Layout.from_json(json.loads(layout)),
        eligible,
    )


def _shares(text: str) -> Shares:
    return tuple((node, count) for node, count in json.loads(text))
