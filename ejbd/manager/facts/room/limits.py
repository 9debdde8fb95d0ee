"""What the limits of accounts leave for one job's subjobs at this poll; the rule is `ejbd.core.room.limits`.

Where the limits cannot be read, the batch system's word about a J0 that stands on one is all that is known. Then no
subjob is asked for that would be charged to the same account and QOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select

from ejbd.core.needs import Needs
from ejbd.core.room.limits import Allowed, Charged, Left, left_of, needs, nodes_width, within_limits
from ejbd.core.room.windows import Windows
from ejbd.core.shapes import BackfillSlot
from ejbd.core.view import AccountLimit, BatchJobView, ClusterView, Counted
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.tags import TAG_PREFIX, job_id_in
from ejbd.store.models import Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole


class LimitRoom:
    """One poll's. What a limit leaves is worked out once; subjobs that jobs have asked for are taken off it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._left: dict[tuple[AccountLimit, int], Left] = {}
        self._by_mark: dict[str, BatchJobView] | None = None
        self._coming: list[Charged] | None = None

    def allowed(self, world: JobWorld, found: Windows) -> Allowed:
        """Windows in places of the job, as far as limits let it use them, and how many subjobs it may ask for."""
        view = self.ctx.view
        if view is None or not found.steps:
            return Allowed(found)
        j0, charged = self.j0(world), self.charged(world)
        if charged is None:
            return Allowed(found)
        per_node = nodes_width(view, charged.queue)
        if j0 is not None and j0.limited and shares(j0, charged) and not in_short(view, j0, per_node):
            return Allowed(replace(found, steps=()), 0.0, (j0.reason,))
        if not view.limits:
            return Allowed(found)
        left = [self._left_of(view, limit, per_node) for limit in view.limits if _holds(limit, charged)]
        allowed = within_limits(_in_processors(found, world.needs), left, charged, j0, self._others(), per_node)
        return replace(allowed, windows=_in_places(allowed.windows, world.needs))

    def take(self, world: JobWorld, taken: Sequence[tuple[int, float]]) -> None:
        """The job has asked for these subjobs (processors, seconds)."""
        charged = self.charged(world)
        if charged is not None and self._coming is not None:
            self._coming += [replace(charged, processors=count, walltime_s=seconds) for count, seconds in taken]

    def j0(self, world: JobWorld) -> BatchJobView | None:
        """J0 as the batch system lists it."""
        placeholder = world.placeholder
        return self.marked().get(placeholder.tag) if placeholder is not None else None

    def charged(self, world: JobWorld) -> Charged | None:
        """To what the job's next subjob will be charged; None: nothing of the job is listed by which one could tell."""
        job, settings = world.job, self.ctx.queue_settings(world.job.queue)
        like = self.j0(world) or next(
            (self.marked()[s.tag] for s in world.open_subjobs if s.tag in self.marked()), None
        )
        if like is None:
            return None
        account, qos = settings.subjob_account or like.account, settings.subjob_qos or like.qos
        return Charged(account, qos, job.queue.partition(",")[0])

    def marked(self) -> dict[str, BatchJobView]:
        """The daemon's own batch jobs, by their tags."""
        if self._by_mark is None:
            jobs = self.ctx.view.jobs if self.ctx.view is not None else ()
            self._by_mark = {job.mark: job for job in jobs if job.mark.startswith(TAG_PREFIX)}
        return self._by_mark

    def _left_of(self, view: ClusterView, limit: AccountLimit, per_node: int) -> Left:
        found = self._left.get((limit, per_node))
        if found is None:
            found = self._left[limit, per_node] = left_of(view, limit, per_node)
        return found

    def _others(self) -> list[Charged]:
        """Subjobs that were asked for and have not started: the batch system does not count them as running yet."""
        if self._coming is not None:
            return self._coming
        query = select(Subjob.tag, Subjob.processors, Subjob.walltime_s, Job.id, Job.queue)
        query = query.join(Job, Subjob.job_id == Job.id).where(
            Subjob.role == SubjobRole.SUBJOB,
            Subjob.state.in_((SubjobState.PLANNED, SubjobState.PENDING)),
            Subjob.releasing.is_(False),
        )
        of_jobs: dict[str, BatchJobView] = {}
        for mark, job in self.marked().items():
            of_jobs.setdefault(job_id_in(mark), job)
        found = []
        for tag, processors, walltime_s, id, queue in self.ctx.session.execute(query):
            like = self.marked().get(tag)
            settings = self.ctx.queue_settings(queue)
            if like is not None:
                found.append(Charged(like.account, like.qos, like.queue, processors, walltime_s))
            elif (like := of_jobs.get(id)) is not None:
                account, qos = settings.subjob_account or like.account, settings.subjob_qos or like.qos
                found.append(Charged(account, qos, queue, processors, walltime_s))
        self._coming = found
        return found


