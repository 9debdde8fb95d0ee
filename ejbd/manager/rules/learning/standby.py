"""The run after the next time-out, submitted as soon as one begins: it stands by in the queue, and keeps that place.

The batch system starts it after no end by itself. A dependency cannot tell a time-out from any other failure. And what
runs is the user's script as it is, with nothing around it that could look first. So the daemon lets it begin, once it
has seen the time-out and stored it. Until then it has two locks (`SubmitRequest.stands_by_for`). A daemon that is away
costs time, never a second run of what ended in another way.
"""

from __future__ import annotations

from math import inf

from sqlalchemy import select

from ejbd.core.continuation import next_link
from ejbd.core.room.walltimes import asked_walltime
from ejbd.core.walltime import MINUTE_S
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.effects import Act, Ask, Effects, Release, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.speculating import next_of
from ejbd.manager.facts.times import walltime_end, work_now
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.depends import When
from ejbd.store.models import Intent, Subjob
from ejbd.store.states import IntentState, SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

NOT_YET_S = 7 * 86400.0  # behind the end of a place holder: the next one waits for the daemon's word
_NOT_BEGUN = (SubjobState.PLANNED, SubjobState.PENDING)


def of(world: JobWorld) -> Subjob | None:
    """What stands by for a job."""
    return next((s for s in world.open_subjobs if s.role == SubjobRole.STANDBY and not s.releasing), None)


def plan(world: JobWorld) -> Effects[None]:
    """A run of a passed-through job has begun: have the next one stand by, where a time-out would take it."""
    job, spec = world.job, world.spec
    following = next_of(job.walltimes)
    if following is None or "planned_s" in (job.walltimes or {}) or not spec.rerunnable or of(world) is not None:
        return
    if world.ctx.queue_settings(job.queue).keep_place == "off" or is_apart(world):
        return
    _, _, next_s = following
    yield from _asked_for(job.processes, next_s)


def _asked_for(processes: int, length_s: float, limit_s: float = inf) -> Effects[Subjob]:
    following: Subjob = yield Ask(SubjobRole.STANDBY, processes, length_s, limit_s=limit_s)
    reach(CrashPoint.STANDBY_BEFORE_COMMIT)
    return following


def is_apart(world: JobWorld) -> bool:
    """Whether it is several batch jobs, waits for others of its name, or asks for mails.

    Our own dependency would forget the others of its name. And Slurm sends a mail for what is cancelled, too, though it
    never began.
    """
    return is_several(world.spec)


def is_several(spec: JobSpec) -> bool:
    """The same of a job by its specification."""
    words = [spec.script or "", *spec.options, *(spec.asked.options if spec.asked is not None else ())]
    apart = any(sign in word for word in words for sign in ("hetjob", "packjob", "mail-type"))
    return apart or spec.mail is not None or When.SINGLETON in spec.wants.dependency


def adopt(world: JobWorld, walltime_s: float, why: str) -> Effects[Subjob | None]:
    """What stands by with this walltime becomes the job's next run, and may begin. None: nothing does."""
    found = of(world)
    if world.job.elastic:
        return (yield from _next_of_chain(world, found, why))
    if found is None or found.missing_since_s is not None or found.state not in _NOT_BEGUN:
        return None
    if found.walltime_s < walltime_s or any(s.role == SubjobRole.RIGID for s in world.open_subjobs):
        return None  # it is never let begin beside another run
    ctx = world.ctx
    yield note(found, role=SubjobRole.RIGID.value)
    yield tell(EventKind.SUBJOB_ADOPTED, job_id=world.job.id, subjob_id=found.id, reason=why)
    submission = ctx.session.scalars(
        select(Intent.state).where(Intent.subjob_id == found.id, Intent.kind == IntentKind.SUBMIT)
    ).first()
    if submission != IntentState.PENDING:  # otherwise it will be submitted as what it is now
        yield Act(IntentKind.BEGIN, world.job.id, subjob=found)
    return found


def queue_ahead(world: JobWorld, j0: Subjob) -> Effects[None]:
    """A place holder of a chain has begun: the next one is queued, once, and not let begin before it is to be left.

    As much is asked for as can be left by then.
    """
    job = world.job
    chain = job.spec["chain"]
    if chain.get("ahead_of") == j0.id:
        return
    left_s = max(0.0, job.walltime_s - work_now(job, world.ctx.now))
    if left_s <= walltime_end(j0, world.ctx.now) - world.ctx.now:
        return
    link = next_link(left_s, chain["limit_s"], world.cost.restart_s or world.cost.lambda_s, 0.0)
    following = yield from _asked_for(job.processes, link.length_s, chain["limit_s"])
    begins = {following.id: walltime_end(j0, world.ctx.now) + NOT_YET_S}
    yield note(job, spec={**job.spec, "chain": {**chain, "ahead_of": j0.id, "begins": begins}})


def _next_of_chain(world: JobWorld, found: Subjob | None, why: str) -> Effects[Subjob | None]:
    """What was queued ahead becomes J0, and may begin; None where nothing was, or not for long enough."""
    job = world.job
    if found is None or found.missing_since_s is not None or found.state not in _NOT_BEGUN:
        return None
    done_s, chain = work_now(job, world.ctx.now), job.spec["chain"]
    restart_s = (world.cost.restart_s or world.cost.lambda_s) if done_s else 0.0
    needs_s = next_link(max(0.0, job.walltime_s - done_s), chain["limit_s"], restart_s, 0.0).length_s
    if found.walltime_s < needs_s:
        yield Release(found, "more is left than it was queued for")
        return None
    quantum_s = world.ctx.view.walltime_quantum_s if world.ctx.view is not None else MINUTE_S
    shorter_s, cut = asked_walltime(needs_s, 0.0, chain["limit_s"], quantum_s), {}
    if shorter_s < found.walltime_s:  # it was queued for as much as could be left by now
        yield note(found, walltime_s=shorter_s, usable_s=shorter_s)
        cut = {"shorter": found.id}
    yield note(found, role=SubjobRole.PLACEHOLDER.value)
    yield note(job, spec={**job.spec, "chain": {**chain, "begins": {found.id: world.ctx.now}, **cut}})
    yield tell(EventKind.SUBJOB_ADOPTED, job_id=job.id, subjob_id=found.id, reason=why)
    submission = world.ctx.session.scalars(
        select(Intent.state).where(Intent.subjob_id == found.id, Intent.kind == IntentKind.SUBMIT)
    ).first()
    if submission != IntentState.PENDING:  # otherwise it will be submitted with this begin
        yield Act(IntentKind.BEGIN, job.id, subjob=found)
    return found


def let_go(world: JobWorld, why: str) -> Effects[None]:
    """Nothing has to stand by any more."""
    for subjob in world.open_subjobs:
        if subjob.role == SubjobRole.STANDBY:
            yield Release(subjob, why)


def told(subjob: Subjob) -> str:
    """The same in words."""
    waits = f"as batch job {subjob.batch_id}" if subjob.batch_id is not None else "once it is submitted"
    return f"after a time-out it goes on with {subjob.walltime_s:g} s, for which it keeps a place {waits}"
