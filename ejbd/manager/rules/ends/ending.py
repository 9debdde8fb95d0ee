"""The end of a job: what still runs is stopped, its output handed in to the last byte, and everything given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ejbd.core.view import KILL_WAIT_S
from ejbd.manager.effects import (
    DropCheckpoints,
    Effects,
    HandOver,
    MoveEpoch,
    MoveJob,
    Order,
    Rate,
    Release,
    ReleaseAtEnd,
    note,
    tell,
)
from ejbd.manager.facts.deaths import OUTPUT_LOST, last_words
from ejbd.manager.facts.endcode import exit_payload, is_cancelled
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished
from ejbd.manager.facts.pauses import pause_s
from ejbd.manager.facts.placing.ranks import workers_with_ranks
from ejbd.store.models import Epoch, Operation, Worker
from ejbd.store.states import EpochState, JobState, LaunchState, OperationState, SubjobState
from ejbd.wire.kinds import J0_ROLES, EpochCode, EventKind, JobKind, OperationKind

KEPT_OPEN_S = 60.0  # how long the end of a job waits for its lead to hand in the output
OUTPUT_AGAIN_S = 600.0  # ... where it cannot for want of EJB's own files: it is told to try again, with pauses
OUTPUT_PAUSE_S = 5.0


def stop_ranks(world: JobWorld, epoch: Epoch, grace_s: float = KILL_WAIT_S) -> Effects[None]:
    """TERM, and KILL after `grace_s` seconds."""
    told = {"epoch": epoch.number, "grace_s": grace_s}
    for worker in workers_with_ranks(world, epoch):
        yield Order(worker, OperationKind.STOP, told, epoch=epoch.number)


def end_job(world: JobWorld, final: JobState, code: int | None, reason: str) -> Effects[None]:
    """The job is over, whatever still runs: stop it, collect the output, give everything back."""
    ctx, job = world.ctx, world.job
    if JobState(job.state).terminal or job.state == JobState.ENDING:
        return
    epoch = world.live_epoch
    if epoch is not None:
        yield from stop_ranks(world, epoch, _grace_s(world))
        yield MoveEpoch(epoch, EpochState.FAILED, reason=reason or "the job is over", code=EpochCode.JOB_OVER)
    launch = world.launch
    if launch is not None:
        yield note(launch, state=LaunchState.ENDED, ended_s=ctx.now)
    yield Rate(job, 0.0)
    yield note(job, exit_code=code, final_state=final)
    lead = world.worker(job.lead_worker)
    for subjob in world.open_subjobs:
        if subjob.state != SubjobState.RUNNING and subjob.role not in J0_ROLES:  # what J0 is to say is not settled yet
            yield Release(subjob, "the job is over")
    if lead is None:
        yield MoveJob(job, final, reason=reason)
        yield from _release_all(world)
        return
    yield note(job, end_s=ctx.now)
    yield MoveJob(job, JobState.ENDING, reason=reason)
    yield from finish(world)


def finish(world: JobWorld) -> Effects[bool]:
    ctx, job = world.ctx, world.job
    asked = _asked(world)
    failed = _failed(asked)
    own = failed is not None and bool((failed.result or {}).get("own"))
    patience_s = OUTPUT_AGAIN_S if own or OperationKind.LEAD in [o.kind for o in asked] else KEPT_OPEN_S
    if ctx.now - (job.end_s or ctx.now) < patience_s + 2 * _grace_s(world):
        if world.operations(OperationKind.STOP, unfinished=True):
            return False
        lead = world.worker(job.lead_worker)
        if lead is not None:
            if not asked:
                yield HandOver(lead, _last_words(world), _grace_s(world), _leaves_with(world, lead))
            if not finished(asked) or not asked:
                return False
            if own and failed is not None:
                tried = sum(o.kind == OperationKind.UNLEAD for o in asked)
                if ctx.now >= (asked[-1].done_s or ctx.now) + pause_s(tried, first_s=OUTPUT_PAUSE_S):
                    yield from _bring_again(world, lead)
                return False
    yield from _tell_lost_output(world, failed)
    yield MoveJob(job, JobState(job.final_state or JobState.FAILED), reason=job.reason)
    yield from _release_all(world)
    return True


def _leaves_with(world: JobWorld, lead: Worker) -> dict[str, Any] | None:
    """What the lead is told that leaves as soon as its output is whole: its processors are free sooner than if it were
    asked when that is known here. None: its subjob is to be cancelled, or it was told to leave before."""
    subjob = world.subjob(lead.subjob_id)
    if subjob is None or subjob.releasing or is_cancelled(world.job, subjob):
        return None
    return exit_payload(world.job, subjob)


def _asked(world: JobWorld) -> list[Operation]:
    """What the lead was told since the job's end, so that its output be whole."""
    kinds = (OperationKind.LEAD, OperationKind.UNLEAD)
    since_s, lead = world.job.end_s or 0.0, world.job.lead_worker
    own = [o for o in world.operations(*kinds) if o.created_s >= since_s and o.worker_id == lead]
    first = next((at for at, o in enumerate(own) if o.kind == OperationKind.UNLEAD), len(own))
    return own[first:]


def _failed(asked: Sequence[Operation]) -> Operation | None:
    """What has failed of the last attempt to bring the output: a new collector could not begin, or not hand it in."""
    begun = [o for o in asked[-2:] if o.kind == OperationKind.LEAD]
    return next((o for o in [*begun, *asked[-1:]] if o.state == OperationState.FAILED and o.error), None)


def _bring_again(world: JobWorld, lead: Worker) -> Effects[None]:
    """The lead's collector begins where it stopped, for what it could not bring is in the spool. Only its own subjob is
    kept for that."""
    job = world.job
    for subjob in world.open_subjobs:
        if subjob.id != lead.subjob_id:
            yield ReleaseAtEnd(subjob, "the job is over")
    told = world.operations(OperationKind.LEAD)[-1].payload
    yield note(job, script_run=job.script_run + 1)
    yield Order(lead, OperationKind.LEAD, {**told, "run": job.script_run, "script": None, "append": True})
    yield HandOver(lead)


def _grace_s(world: JobWorld) -> float:
    """What the batch system itself would leave ranks and script between TERM and KILL."""
    view = world.ctx.view
    return view.kill_wait_s if view is not None else KILL_WAIT_S


def _tell_lost_output(world: JobWorld, failed: Operation | None) -> Effects[None]:
    """A job has not completed where its output file cannot be written, as little as under sbatch.

    What EJB cannot write of its own fails no job: what could not be brought is kept, and the job says where.
    """
    job = world.job
    if failed is None:
        return
    error = failed.error
    kept = f"{error}; what was not brought into its output is kept in {world.spool.job_dir(job.id)}"
    yield tell(EventKind.OUTPUT_LOST, job_id=job.id, reason=kept)
    if job.final_state == JobState.COMPLETED and not (failed.result or {}).get("own"):
        yield note(job, final_state=JobState.FAILED.value, exit_code=OUTPUT_LOST)
    yield note(job, reason="; ".join(part for part in (job.reason, kept) if part))


def _last_words(world: JobWorld) -> list[str]:
    """Of a command's ranks; those of a script's launches the shims have said."""
    spec = world.spec
    if world.job.kind != JobKind.COMMAND or world.job.final_state != JobState.FAILED:
        return []
    return [f"{sentence} ({spec.argv[0]})" for sentence in last_words(world)]


def _release_all(world: JobWorld) -> Effects[None]:
    if world.job.state == JobState.COMPLETED:
        yield DropCheckpoints()
    for subjob in world.open_subjobs:
        yield ReleaseAtEnd(subjob, "the job is over")