def told(world: JobWorld, by: Sequence[str]) -> str:
    """What limits have to do with a job that waits or runs, in words; "" where nothing. `by`: what bounds its room."""
    view = world.ctx.view
    if view is None:
        return ""
    waiting = {s.tag: s for s in world.open_subjobs if s.state == SubjobState.PENDING}
    parts = []
    for seen in view.jobs:
        subjob = waiting.get(seen.mark) if seen.limited else None
        if subjob is not None:
            short = in_short(view, seen, nodes_width(view, seen.queue.partition(",")[0]))
            which = f" ({'; '.join(map(_used, short))})" if short else ""
            what = "J0" if subjob.role == SubjobRole.PLACEHOLDER else "its batch job"
            parts.append(f"{what} ({seen.id}) stands on {seen.reason}{which}")
    known = {limit.name: limit for limit in view.limits}
    bounds = [_used(known[name]) if name in known else name for name in by]
    if bounds:
        parts.append(f"limits bound what it may be given beside J0: {'; '.join(bounds)}")
    if view.limits_unknown:
        parts.append(f"the limits of its account are not known: {view.limits_unknown}")
    settings = world.ctx.queue_settings(world.job.queue)
    ours = any(s.role == SubjobRole.SUBJOB for s in world.open_subjobs)
    if view.fair_share and ours and not (settings.subjob_qos or settings.subjob_account):
        parts.append("what its subjobs use is charged to J0's account, and lowers J0's priority by fair share")
    return "; ".join(parts)


def _used(limit: AccountLimit) -> str:
    """`MaxJobs of ada in account physics, 1 of 2 used`."""
    if limit.counted in (Counted.OF_A_JOB, Counted.WALLTIME_S):
        return f"{limit.name}, {limit.most:g}"
    return f"{limit.name}, {limit.used:g} of {limit.most:g} used"


def _holds(limit: AccountLimit, charged: Charged) -> bool:
    return limit.holds_for(charged.account, charged.qos, charged.queue)


def shares(j0: BatchJobView, charged: Charged) -> bool:
    """Whether a job would be charged to the very account and QOS of J0."""
    return (j0.account, j0.qos) == (charged.account, charged.qos)


def in_short(view: ClusterView, job: BatchJobView, per_node: int) -> list[AccountLimit]:
    """The limits of which too little is left for a job that waits, though it would not exceed them alone."""
    return [
        limit
        for limit in view.limits
        if limit.counted not in (Counted.SUBMITTED, Counted.OF_A_JOB, Counted.WALLTIME_S)
        and limit.holds_for(job.account, job.qos, job.queue)
        and limit.most - limit.used < needs(limit, job.processors, job.walltime_s, per_node) <= limit.most
    ]


def _in_processors(found: Windows, wanted: Needs) -> Windows:
    if wanted.processors == 1:
        return found
    steps = tuple(BackfillSlot(step.processors * wanted.processors, step.duration_s) for step in found.steps)
    return replace(found, steps=steps, processor_quantum=found.processor_quantum * wanted.processors)


def _in_places(found: Windows, wanted: Needs) -> Windows:
    if wanted.processors == 1:
        return found
    steps = tuple(BackfillSlot(step.processors // wanted.processors, step.duration_s) for step in found.steps)
    return replace(found, steps=steps, processor_quantum=max(1, found.processor_quantum // wanted.processors))
