"""Rule B, live: a waiting job is planned by its user's last two runs, and its limit is raised before that is over.

Only a Slurm operator may raise a limit. So each job's is raised by a minute first, while it waits: where that is
refused it keeps its request, and no other is tried for an hour. Then it is lowered to the plan. From then on the daemon
has to be there in time: a job that it does not raise is killed by its plan.
"""

from __future__ import annotations

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from ejbd.core.speculation.raising import LAST, ahead_s, planned_s
from ejbd.core.view import BatchState
from ejbd.manager.effects import Act, Effects, Keep, note, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.classes import LOOKED_AT, is_over
from ejbd.manager.facts.past.speculating import not_again
from ejbd.manager.facts.raised import RAISED, REFUSED, noted, under_way
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.rules.learning import standby
from ejbd.store.models import Job, PastRun, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

JOBS_AT_ONCE = 100  # of each step, at one look
TRIED_AGAIN_S = 3600.0  # after one could not be raised, no limit is lowered for so long


def plan(ctx: Context) -> Effects[None]:
    """Waiting jobs of queues with `raised` are planned by what their users' last runs took, and those that run longer
    get their request."""
    yield from _raise(ctx)
    view, memory = ctx.view, ctx.memory
    if view is None or ctx.now < memory.raises_from_s:
        return
    on = {queue.name: raised for queue in view.queues if (raised := ctx.queue_settings(queue.name).raised) != "off"}
    pending = {job.mark for job in view.jobs if job.state is BatchState.PENDING}
    if not on or not pending:
        return
    runs: dict[str, list[float]] = {}
    for job, subjob in ctx.session.execute(
        select(Job, Subjob)
        .join(Subjob, Subjob.job_id == Job.id)
        .where(Job.state == JobState.WAITING, Job.elastic.is_(False), Job.queue.in_(on))
        .where(func.coalesce(cast(Job.walltimes, Text), "null") == "null")
        .where(Subjob.role == SubjobRole.RIGID, Subjob.state == SubjobState.PENDING, Subjob.releasing.is_(False))
        .order_by(Job.seq)
        .limit(JOBS_AT_ONCE)
    ):
        if job.user not in runs:
            runs[job.user] = _last(ctx.session, job.user)
        spec = JobSpec.from_json(job.spec)
        first_s = planned_s(runs[job.user], job.walltime_s, view.walltime_quantum_s, ctx.settings.poll_s)
        may = on[job.queue] == "all" or not not_again(spec)
        single = spec.learned is not False and not standby.is_several(spec) and not spec.array
        if first_s is None or not may or not single or subjob.tag not in pending:
            continue
        yield note(job, walltimes=noted(JobWorld(ctx, job), first_s))
        yield Act(IntentKind.LOWER, job.id, subjob=subjob)


def _last(session: Session, user: str) -> list[float]:
    """The run times of a user's last runs, the newest first."""
    newest = select(PastRun).order_by(PastRun.id.desc()).limit(LOOKED_AT).subquery()
    query = select(newest.c.run_s, newest.c.requested_s, newest.c.outcome).where(newest.c.user == user)
    rows = session.execute(query.order_by(newest.c.id.desc()))
    return [run_s for run_s, requested_s, outcome in rows if is_over(run_s, requested_s, outcome)][:LAST]


def _raise(ctx: Context) -> Effects[None]:
    """Jobs that run, and would come to the end of their plan."""
    ahead = ahead_s(ctx.settings.poll_s)
    query = select(Job, Subjob).join(Subjob, Subjob.job_id == Job.id)
    query = query.where(Job.state == JobState.RUNNING, Job.elastic.is_(False), Subjob.state == SubjobState.RUNNING)
    query = query.where(Subjob.role == SubjobRole.RIGID, Subjob.walltime_s < Job.walltime_s)
    for job, subjob in ctx.session.execute(query):
        plan = under_way(job)
        if plan is None or plan["asked"] or subjob.start_s is None:
            continue
        if ctx.now >= subjob.start_s + plan["first_s"] - ahead:
            yield note(job, walltimes={**(job.walltimes or {}), "raised": {**plan, "asked": True}})
            yield Act(IntentKind.RAISE, job.id, subjob=subjob)


def lowered(job: Job, subjob: Subjob) -> Effects[None]:
    """The batch system plans it with less than its request."""
    plan = under_way(job)
    if plan is None:
        return
    yield note(subjob, walltime_s=plan["first_s"])
    why = f"by its user's last {LAST} runs; it is raised to {job.walltime_s:g} s before that is over"
    yield tell(EventKind.JOB_LIMIT, job_id=job.id, walltime_s=plan["first_s"], reason=why)


def not_lowered(ctx: Context, job: Job, message: str) -> Effects[None]:
    """It keeps its request: its limit could not be raised by a minute, or it has begun."""
    yield from _ended(job, REFUSED)
    yield tell(EventKind.JOB_LIMIT, job_id=job.id, walltime_s=job.walltime_s, reason=f"its request stands: {message}")
    yield Keep({"raises_from_s": ctx.now + TRIED_AGAIN_S})


def raised(job: Job, subjob: Subjob) -> Effects[None]:
    """It may run for all that was asked for."""
    first_s = subjob.walltime_s
    yield note(subjob, walltime_s=job.walltime_s, usable_s=job.walltime_s)
    yield from _ended(job, RAISED)
    why = f"it has not come to its end within {first_s:g} s"
    yield tell(EventKind.JOB_LIMIT, job_id=job.id, walltime_s=job.walltime_s, reason=why)


def _ended(job: Job, how: str) -> Effects[None]:
    plan = under_way(job)
    if plan is not None:
        yield note(job, walltimes={**(job.walltimes or {}), "raised": {**plan, "end": how}})


def is_wanted(ctx: Context) -> bool:
    """Read only. Whether any job is to be planned so, or may have to be raised."""
    queues = ctx.view.queues if ctx.view is not None else ()
    return any(ctx.queue_settings(queue.name).raised != "off" for queue in queues) or _any_planned(ctx.session)


_PLANNED = (
    select(Subjob.id)
    .join(Job, Subjob.job_id == Job.id)
    .where(Job.elastic.is_(False), Job.state == JobState.RUNNING, Subjob.state == SubjobState.RUNNING)
    .where(Subjob.role == SubjobRole.RIGID, Subjob.walltime_s < Job.walltime_s)
    .limit(1)
)


def _any_planned(session: Session) -> bool:
    return session.scalars(_PLANNED).first() is not None
