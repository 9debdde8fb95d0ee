"""What is measured of jobs that run.

Moves: a row for each checkpoint that counts, completed when its ranks run again. Speeds: a row for each stretch of a
placement in which its ranks told of their progress, brought up to date as it grows. Runs: a row for each job that
ended well and was not disturbed, to be set beside others of the same command.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from sqlalchemy import func, select

from ejbd.core.penalty import LEAST_RUN_S, SHORTEST_S
from ejbd.core.progress import degree
from ejbd.manager.effects import Effects, Flush, ForgetHistory, ObstaclePassed, ObstacleSeen, Remember, note
from ejbd.manager.effects.ends import End, Final, Outcome, PassedThroughEnded
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.history import NARROWED, work_of
from ejbd.store.models import Epoch, Event, Launch, Move, Operation, Run, Speed, Worker
from ejbd.store.states import JobState
from ejbd.wire.kinds import EventKind, JobKind, OperationKind

MOST_STRETCHES = 20  # rows for one placement: figures that go back again and again are no progress
NEWS = 0.02  # the part by which a speed has to change before it is told, unless its stretch has doubled


def note_checkpoint(world: JobWorld, epoch: Epoch, operations: Sequence[Operation]) -> Effects[None]:
    """An epoch was checkpointed and stopped by `operations`, one a worker, all of which succeeded."""
    ctx = world.ctx
    by_node = [_of_node(world, operation) for operation in operations]
    checkpoint_s = max((node["seconds"] for node in by_node), default=0.0)
    stopped_s = max(0.0, ctx.now - (epoch.stopping_s if epoch.stopping_s is not None else ctx.now))
    yield Remember(
        Move(
            application=world.job.application,
            job_id=world.job.id,
            epoch=epoch.number,
            at_s=ctx.now,
            processors=epoch.processors,
            nodes=len({node["node"] for node in by_node}),
            bytes=sum(node["bytes"] for node in by_node),
            checkpoint_s=checkpoint_s,
            write_s=min(checkpoint_s, max((node["write_s"] for node in by_node), default=0.0)),
            wait_s=max(0.0, stopped_s - checkpoint_s),
            by_node=by_node,
        )
    )
    yield ForgetHistory()


def take_sample(world: JobWorld, worker: Worker, report: dict[str, Any]) -> Effects[None]:
    """What a worker sees of the ranks of an epoch. Only a live placement still cares."""
    epoch = world.live_epoch
    if epoch is None or epoch.number != report["epoch"]:
        return
    yield note(worker, resident_bytes=int(report["resident"]))
    if report.get("obstacle"):
        yield ObstacleSeen(epoch, str(report["obstacle"]))
    elif report.get("passed"):
        yield ObstaclePassed(epoch)
    done, total, at_s = report.get("done"), report.get("total"), report.get("at_s")
    # What is read from a file that a worker left behind has not been looked at as a request is: no NaN.
    if done is not None and at_s is not None and all(map(isfinite, (done, at_s, total or 0.0))):
        yield from _progress(world, epoch, done, total, at_s)


def _progress(world: JobWorld, epoch: Epoch, done: float, total: float | None, at_s: float) -> Effects[None]:
    """What an epoch's ranks wrote at `at_s` by the clock of the file that they wrote it into.

    Only differences within the epoch count, so that no clocks are compared and what was done before is left out. What
    is reported first may have been written before the epoch. So counting begins with the first one after it, when the
    ranks compute for certain. Where the figures go back, or mean something else by now, it begins again.
    """
    last = epoch.progress
    told: dict[str, Any] = {"done": done, "total": total, "at_s": at_s, "from_done": None, "from_s": None, "row": None}
    if last is not None:
        if at_s <= last["at_s"] or done == last["done"]:
            return  # the same again
        if last["from_s"] is not None and done > last["done"] and total == last["total"]:
            told |= {name: last[name] for name in ("from_done", "from_s", "row")}
        else:
            told |= {"from_done": done, "from_s": at_s}
        units, seconds = done - told["from_done"], at_s - told["from_s"]
        if seconds >= SHORTEST_S and (told["row"] is not None or _may_have_stretch(world, epoch)):
            told["row"] = yield from _keep_speed(world, epoch, told["row"], units, seconds, total)
    yield note(epoch, progress=told)


def _may_have_stretch(world: JobWorld, epoch: Epoch) -> bool:
    of_epoch = Speed.application == world.job.application, Speed.job_id == world.job.id, Speed.epoch == epoch.number
    rows = world.ctx.session.scalar(select(func.count()).select_from(Speed).where(*of_epoch))
    return (rows or 0) < MOST_STRETCHES


def _keep_speed(
    world: JobWorld, epoch: Epoch, id: int | None, units: float, seconds: float, total: float | None
) -> Effects[int]:
    """Write a stretch into its row; the row's id. A new figure is told, the same once more is not."""
    ctx = world.ctx
    narrowed = world.rungs is not None and epoch.size != world.job.processes
    row = ctx.session.get(Speed, id) if id is not None else None
    if row is None:
        row = Speed(
            application=world.job.application,
            work=work_of(world.job.user, world.spec),
            job_id=world.job.id,
            launch=epoch.launch_ordinal,
            epoch=epoch.number,
            at_s=ctx.now,
            processors=epoch.processors,
            degree=NARROWED if narrowed else degree(epoch.size, epoch.processors),
            units=units,
            seconds=seconds,
            total=total,
        )
        yield Remember(row)
    elif abs(units / seconds * row.seconds / row.units - 1) < NEWS and seconds < 2 * row.seconds:
        return row.id
    else:
        yield note(row, at_s=ctx.now, units=units, seconds=seconds)
        yield Flush()
    yield ForgetHistory()
    return row.id


