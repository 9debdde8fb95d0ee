"""Batch jobs that are not EJB's, noted as polls see them: what hindsight replays (ejbd/core/hindsight.py).

What was written last is kept in memory, so that a job that is as it was costs a comparison and no statement. So is the
priority of what waits. It is written once a job is seen to wait no more: what still waits is seen again by the next
daemon. A job that is not listed any more has ended since the last look. Where that look was long ago the batch system
is asked, and what it does not tell stays unknown. A look that could not see others changes nothing, and counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchEnd, Mark
from ejbd.core.view import BatchJobView, BatchState, ClusterView, SiteReservation
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.store import marks
from ejbd.store.models import OtherGap, OtherJob, OtherKept, OtherPriority
from ejbd.store.store import Store

AWAY_S = 300.0  # between two looks: Slurm lists what has ended for so long (its default), and nothing is missed
MARK_S = 60.0  # between two notes in the database that polls look
DAY_S = 86400.0
ASKED_AT_ONCE = 2000
ROWS_AT_ONCE = 200
MOST_PRIORITIES = 200_000
MAINTENANCE = "maintenance"
UNTOLD = "OTHER"
FAR_S = 1e11
JOBS_AT_ONCE = 2000  # that are compared between two chances for others to write

_WAITS = (BatchState.PENDING, BatchState.HELD)
_TABLE: Any = OtherJob.__table__


class Noted(NamedTuple):
    """A job as its row has it."""

    user: str
    queue: str
    processors: int
    walltime_s: float | None
    submit_s: float | None
    ready_s: float | None
    eligible_s: float | None
    limited_by: str | None
    account: str | None
    qos: str | None
    start_s: float | None
    end_s: float | None
    open: bool


@dataclass(slots=True)
class _Known:
    """What was written of a job last, and what the views showed then and last (None: before this daemon)."""

    seq: int
    row: Noted
    seen: tuple[object, ...] | None = None
    view: BatchJobView | None = None


_noted = attrgetter(
    *("state", "blocked", "start_s", "submit_s", "walltime_s", "processors", "queue", "end_s"),
    *("limited", "limited_by", "account", "qos"),
)
"""What is compared of a view: what a row is made of, and the end that is planned."""


_CHANGE = (
    update(_TABLE)
    .where(_TABLE.c.seq == bindparam("which"))
    .values(changed_s=bindparam("now"), **{name: bindparam(f"new_{name}") for name in Noted._fields})
)


class Others:
    """What was noted of other jobs. One task at a time uses it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.priorities: dict[str, int] = {}  # by batch job, EJB's own too, as it waited last
        self.charges: dict[str, tuple[str, str]] = {}  # account and QOS, of EJB's own jobs
        self._waiting: set[str] = set()  # those of both that were not written yet
        self._kept: dict[tuple[str, float], SiteReservation] | None = None  # maintenance, as it was written last
        self._known: dict[str, _Known] | None = None
        self._next = 0
        self._looked_s: float | None = None  # the last look that saw others
        self._marked_s = 0.0

    def forget(self) -> None:
        """What was written may be other than what is known: it is read again."""
        self._known = None

    async def unlisted(self, view: ClusterView) -> dict[str, Mark]:
        """Jobs that ended while nothing looked, to ask the batch system about. Raises EjbError (store)."""
        if self._known is None:
            await self._store.read(lambda session: self._read(session, view.time_s))
        assert self._known is not None
        if not _sees(view) or self._looked_s is None or view.time_s - self._looked_s <= AWAY_S:
            return {}
        listed = {job.id for job in view.jobs}
        gone = {id: one.row for id, one in self._known.items() if one.row.open and one.row.start_s is not None}
        unlisted = [id for id in gone if id not in listed][:ASKED_AT_ONCE]
        return {id: Mark("", gone[id].submit_s) for id in unlisted}

    def _read(self, session: Session, now: float) -> None:
        columns = [getattr(OtherJob, name) for name in ("seq", "batch_id", *Noted._fields)]
        of_late = and_(OtherJob.open.is_(False), OtherJob.changed_s >= now - DAY_S)
        query = select(*columns).where(or_(OtherJob.open, of_late))
        self._known = {row.batch_id: _Known(row.seq, Noted(*row[2:])) for row in session.execute(query)}
        kept = select(OtherPriority).order_by(OtherPriority.started_s.desc()).limit(MOST_PRIORITIES)
        for waited in reversed(session.scalars(kept).all()):
            if waited.priority:
                self.priorities.setdefault(waited.batch_id, waited.priority)
            if waited.account is not None:
                self.charges.setdefault(waited.batch_id, (waited.account, waited.qos or ""))
        self._next = (session.scalar(select(func.max(OtherJob.seq))) or 0) + 1
        self._looked_s = marks.others_seen(session)

    def pieces(
        self, session_now: Callable[[], Session], view: ClusterView, ends: Mapping[str, BatchEnd]
    ) -> Iterator[None]:
        """Note what has changed, some milliseconds each time. `session_now` is the transaction that is under way."""
        known, self._known = self._known, None  # it is lost if anything fails on the way
        if known is None or not _sees(view):
            self._known = known
            return
        now = view.time_s
        new: list[dict[str, Any]] = []
        changed: list[dict[str, Any]] = []
        yield from self._find(known, view, ends, new, changed)
        gone = self._waiting - {job.id for job in view.jobs if job.state in _WAITS}
        last = []
        for id in sorted(gone):
            account, qos = self.charges.get(id, (None, None))
            waited = {"batch_id": id, "priority": self.priorities.get(id, 0), "account": account, "qos": qos}
            last.append(waited | {"started_s": now})
        for at in range(0, len(last), ROWS_AT_ONCE):
            some = last[at : at + ROWS_AT_ONCE]
            names = [one["batch_id"] for one in some]  # a number may come again
            session_now().execute(delete(OtherPriority).where(OtherPriority.batch_id.in_(names)))
            session_now().execute(insert(OtherPriority), some)
            yield
        self._waiting -= gone
        work: tuple[tuple[Any, list[dict[str, Any]]], ...] = ((insert(_TABLE), new), (_CHANGE, changed))
        for statement, rows in work:
            for at in range(0, len(rows), ROWS_AT_ONCE):
                session_now().connection().execute(statement, rows[at : at + ROWS_AT_ONCE])
                yield
        for known_of in (self.priorities, self.charges):
            for id in list(known_of)[: max(0, len(known_of) - MOST_PRIORITIES)]:
                del known_of[id]
                self._waiting.discard(id)
        session = session_now()
        self._note_kept(session, view)
        if self._looked_s is None or now - self._looked_s > AWAY_S:
            session.merge(OtherGap(until_s=now, from_s=self._looked_s or 0.0))
        if not 0 <= now - self._marked_s < MARK_S:
            marks.set_others_seen(session, now)
            self._marked_s = now
        self._looked_s, self._known = now, known

    def _note_kept(self, session: Session, view: ClusterView) -> None:
        """Maintenance that is new, changed, or was given up."""
        now = view.time_s
        kept = {(one.name, one.start_s): one for one in view.site_reservations if one.what == MAINTENANCE}
        if kept == self._kept:
            return
        for key, one in (self._kept or {}).items():
            if key not in kept and one.end_s > now:
                row = session.get(OtherKept, key)
                if row is not None:
                    row.end_s = max(now, one.start_s)
        for (name, start_s), one in kept.items():
            end_s = min(one.end_s, FAR_S)  # a database keeps no infinite time
            session.merge(
                OtherKept(name=name, start_s=start_s, end_s=end_s, nodes=list(one.nodes), processors=one.processors)
            )
        self._kept = kept

    def _find(
        self,
        known: dict[str, _Known],
        view: ClusterView,
        ends: Mapping[str, BatchEnd],
        new: list[dict[str, Any]],
        changed: list[dict[str, Any]],
    ) -> Iterator[None]:
        """Rows to add and to change; `known` is as they will be."""
        now = view.time_s

        def write(one: _Known, row: Noted) -> None:
            if row != one.row:
                one.row = row
                values = {f"new_{name}": value for name, value in row._asdict().items()}
                changed.append({"which": one.seq, "now": now, **values})

        for at in range(0, len(view.jobs), JOBS_AT_ONCE):
            if at:
                yield
            for job in view.jobs[at : at + JOBS_AT_ONCE]:
                one = known.get(job.id)
                if one is not None and one.view is job:
                    continue  # Slurm's are the same objects where nothing has changed; PBS's are read anew
                if job.priority and job.state in _WAITS:
                    self.priorities[job.id] = job.priority
                    self._waiting.add(job.id)
                charge = job.account, job.qos
                if any(charge) and is_own(job) and self.charges.get(job.id) != charge:
                    self.charges[job.id] = charge
                    self._waiting.add(job.id)
                seen = _noted(job)
                if one is not None and one.seen == seen:
                    one.view = job
                    continue
                if _is_left_out(job):
                    continue
                if one is not None and _is_another(one.row, job):
                    if one.row.open:
                        write(one, one.row._replace(end_s=now, open=False))
                    one = None
                row = _row(one.row if one is not None else None, job, now)
                if one is not None:
                    one.seen, one.view = seen, job
                    write(one, row)
                elif not job.state.ended or (job.end_s or 0.0) > now - DAY_S:
                    known[job.id] = _Known(self._next, row, seen, job)
                    new.append({"seq": self._next, "batch_id": job.id, "changed_s": now, **row._asdict()})
                    self._next += 1
        if not view.unparsed:  # what could not be read may be among them
            away = self._looked_s is None or now - self._looked_s > AWAY_S
            for id in known.keys() - {job.id for job in view.jobs}:
                if (one := known.pop(id)).row.open:
                    told = ends[id].end_s if id in ends else None
                    write(one, one.row._replace(end_s=told if told is not None or away else now, open=False))


