"""What a poll shows against what the store believes, job by job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import defer

from ejbd.batch.base import BatchEnd
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.manager.acts.carrying import carry_out, do, in_savepoint
from ejbd.manager.effects import Effects, note
from ejbd.manager.facts import arrays
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.manager.facts.tags import is_ours
from ejbd.manager.facts.times import planned_end
from ejbd.manager.rules.looks import changes, doubles, observe, uncancelled
from ejbd.manager.rules.looks.observe import (
    FORGOTTEN_S,
    find_empty_subjobs,
    find_silent_workers,
    seen_of,
)
from ejbd.store.models import Job, Subjob
from ejbd.store.states import OPEN_SUBJOB, SubjobState
from ejbd.store.transitions import job_topic, wake
from ejbd.wire.kinds import SubjobRole

JOBS_AT_ONCE = 8  # that are looked at between two chances for others to write


ROWS_AT_ONCE = 200


_PLAN = (
    update(Subjob.__table__)  # type: ignore[arg-type]
    .where(Subjob.id == bindparam("subjob"), Subjob.state == SubjobState.PENDING.value)
    .values(planned_start_s=bindparam("plan"), reason=bindparam("why"), told_submit_s=bindparam("told"))
)


_T = TypeVar("_T")


class Reconciler:
    """Brings every open subjob up to the view: starts, ends, graces, strangers under our names.

    `pieces` goes on by some milliseconds each time; `context` gives the transaction that is under way.
    """

    def __init__(
        self,
        context: Callable[[], Context],
        view: ClusterView,
        roster: Roster,
        outcomes: Mapping[str, Mapping[str, BatchEnd]],
    ) -> None:
        self._context = context
        self._view = view
        self._roster = roster
        self._outcomes = outcomes
        self._families = arrays.families(view)
        self.looked_at: set[str] = set()  # jobs that may have changed

    def pieces(self) -> Iterator[None]:
        ctx = self._context()
        carry_out(ctx, changes.begin(ctx, self._view))
        listed = {job.id: job for job in self._view.jobs}
        plans: list[tuple[str, dict[str, Any]]] = []
        for at, (id, rows) in enumerate(self._roster.subjobs.items()):
            if not self._as_before(id, rows, listed) and not self._all_go_on(id, rows, listed, plans):
                self.looked_at.add(id)
            if at % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                yield
        yield
        for some in _batches(plans, ROWS_AT_ONCE):
            session = self._context().session
            session.connection().execute(_PLAN, [plan for _, plan in some])
            wake(session, *(job_topic(job) for job, _ in some))
            yield
        # In order of arrival; at last those on their way out, after the end of their job.
        order = [id for id in self._roster.jobs if id in self.looked_at]
        order += [id for id in self._roster.subjobs if id in self.looked_at and id not in self._roster.jobs]
        for ids in _batches(order, JOBS_AT_ONCE):
            self._look_at(ids, listed)
            yield
        ctx = self._context()
        carry_out(ctx, doubles.look(ctx, self._view, self._roster.tags()))
        carry_out(ctx, uncancelled.look(ctx, self._view, self._roster))
        yield
        ctx = self._context()
        carry_out(ctx, find_silent_workers(ctx))
        yield

    def _as_before(self, id: str, rows: Sequence[SubjobRow], listed: Mapping[str, BatchJobView]) -> bool:
        """Whether nothing has changed about a job that was left alone with nothing to note, neither here nor there."""
        old = self._roster.seen.get(id)
        new = listed.get(old.id) if old is not None else None
        if old is None or new is None:
            return False
        return new is old or (
            new.state is old.state
            and new.planned_start_s == old.planned_start_s
            and new.reason == old.reason
            and new.walltime_s == old.walltime_s
            and new.tag == old.tag
            and new.name == old.name
            and new.foreign == old.foreign
            and new.submit_s == old.submit_s
        )

    def _all_go_on(
        self,
        id: str,
        rows: Sequence[SubjobRow],
        listed: Mapping[str, BatchJobView],
        plans: list[tuple[str, dict[str, Any]]],
    ) -> bool:
        noted = len(plans)
        if not all(self._goes_on(row, seen_of(row, listed), plans) for row in rows if row.batch_id is not None):
            return False
        if len(rows) == 1 and len(plans) == noted and rows[0].state == SubjobState.PENDING:
            seen = listed.get(rows[0].batch_id or "")
            if seen is not None:
                self._roster.seen[id] = seen
        return True

    def _goes_on(self, row: SubjobRow, seen: BatchJobView | None, plans: list[tuple[str, dict[str, Any]]]) -> bool:
        """Whether there is nothing to do about a subjob but to note what the batch system plans.

        It says so of the many, and saves loading each of them. A subjob that it does not know goes to :func:`look`, and
        nothing is done here that is not what `look` does.
        """
        if seen is None or row.missing_since_s is not None or row.heard_s is not None or row.elements is not None:
            return False
        if row.state == SubjobState.RUNNING:
            if seen.share:  # of a pool: what it has may be other than what its ranks are on
                return False
            settled = row.releasing or row.joined or row.role == SubjobRole.RIGID
            runs = seen.state.holds_processors and seen.state is not BatchState.SUSPENDED
            return settled and runs and planned_end(row.start_s, seen) in (None, row.end_s)
        if row.state == SubjobState.SUSPENDED:
            return seen.state is BatchState.SUSPENDED
        job = self._roster.jobs.get(row.job_id)
        waits = row.state == SubjobState.PENDING and not (seen.state.ended or seen.state.holds_processors)
        if not waits or row.role == SubjobRole.SUBJOB or job is None:
            return False
        if changes.news(self._context(), row, seen, job.held or row.stays) is not None:
            return False
        if row.role == SubjobRole.PLACEHOLDER and job.rigid_start_s is None and seen.promised_s is not None:
            return False  # its first promise
        now = {"plan": seen.planned_start_s, "why": seen.reason, "told": seen.submit_s}
        if tuple(now.values()) != (row.planned_start_s, row.reason, row.told_submit_s):
            plans.append((row.job_id, {"subjob": row.id, **now}))
        return True

    def _look_at(self, ids: Sequence[str], listed: Mapping[str, BatchJobView]) -> None:
        """Some jobs with whatever is open of them, as they are by now."""
        ctx = self._context()
        query = select(Subjob, Job).join(Job, Subjob.job_id == Job.id)
        query = query.where(Job.id.in_(ids), Subjob.state.in_(OPEN_SUBJOB), Subjob.batch_id.is_not(None))
        # The specification, with a whole environment in it, is read where it is asked for.
        query = query.order_by(Job.seq, Subjob.ordinal).options(defer(Job.spec))
        worlds: dict[str, JobWorld] = {}
        rows = [(subjob, job) for subjob, job in ctx.session.execute(query)]
        for subjob, job in rows:
            world = worlds.setdefault(job.id, JobWorld(ctx, job))

            def look(world: JobWorld, subjob: Subjob = subjob) -> Effects[None]:
                id = subjob.batch_id or ""
                seen = self._as_one(subjob) if id in self._families or subjob.elements else seen_of(subjob, listed)
                yield from observe.look(world, subjob, seen, self._outcomes.get(subjob.tag, {}).get(id))

            in_savepoint(world, look)
        carry_out(ctx, find_empty_subjobs(ctx, [(worlds[job.id], subjob) for subjob, job in rows]))

    def _as_one(self, subjob: Subjob) -> BatchJobView | None:
        """An array or a heterogeneous job, with what is said of its elements noted."""
        rows = [row for row in self._families.get(subjob.batch_id or "", ()) if is_ours(row, subjob)]
        own = self._outcomes.get(subjob.tag, {})
        whole = next((job for job in self._view.jobs if job.id == subjob.batch_id), None)
        if whole is not None and not rows:
            return whole if is_ours(whole, subjob) else None  # an array of which the batch system speaks as one
        looked_s = self._context().looked_s
        lately = looked_s is not None and self._view.time_s - max(looked_s, subjob.submit_s or 0) < FORGOTTEN_S
        all_listed = self._view.elements_listed
        elements = arrays.note(subjob, rows, own, lately=lately, all_listed=all_listed)
        if elements != subjob.elements:
            do(self._context(), note(subjob, elements=elements))
        return arrays.as_one(subjob, rows)


def _batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