def stalled(epoch: Epoch) -> Effects[None]:
    """The ranks of an epoch stood still for a while and go on: what they tell from now on is counted anew."""
    yield note(epoch, progress=None)


def _of_node(world: JobWorld, operation: Operation) -> dict[str, Any]:
    """What one worker told about its checkpoint. An old one does not tell what writing took: all of it, then."""
    found = operation.result or {}
    worker = world.ctx.session.get(Worker, operation.worker_id)
    seconds = float(found.get("seconds", 0.0))
    return {
        "node": worker.node if worker is not None else "",
        "bytes": int(sum(found.get("bytes", {}).values())),
        "seconds": seconds,
        "write_s": float(found.get("write_s", seconds)),
    }


def note_restart(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """All ranks of an epoch run that was restarted from a checkpoint."""
    ctx = world.ctx
    query = select(Move).where(Move.job_id == world.job.id, Move.epoch == epoch.restart_from)
    move = ctx.session.scalars(query.order_by(Move.id.desc())).first()
    if move is None or move.restart_s is not None:
        return  # one that was given up late, or the second restart from the same checkpoint
    yield note(
        move,
        restart_s=max(0.0, ctx.now - epoch.created_s),
        to_processors=epoch.processors,
        to_nodes=len({seat.worker for seat in epoch.placement}),
    )
    if epoch.number == move.epoch + 1 and not _waited(world, move.at_s):
        yield note(move, wait_s=move.wait_s + max(0.0, epoch.created_s - move.at_s))
    yield Flush()
    yield ForgetHistory()


def _waited(world: JobWorld, since_s: float) -> bool:
    """Whether the job went back to waiting for processors: that is no part of a move."""
    query = select(Event.id).where(
        Event.job_id == world.job.id, Event.kind == EventKind.JOB_WAITING, Event.at_s >= since_s
    )
    return world.ctx.session.scalars(query.limit(1)).first() is not None


def learn_of_end(world: JobWorld, end: End, decided: Outcome) -> Effects[None]:
    """What a job that came to its end, and well, teaches of its application: a subscriber to all ends."""
    if not isinstance(decided, Final) or decided.state is not JobState.COMPLETED or decided.exit_code != 0:
        return
    if not isinstance(end, PassedThroughEnded):
        yield from _note_run(world)
    elif end.start_s is not None and end.end_s is not None:
        yield from _keep_run(world, end.end_s - end.start_s, {})


def _note_run(world: JobWorld) -> Effects[None]:
    """An elastic job has come to its end, and well: keep how long its ranks computed, and how over-subscribed.

    Not where anything was done twice (a setback), or where ranks went on with a checkpoint that failed. Nor where the
    daemon was away for a time, and cannot tell when something ended.
    """
    ctx, job = world.ctx, world.job
    if job.setbacks or job.incarnation > 1 or job.start_s is None or ctx.up_since > job.start_s:
        return
    by_degree: dict[int, float] = {1: 0.0}
    if _resized(world):
        return  # a placement has one degree here, and this one had several
    for epoch in ctx.session.scalars(select(Epoch).where(Epoch.job_id == job.id)):
        end_s = epoch.stopping_s if epoch.stopping_s is not None else epoch.ended_s
        if epoch.code or epoch.running_s is None or end_s is None:
            return
        if world.rungs is not None and epoch.size != job.processes:
            return  # it was reshaped, which says nothing of Delta
        now = degree(epoch.size, epoch.processors)
        by_degree[now] = by_degree.get(now, 0.0) + end_s - epoch.running_s
    if job.kind == JobKind.SCRIPT:
        if job.script_run > 1:
            return
        by_degree[1] += _beside_launches(world)
    full_s = by_degree.pop(1)
    yield from _keep_run(world, full_s, {str(k): seconds for k, seconds in sorted(by_degree.items())})


def _resized(world: JobWorld) -> bool:
    query = select(Event.id).where(Event.job_id == world.job.id, Event.kind == EventKind.EPOCH_RESIZED)
    return world.ctx.session.scalars(query.limit(1)).first() is not None


def _beside_launches(world: JobWorld) -> float:
    """Seconds in which a script ran that was begun once, and none of its launches."""
    query = select(Launch).where(Launch.job_id == world.job.id)
    launched_s = sum(
        (launch.ended_s or world.ctx.now) - launch.created_s for launch in world.ctx.session.scalars(query)
    )
    began_s = min((o.created_s for o in world.operations(OperationKind.LEAD)), default=world.ctx.now)
    return max(0.0, world.ctx.now - began_s - launched_s)


def _keep_run(world: JobWorld, full_s: float, over: dict[str, float]) -> Effects[None]:
    """Keep a run that is long enough to say something; tell it if there is one to be set beside it."""
    ctx, job = world.ctx, world.job
    if max(full_s, sum(over.values())) < LEAST_RUN_S:
        return
    work = work_of(job.user, world.spec)
    others = {(bool(run.over), run.elastic) for run in ctx.session.scalars(select(Run).where(Run.work == work))}
    yield Remember(
        Run(
            application=job.application,
            work=work,
            job_id=job.id,
            at_s=ctx.now,
            full_s=full_s,
            over=over,
            elastic=job.elastic,
        )
    )
    calibrates = (not over) in {was_over for was_over, _ in others}  # one over-subscribed, the other not
    if calibrates or (not over and (False, not job.elastic) in others):  # one with EJB, the other without
        yield ForgetHistory()