class Noting:
    """One poll's notes, in transactions so short that others have their turn. `step` is called until it is False."""

    def __init__(self, others: Others, view: ClusterView, ends: Mapping[str, BatchEnd]) -> None:
        self._session: Session | None = None
        self._pieces = others.pieces(self._now, view, ends)

    def step(self, session: Session) -> bool:
        self._session = session
        return any(True for _ in self._pieces)

    def _now(self) -> Session:
        assert self._session is not None
        return self._session


def _sees(view: ClusterView) -> bool:
    return not view.blind


def _is_left_out(job: BatchJobView) -> bool:
    """EJB's own are in tables of their own, but for the elements of arrays that it passed through: those have one row
    for all. Of an array that waits each element is noted once it is listed."""
    if job.state is BatchState.UNKNOWN or "_[" in job.id or "[]" in job.id:
        return True
    return is_own(job)


def is_own(job: BatchJobView) -> bool:
    element = "_" in job.id or "[" in job.id
    return not element and not job.foreign and job.mark.startswith(TAG_PREFIX)


def _is_another(known: Noted, job: BatchJobView) -> bool:
    """Whether an id is another job's by now, or the same job is run again."""
    if None not in (known.submit_s, job.submit_s) and known.submit_s != job.submit_s:
        return True
    return not job.state.ended and (not known.open or (known.start_s is not None and not job.state.holds_processors))


