"""A job that its J0 has begun by itself, at once or since no daemon was there: it is what a passed-through job is."""

from __future__ import annotations

from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.effects import Abandon, Effects, MoveJob, Release, Want, Withdraw, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.hands import orders
from ejbd.store.models import Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, SubjobRole


def withdraw(world: JobWorld) -> Effects[bool]:
    """See that nothing of the job begins but by us. False: J0's workers were faster, and the next look takes it up."""
    job = world.job
    j0s = [s for s in world.open_subjobs if s.role == SubjobRole.PLACEHOLDER]
    withdrawn = True
    for j0 in j0s:  # each of them, whatever came of the first
        withdrawn &= yield Withdraw(job.id, j0.id)
    return withdrawn


def adopt(world: JobWorld, j0: Subjob) -> Effects[bool]:
    """Take up a job that its J0 has begun by itself. What the batch system says of J0 is said of the job from now on.

    Once a job: it is elastic no more. False: there is nothing to take up.
    """
    ctx, job = world.ctx, world.job
    if not job.elastic or job.script_run or j0.role != SubjobRole.PLACEHOLDER or job.state != JobState.WAITING:
        return False
    at_s = orders.begun_s(world.spool, job.id, j0.id)
    if at_s is None:
        return False
    why = "its J0 began while no daemon was there: it runs as it was submitted"
    if orders.begun_at_once(world.spool, job.id, j0.id):
        because = "nothing can move it" if job.engine == "none" else "runs like it are short"
        why = f"{because}, and J0 was the first to begin: it runs as it was submitted"
    yield note(job, elastic=False)
    yield Want(job, [])
    yield note(job, lead_worker=None)
    yield note(j0, role=SubjobRole.RIGID.value)
    for worker in world.workers_of(j0.id):
        yield note(worker, alive=False)
        yield Abandon(worker, why)
    for other in world.open_subjobs:
        if other is not j0:
            yield Release(other, why)
    asked_s = j0.submit_s if j0.submit_s is not None else j0.created_s
    yield note(job, start_s=min(max(at_s, asked_s), ctx.now))
    yield tell(EventKind.JOB_ALONE, job_id=job.id, subjob_id=j0.id, began_s=job.start_s, reason=why)
    if j0.state == SubjobState.RUNNING:
        yield MoveJob(job, JobState.RUNNING)
    reach(CrashPoint.ALONE_BEFORE_COMMIT)
    return True
