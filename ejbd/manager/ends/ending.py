"""The end of a job: what still runs is stopped, its output handed in to the last byte, and everything given back."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.view import KILL_WAIT_S
from ejbd.manager.actions.operations import add_operation, finished
from ejbd.manager.actions.subjobs import release
from ejbd.manager.ends.deaths import last_words
from ejbd.manager.placements.generations import drop_all
from ejbd.manager.placements.lead import hand_over
from ejbd.manager.planning.jobworld import JobWorld
from ejbd.manager.times import set_rate
from ejbd.store.models import Epoch, Operation, Worker
from ejbd.store.states import EpochState, JobState, LaunchState, OperationState, SubjobState
from ejbd.store.transitions import add_event, move_epoch, move_job
from ejbd.wire.kinds import EventKind, JobKind, OperationKind

OUTPUT_LOST = 128 + 53  # what Slurm ends a job with (0:53) whose output cannot be opened
KEPT_OPEN_S = 60.0  # how long the end of a job waits for its lead to hand in the output


def stop_ranks(world: JobWorld, epoch: Epoch, grace_s: float = KILL_WAIT_S) -> None:
    """TERM, and KILL after `grace_s` seconds."""
    told = {"epoch": epoch.number, "grace_s": grace_s}
    for worker in workers_with_ranks(world, epoch):
        add_operation(world.ctx, worker, OperationKind.STOP, told, epoch=epoch.number)


def workers_with_ranks(world: JobWorld, epoch: Epoch) -> list[Worker]:
    ids = {seat.worker for seat in epoch.placement}
    return [w for w in world.workers if w.id in ids and w.alive]


def end_job(world: JobWorld, final: JobState, code: int | None, reason: str) -> None:
    """The job is over, whatever still runs: stop it, collect the output, give everything back."""
    ctx, job = world.ctx, world.job
    if JobState(job.state).terminal or job.state == JobState.ENDING:
        return
    epoch = world.live_epoch
    if epoch is not None:
        stop_ranks(world, epoch, _grace_s(world))
        move_epoch(ctx.session, epoch, EpochState.FAILED, ctx.now, reason=reason or "the job is over")
    launch = world.launch
    if launch is not None:
        launch.state, launch.ended_s = LaunchState.ENDED, ctx.now
    set_rate(job, 0.0, ctx.now)
    job.exit_code, job.final_state = code, final
    lead = world.worker(job.lead_worker)
    for subjob in world.open_subjobs:
        if subjob.state != SubjobState.RUNNING:
            release(world, subjob, "the job is over")
    if lead is None:
        move_job(ctx.session, job, final, ctx.now, reason=reason)
        _release_all(world)
        return
    job.end_s = ctx.now
    move_job(ctx.session, job, JobState.ENDING, ctx.now, reason=reason)
    finish(world)


def finish(world: JobWorld) -> bool:
    ctx, job = world.ctx, world.job
    if ctx.now - (job.end_s or ctx.now) < KEPT_OPEN_S + 2 * _grace_s(world):
        if world.operations(OperationKind.STOP, unfinished=True):
            return False
        lead = world.worker(job.lead_worker)
        if lead is not None:
            asked = [
                o
                for o in world.operations(OperationKind.UNLEAD)
                if o.worker_id == lead.id and o.created_s >= (job.end_s or 0)
            ]
            if not asked:
                hand_over(world, lead, _last_words(world), _grace_s(world))
            if not finished(asked) or not asked:
                return False
            _tell_lost_output(world, asked)
    move_job(ctx.session, job, JobState(job.final_state or JobState.FAILED), ctx.now, reason=job.reason)
    _release_all(world)
    return True


def _grace_s(world: JobWorld) -> float:
    """What the batch system itself would leave ranks and script between TERM and KILL."""
    view = world.ctx.view
    return view.kill_wait_s if view is not None else KILL_WAIT_S


def _tell_lost_output(world: JobWorld, asked: Sequence[Operation]) -> None:
    """A job whose output could not be written has not completed, as little as under sbatch."""
    job = world.job
    error = next((o.error for o in asked if o.state == OperationState.FAILED), "")
    if not error or job.final_state != JobState.COMPLETED:
        return
    add_event(world.ctx.session, EventKind.OUTPUT_LOST, world.ctx.now, job_id=job.id, reason=error)
    job.final_state, job.exit_code, job.reason = JobState.FAILED.value, OUTPUT_LOST, error


def _last_words(world: JobWorld) -> list[str]:
    """Of a command's ranks; those of a script's launches the shims have said."""
    spec = world.spec
    if world.job.kind != JobKind.COMMAND or world.job.final_state != JobState.FAILED:
        return []
    return [f"{sentence} ({spec.argv[0]})" for sentence in last_words(world)]


def _release_all(world: JobWorld) -> None:
    if world.job.state == JobState.COMPLETED:
        drop_all(world)
    for subjob in world.open_subjobs:
        release(world, subjob, "the job is over")