def _row(known: Noted | None, job: BatchJobView, now: float) -> Noted:
    waits = not (job.state.ended or job.state.holds_processors)
    start_s = None if waits else job.start_s
    end_s = job.end_s if job.state.ended else None
    if job.state is BatchState.CANCELLED and start_s is not None and end_s is not None and end_s <= start_s:
        start_s = None  # it was cancelled where it waited
    held = job.state is BatchState.HELD
    ready_s = _since(job, now, known, known.ready_s if known else None, waits and (job.blocked or held))
    blocked = waits and ((job.blocked and not job.limited) or held)
    eligible_s = _since(job, now, known, known.eligible_s if known else None, blocked)
    limited_by = known.limited_by if known is not None else None
    if job.limited:
        limited_by = job.limited_by.name if job.limited_by is not None else UNTOLD
    asked = (job.user, job.queue, job.processors, job.walltime_s, job.submit_s, ready_s, eligible_s, limited_by)
    return Noted(*asked, job.account or None, job.qos or None, start_s, end_s, not job.state.ended)


def _since(job: BatchJobView, now: float, known: Noted | None, before: float | None, blocked: bool) -> float | None:
    """Since when nothing but room (or limits) is in the job's way: `before`, as long as nothing else is."""
    waits = not (job.state.ended or job.state.holds_processors)
    start_s = None if waits else job.start_s
    if blocked:
        return None
    if before is not None:
        return before
    if known is None:
        return job.submit_s if waits or job.submit_s is not None else start_s
    return now if waits else start_s
