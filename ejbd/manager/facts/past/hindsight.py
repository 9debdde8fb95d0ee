"""What hindsight replays (ejbd/core/hindsight.py): a day's batch jobs, from the rows of polls and of EJB's own jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, defer

from ejbd.core.hindsight import WAITED_S, Bounds, Compared, Kept, Submitted, compare, ranks
from ejbd.core.progress import whole_units
from ejbd.core.room.limits import nodes_width
from ejbd.core.sitelimits import Limits, SiteRules, Take
from ejbd.core.view import ClusterView
from ejbd.manager.facts.times import work_now
from ejbd.store.models import Job, OtherGap, OtherJob, OtherKept, Subjob
from ejbd.store.queries import open_or_ended
from ejbd.store.states import TERMINAL_JOB, TERMINAL_SUBJOB
from ejbd.wire.kinds import JobKind, SubjobRole

DAY_S = 86400.0
NEVER_S = 365 * DAY_S  # the walltime of a job that has none
SUMS = ("jobs", "gained", "gained_s", "lost", "lost_s", "unsure", "error_s", "before_real_s")
LEAST_S = 1.0  # that a job gains or loses, to be counted: batch systems tell whole seconds


@dataclass(slots=True)
class Pool:
    """Queues that share nodes, and what was there of the day: other jobs with their starts, and elastic ones twice."""

    processors: int = 0
    real: list[tuple[Submitted, float]] = field(default_factory=list)
    elastic: list[Submitted] = field(default_factory=list)
    rigid: list[Submitted] = field(default_factory=list)
    runs: list[tuple[float, float, int]] = field(default_factory=list)  # what really ran: start, end, processors
    kept: list[Kept] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return len(self.real) + len(self.elastic) + len(self.rigid)


@dataclass(slots=True)
class Day:
    """A day (UTC) before its replay. `of`: the user and the queue of another job. `most`: of limits, by their numbers.
    `unsure`: other jobs that waited for a limit which is not played. `untold`: why none is played, "" where they are.
    """

    day_s: float
    pools: dict[int, Pool]
    of: dict[str, tuple[str, str]] = field(default_factory=dict)
    away_s: float = 0.0
    unknown: int = 0
    left_out: int = 0
    most: tuple[float, ...] = ()
    unsure: set[str] = field(default_factory=set)
    untold: str = ""

    @property
    def ranked(self) -> bool:
        """Whether what waits stands by its priority in every pool."""
        return all(ranks(pool.real, pool.rigid) for pool in self.pools.values())

    @property
    def begin_s(self) -> float:
        """The replay begins a day before: what waits at midnight is then as EASY would have it."""
        return self.day_s - DAY_S


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of batch jobs beside their rows: priorities as they waited last, and account and QOS of EJB's own.

    `rules`: the limits of the site as they are now; None: they are not told, and `untold` says why.
    """

    priorities: Mapping[str, int] = field(default_factory=dict)
    charges: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rules: SiteRules | None = None
    untold: str = ""


NOTHING = Known()


def read_day(session: Session, view: ClusterView, day_s: float, now: float, known: Known = NOTHING) -> Day:
    """What is known by now of the jobs that started on a day, or are in the way of those."""
    queues = _pools(view)
    day = Day(day_s, {pool: Pool() for pool in queues.values()}, untold=known.untold)
    until_s = min(now, day_s + DAY_S)
    for node in view.nodes:
        if node.usable and node.queues and node.queues[0] in queues:
            day.pools[queues[node.queues[0]]].processors += node.processors
    reader = _Reader(session, view, day, queues, until_s, known)
    reader.others()
    reader.elastic(reader.passed_through_and_parts())
    reader.kept()
    day.most = reader.most
    for pool in day.pools.values():
        pool.processors = max(pool.processors, _peak(pool.runs))
    gaps = select(OtherGap).where(OtherGap.until_s > day_s, OtherGap.from_s < until_s)
    day.away_s = sum(min(gap.until_s, until_s) - max(gap.from_s, day_s) for gap in session.scalars(gaps))
    return day


