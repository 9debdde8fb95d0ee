"""A placement begins: its ranks are seated and launched, or restarted, and then run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from ejbd.manager.effects import (
    Effects,
    Flush,
    Insert,
    LoseWork,
    MakeEpochFolder,
    MoveEpoch,
    NoteRefusal,
    NoteRestart,
    NoteStartUp,
    Order,
    QueueSucceeded,
    Rate,
    Release,
    SettleNumber,
    note,
    tell,
)
from ejbd.manager.facts.batchjob import pbsvariables, variables
from ejbd.manager.facts.deaths import REFUSED_LAUNCH
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.placing import checkpointing, node_limit
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing.folded import cpus_now, told_cpus
from ejbd.manager.facts.placing.launchtime import WORKERS_PART, launch_timeout_s, told_timeout_s
from ejbd.manager.facts.placing.seating import seated
from ejbd.manager.facts.queues import Failing
from ejbd.manager.facts.times import usable_end, work_now
from ejbd.manager.rules.placements import movability
from ejbd.manager.rules.placements.exits import stop_launch
from ejbd.manager.rules.placements.generations import (
    drop_older,
    resume_from,
)
from ejbd.manager.rules.placements.pace import speed_of
from ejbd.manager.rules.placements.setbacks import fail_epoch
from ejbd.store.models import Epoch, Launch, Subjob, Worker
from ejbd.store.states import EpochState, LaunchState, OperationState, SubjobState
from ejbd.wire.kinds import EpochCode, EventKind, OperationKind


def add_launch(
    world: JobWorld, ordinal: int, size: int, file: str, *, together: bool = True, name: str = ""
) -> Effects[Launch]:
    """The application is to run: the whole of a command job, or one launch line of a script.

    `together`: a rank that fails ends the others. `name`: of its program.
    """
    now = world.ctx.now
    launch = Launch(
        job_id=world.job.id,
        ordinal=ordinal,
        state=LaunchState.ACTIVE,
        size=size,
        file=file,
        name=name,
        together=together,
        work_at_start_s=work_now(world.job, now),
        created_s=now,
    )
    yield Insert(launch)
    yield Flush()
    yield tell(EventKind.LAUNCH_ASKED, job_id=world.job.id, ordinal=ordinal, ranks=size)
    return launch


def start_epoch(world: JobWorld, launch: Launch, members: list[Subjob]) -> Effects[None]:
    ctx, job, last = world.ctx, world.job, world.epoch
    number = last.number + 1 if last else 1
    restart_from, fallback = (yield from resume_from(world, launch)), []
    if last is not None and last.launch_ordinal == launch.ordinal:
        fallback = list(last.members) if last.state == EpochState.STOPPED else list(last.fallback)
    # Those that last longest first: ranks on them have the fewest moves before them.
    members = sorted(members, key=lambda s: (-usable_end(s, ctx.now), s.ordinal))
    workers = [w for s in members for w in world.workers_of(s.id)]
    seated_on = node_limit.seats_on(world, launch.size, workers, restart=restart_from is not None)
    if not seated_on and node_limit.one_mpirun(world):
        yield from _no_node_for_mpirun(world, launch, workers)
        return
    if not seated_on:
        yield from _begin_anew(
            world, launch, "its checkpoint can be restarted on one node only, and none of these is wide enough"
        )
        restart_from, fallback, seated_on = None, [], workers
    workers = seated_on
    if restart_from is None and last is not None and last.launch_ordinal == launch.ordinal:
        yield from _take_back(world, last)
    size = world.width_for(launch, sum(world.needs.places(w.processors) for w in workers))
    seating = seated(world, launch, workers, size)
    seats, processors = seating.seats, seating.wide
    epoch = Epoch(
        job_id=job.id,
        number=number,
        launch_ordinal=launch.ordinal,
        state=EpochState.LAUNCHING,
        size=size,
        processors=processors,
        members=[s.id for s in members],
        placement=list(seats),
        restart_from=restart_from,
        fallback=fallback,
        exits={},
        work_at_start_s=work_now(job, ctx.now),
        created_s=ctx.now,
        reason="",
    )
    yield Insert(epoch)
    yield Flush()
    world.set_epoch(epoch)
    yield Rate(job, 0.0)
    folder = yield MakeEpochFolder(job.id, number)
    spec = world.job.spec
    used = {seat.worker for seat in seats}
    workers = [w for w in workers if w.id in used]
    timeout_s = launch_timeout_s(world, launch.ordinal, restart_from)
    addresses = sorted({w.address for w in workers})
    yield from movability.begins_where(world, [w.node for w in workers], restart_from)
    engine = moving.launch_engine(world, restart_from)
    common = checkpointing.launch_settings(
        world, Path(launch.file), size, addresses, engine=engine, restart_from=restart_from
    )
    yield SettleNumber(job)
    common["variables"] = {
        **variables.of_launch(world, launch, members, seats, workers),
        **pbsvariables.of_launch(world, folder, seats, workers),
        **variables.of_modules(world),
    }
    own = variables.of_ranks(seats, workers)
    spread = checkpointing.spread(common.get("launcher"), seats, workers)
    for worker in workers:
        ranks = [
            {"rank": s.rank, "processor": s.processor, "variables": own[s.rank], **_wide(seating.processors[s.rank])}
            for s in seats
            if s.worker == worker.id
        ]
        payload = {
            "epoch": number,
            "size": size,
            "argv": list(spec["argv"]),
            "cwd": spec["cwd"],
            "launch_file": launch.file,
            "ranks": ranks,
            "epoch_dir": str(folder),
            "restart_dir": str(world.spool.checkpoint_dir(job.id, restart_from)) if restart_from else None,
            "home": worker is workers[0],  # of the subjob that lasts longest
            "timeout_s": timeout_s * WORKERS_PART,
            **told_cpus(cpus_now(world, worker)),
            **common,
            **({"launcher": spread[worker.id]} if spread else {}),
        }
        yield Order(worker, OperationKind.LAUNCH, payload, epoch=number)
    yield tell(
        EventKind.EPOCH_LAUNCHING,
        job_id=job.id,
        epoch=number,
        launch=launch.ordinal,
        processors=processors,
        ranks=size,
        subjobs=epoch.members,
        restart_from=restart_from,
    )


_THEIRS = (EpochCode.SUBJOB_LOST, EpochCode.WORKER_LOST, EpochCode.WARNED)


def _take_back(world: JobWorld, last: Epoch) -> Effects[None]:
    """The launch begins anew, and by EJB's own doing: what it has printed is not the job's output."""
    lead = world.worker(world.job.lead_worker)
    if lead is None or last.state != EpochState.FAILED or last.code in _THEIRS:
        return
    same = (Epoch.job_id == last.job_id, Epoch.launch_ordinal == last.launch_ordinal)
    first = world.ctx.session.scalar(select(func.min(Epoch.number)).where(*same))
    payload = {"epoch": last.number, "take_back": first}
    yield Order(lead, OperationKind.DRAIN, payload, epoch=last.number)


def _wide(processors: tuple[int, ...]) -> dict[str, Any]:
    """What a rank of several processors is told of them."""
    return {"processors": list(processors)} if len(processors) > 1 else {}


def _begin_anew(world: JobWorld, launch: Launch, why: str) -> Effects[None]:
    """The next placement starts the launch from its beginning; what it has done is lost."""
    job = world.job
    yield note(job, incarnation=job.incarnation + 1)
    yield LoseWork(job, launch.work_at_start_s)
    yield tell(EventKind.LAUNCH_ANEW, job_id=job.id, ordinal=launch.ordinal, reason=why)


def _no_node_for_mpirun(world: JobWorld, launch: Launch, workers: list[Worker]) -> Effects[None]:
    widest = max(worker.processors for worker in workers)
    why = (
        f"one mpirun starts Open MPI's ranks, all on one node: {launch.size} are more than {widest} processors hold at "
        f"O_max {world.parameters().omax}"
    )
    yield NoteRefusal("mpirun", why)
    yield note(launch, exit_code=REFUSED_LAUNCH)
    yield Flush()


def launching(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    ctx = world.ctx
    operations = world.operations(OperationKind.LAUNCH, epoch=epoch.number)
    if not finished(operations) and not any(o.state == OperationState.FAILED for o in operations):
        bad = sorted((int(rank), code) for rank, code in epoch.exits.items() if code)
        if epoch.restart_from is not None and bad:
            why = f"rank {bad[0][0]} ended with code {bad[0][1]} at its restart"
            yield from fail_epoch(world, epoch, EpochCode.AT_RESTART, why, engines=True)
            return True
        timeout_s = told_timeout_s(world, operations)
        if ctx.waited_s(epoch.created_s) <= timeout_s:
            return False
        yield from fail_epoch(world, epoch, EpochCode.NOT_UP, f"not up within {timeout_s:g} s")
        return True
    if not succeeded(operations):
        codes = [int((o.result or {})["code"]) for o in operations if (o.result or {}).get("code")]
        launch = world.launch
        if codes and epoch.restart_from is None and launch is not None:
            # The program itself cannot be started (not found, not executable): no other place would help.
            why = "; ".join(sorted({o.error for o in operations if o.error}))
            yield from stop_launch(world, launch, codes[0], why)
            return True
        errors = "; ".join(sorted({o.error for o in operations if o.error})) or "a worker was lost"
        restarting = epoch.restart_from is not None
        broken = restarting and any((o.result or {}).keys() & {"broken", "spoiled"} for o in operations)
        yield from fail_epoch(world, epoch, EpochCode.LAUNCH_FAILED, f"launch failed: {errors}", engines=broken)
        return True
    speed = speed_of(world, epoch)
    yield MoveEpoch(
        epoch, EpochState.RUNNING, data={"processors": epoch.processors, "subjobs": epoch.members, "rate": speed}
    )
    yield note(epoch, running_s=ctx.now)
    if epoch.restart_from is not None:
        yield NoteRestart(epoch)
    yield NoteStartUp(epoch)
    yield Rate(world.job, speed)
    yield from release_left_behind(world, epoch)
    return True


def release_left_behind(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """The new placement runs: what it does not use is given back, and older checkpoints are deletable."""
    for subjob in world.open_subjobs:
        if subjob.id in epoch.members:
            if not subjob.joined:
                yield note(world.job, failed_starts=0, not_before_s=0.0)
                yield QueueSucceeded(world.job, Failing.STARTS)
            yield note(subjob, joined=True)
        elif subjob.joined and subjob.state == SubjobState.RUNNING and not subjob.anchor:
            yield Release(subjob, f"epoch {epoch.number} runs without it")
    yield from drop_older(world, epoch)