def replayed(day: Day) -> list[dict[str, Any]]:
    """The rows of the day (`OtherDay`), plain. It takes seconds for a large site: not for the daemon's own threads."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in _compared(day):
        if not day.day_s <= one.real_s < day.day_s + DAY_S:
            continue
        user, queue = day.of[one.id]
        row = rows.get((user, queue))
        if row is None:
            sums = dict.fromkeys(
                ("jobs", "gained", "gained_s", "lost", "lost_s", "unsure", "error_s", "before_real_s"), 0
            )
            row = rows[user, queue] = {"day_s": day.day_s, "user": user, "queue": queue, **sums}
        row["jobs"] += 1
        row["unsure"] += one.id in day.unsure
        row["error_s"] += one.error_s
        row["before_real_s"] += one.before_real_s
        if abs(one.gained_s) >= LEAST_S:
            name = "gained" if one.gained_s > 0 else "lost"
            row[name] += 1
            row[f"{name}_s"] += abs(one.gained_s)
    return list(rows.values())


def _compared(day: Day) -> Iterator[Compared]:
    for pool in day.pools.values():
        yield from compare(
            *(pool.real, pool.elastic, pool.rigid, pool.processors, day.begin_s), Bounds(day.most, tuple(pool.kept))
        )


def _pools(view: ClusterView) -> dict[str, int]:
    """Queue -> the number of its pool: queues that share a node are one."""
    pool = {queue.name: at for at, queue in enumerate(view.queues)}
    for names in {node.queues for node in view.nodes}:
        known = [pool[name] for name in names if name in pool]
        for name, at in pool.items():
            if at in known:
                pool[name] = min(known)
    return pool


def _peak(runs: list[tuple[float, float, int]]) -> int:
    """The most processors that really were in use at once; of start, end and processors of each job."""
    turns = [(start_s, processors) for start_s, _, processors in runs]
    turns += [(end_s, -processors) for _, end_s, processors in runs]
    return max(accumulate(processors for _, processors in sorted(turns)), default=0)


class _Reader:
    def __init__(
        self,
        session: Session,
        view: ClusterView,
        day: Day,
        queues: Mapping[str, int],
        until_s: float,
        known: Known,
    ) -> None:
        self._session, self._view, self._day, self._queues = session, view, day, queues
        self._until_s, self._known, self._priorities = until_s, known, known.priorities
        self._limits = Limits(known.rules or SiteRules())
        self._wide = {queue.name: nodes_width(view, queue.name) for queue in view.queues}
        self._units = {queue.name: queue.processor_quantum for queue in view.queues}

    def others(self) -> None:
        """Batch jobs that are not EJB's."""
        begin_s = self._day.begin_s
        query = select(OtherJob).where(OtherJob.start_s < self._until_s)
        for row in self._session.scalars(query.where(or_(OtherJob.end_s.is_(None), OtherJob.end_s > begin_s))):
            assert row.start_s is not None
            unseen = row.end_s is None and not row.open
            if unseen and row.start_s + (row.walltime_s or NEVER_S) < begin_s:
                continue
            self._day.unknown += unseen
            id = f"o{row.seq}"
            takes = self._takes(row.user, _charge(row), row.queue, row.processors, row.walltime_s)
            ready_s, priority = self._ready(id, row, takes), self._priorities.get(row.batch_id)
            times = ready_s, row.start_s, row.end_s
            job = self._begun(id, row.queue, row.processors, row.walltime_s, *times, priority, takes)
            self._other(job, row.start_s, row.user, row.queue)

    @property
    def most(self) -> tuple[float, ...]:
        return self._limits.most

    def _ready(self, id: str, row: OtherJob, takes: tuple[Take, ...]) -> float | None:
        """Since when it waits for what the replay knows: limits, too, where one of the kind it stood on is played."""
        ready_s = row.ready_s if row.ready_s is not None else row.submit_s
        if row.limited_by is None:
            return ready_s
        charge = _charge(row)
        known = charge is not None and self._limits.holds(takes, row.limited_by, row.user, charge, _first(row.queue))
        if known and row.eligible_s is not None:
            return row.eligible_s
        waited_s = (ready_s or 0.0) - (row.eligible_s if row.eligible_s is not None else row.submit_s or 0.0)
        if waited_s > WAITED_S:
            self._day.unsure.add(id)
        return ready_s

    def _takes(
        self, user: str, charge: tuple[str, str] | None, queue: str, processors: int, walltime_s: float | None
    ) -> tuple[Take, ...]:
        """What it takes of limits; nothing, where it is not known what it was charged to."""
        rules, name = self._known.rules, _first(queue)
        if rules is None or charge is None or not rules.knows(user):
            return ()
        return self._limits.takes(user, charge, name, processors, walltime_s or NEVER_S, self._wide.get(name, 1))

    def kept(self) -> None:
        """Maintenance that is in the way of what starts, by pools."""
        query = select(OtherKept).where(OtherKept.end_s > self._day.begin_s, OtherKept.end_s > OtherKept.start_s)
        nodes = {node.name: node for node in self._view.nodes}
        for row in self._session.scalars(query):
            processors: dict[int, int] = {}
            for node in (nodes[name] for name in row.nodes if name in nodes):
                pool = self._queues.get(node.queues[0]) if node.queues else None
                if pool is not None:
                    count = node.processors if row.processors is None else min(row.processors, node.processors)
                    processors[pool] = processors.get(pool, 0) + count
            for pool, count in processors.items():
                self._day.pools[pool].kept.append(Kept(row.start_s, row.end_s, count))

    def passed_through_and_parts(self) -> dict[str, list[tuple[Subjob, Submitted]]]:
        """Take in the jobs that EJB passed through, which are other jobs, too; the parts of elastic ones by their job.

        An array that was passed through is one row, without the times of its elements: those are noted as others' jobs.
        """
        parts: dict[str, list[tuple[Subjob, Submitted]]] = {}
        query = select(Subjob, Job.user, Job.queue, Job.elastic).join(Job, Subjob.job_id == Job.id)
        query = query.where(Subjob.submit_s < self._until_s)
        query = query.where(open_or_ended(Subjob, self._day.begin_s))
        for row, user, queue, elastic in self._session.execute(query):
            if row.elements is not None:
                continue
            job = self._of_subjob(row, user, queue)
            if job is None:
                continue
            if elastic:
                parts.setdefault(row.job_id, []).append((row, job))
            elif row.start_s is not None and row.start_s < self._until_s:
                self._other(job, row.start_s, user, queue)
        return parts

    def elastic(self, parts: Mapping[str, list[tuple[Subjob, Submitted]]]) -> None:
        """Each elastic job twice. One that had begun before is in both replays as it was."""
        begin_s = self._day.begin_s
        query = select(Job).where(Job.elastic, Job.kind != JobKind.ARRAY, Job.submit_s < self._until_s)
        query = query.where(open_or_ended(Job, begin_s)).options(defer(Job.spec))
        width: dict[str, int] = dict(
            self._session.execute(
                select(Subjob.job_id, func.max(Subjob.processors))
                .where(Subjob.job_id.in_(query.with_only_columns(Job.id)), Subjob.ordinal == 0)
                .group_by(Subjob.job_id)
            ).all()
        )
        for job in self._session.scalars(query):
            pool = self._pool(job.queue)
            if pool is None:
                self._day.left_out += 1
                continue
            own = [part for _, part in parts.get(job.id, [])]
            pool.elastic += own
            begun = [(row.start_s, part) for row, part in parts.get(job.id, []) if row.start_s is not None]
            pool.runs += [(start_s, start_s + part.run_s, part.processors) for start_s, part in begun]
            if job.start_s is not None and job.start_s < begin_s:
                pool.rigid += own
            else:
                j0 = next((row for row, _ in parts.get(job.id, []) if row.ordinal == 0), None)
                pool.rigid.append(self._rigid(job, width.get(job.id, job.processes), (j0 and j0.batch_id) or ""))

    def _rigid(self, job: Job, processors: int, j0: str) -> Submitted:
        """The one batch job that its user asked for, with its J0's priority, charged to what J0 is."""
        over = job.state in TERMINAL_JOB and job.end_s is not None
        run_s, leaves_s = job.walltime_s, math.inf
        if over and job.start_s is None:
            leaves_s = job.end_s or 0.0  # it was taken back where it waited
        elif over:
            run_s = min(job.walltime_s, work_now(job, job.end_s or 0.0))
        width, priority = self._whole(processors, job.queue), self._priorities.get(j0)
        takes = self._takes(job.user, self._known.charges.get(j0), job.queue, processors, job.walltime_s)
        return Submitted(f"r{job.id}", width, job.walltime_s, job.submit_s, run_s, None, leaves_s, priority, takes)

    def _of_subjob(self, row: Subjob, user: str, queue: str) -> Submitted | None:
        """A batch job of EJB's. None: it never began to count."""
        over = row.state in TERMINAL_SUBJOB
        end_s = row.end_s if over else None
        id = row.batch_id or ""
        priority = self._priorities.get(id)
        takes = self._takes(user, self._known.charges.get(id), queue, row.processors, row.walltime_s)
        if row.start_s is not None and row.start_s < self._until_s:
            times = row.submit_s, row.start_s, end_s
            return self._begun(f"s{row.id}", queue, row.processors, row.walltime_s, *times, priority, takes)
        if row.role == SubjobRole.STANDBY or (over and end_s is None):
            return None  # it waits for another one's end, or was never there
        processors, leaves_s = self._whole(row.processors, queue), math.inf if end_s is None else end_s
        waits = row.walltime_s, row.submit_s or 0.0, row.walltime_s
        return Submitted(f"s{row.id}", processors, *waits, None, leaves_s, priority, takes)

    def _begun(
        self,
        id: str,
        queue: str,
        processors: int,
        walltime_s: float | None,
        ready_s: float | None,
        start_s: float,
        end_s: float | None,
        priority: int | None,
        takes: tuple[Take, ...],
    ) -> Submitted:
        """A job that started. One that runs on, or ended unseen, is taken to run to its walltime."""
        walltime_s = NEVER_S if walltime_s is None else walltime_s
        run_s = walltime_s if end_s is None else max(0.0, end_s - start_s)
        began_s = start_s if start_s < self._day.begin_s else None
        ready_s = start_s if ready_s is None else min(ready_s, start_s)
        width = self._whole(processors, queue)
        return Submitted(id, width, walltime_s, ready_s, run_s, began_s, priority=priority, takes=takes)

    def _other(self, job: Submitted, start_s: float, user: str, queue: str) -> None:
        pool = self._pool(queue)
        if pool is None:
            self._day.left_out += 1
            return
        self._day.of[job.id] = user, queue
        pool.real.append((job, start_s))
        pool.runs.append((start_s, start_s + job.run_s, job.processors))

    def _pool(self, queue: str) -> Pool | None:
        """A job may name several queues, of which one is enough: they mostly share nodes."""
        at = self._queues.get(_first(queue))
        return None if at is None else self._day.pools[at]

    def _whole(self, processors: int, queue: str) -> int:
        return whole_units(processors, self._units.get(queue, 1))


def _first(queue: str) -> str:
    return queue.partition(",")[0]


def _charge(row: OtherJob) -> tuple[str, str] | None:
    return None if row.account is None and row.qos is None else (row.account or "", row.qos or "")
