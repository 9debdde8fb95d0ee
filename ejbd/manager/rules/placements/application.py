"""How an application is carried through its placements: launch, checkpoint and stop, restart elsewhere, end.

:func:`advance` looks at one job and does whatever can be done next; it is called after every poll and after every
report of a worker, and does nothing where there is nothing to do. An application never has two live placements: a
new epoch is made only when no rank of the old one can be running, and subjobs that are left are released only when
the new epoch runs (architecture: Epochs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ejbd.core.delta import rate_with
from ejbd.manager.effects import (
    Conclude,
    Effects,
    FinishEnd,
    Flush,
    Insert,
    LoseWork,
    MakeEpochFolder,
    MoveEpoch,
    MoveJob,
    NoteCheckpoint,
    NoteDeaths,
    NoteRefusal,
    NoteRestart,
    NoteStartUp,
    Order,
    QueueSucceeded,
    Rate,
    Release,
    SettleNumber,
    Stalled,
    StopRanks,
    note,
    tell,
)
from ejbd.manager.effects.ends import Again, ApplicationEnded, GoesOn, PeersFailed
from ejbd.manager.facts.batchjob import pbsvariables, variables
from ejbd.manager.facts.deaths import CANCELLED_LAUNCH, REFUSED_LAUNCH, for_memory, last_words, launch_code
from ejbd.manager.facts.homes import is_up
from ejbd.manager.facts.jobworld import JobWorld, begins_again, holds_shell
from ejbd.manager.facts.operations import finished, succeeded
from ejbd.manager.facts.pauses import move_pause_s, placement_pause_s
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.checkpointing import DMTCP_GAVE_UP, launch_settings
from ejbd.manager.facts.placing.launchtime import PATIENCE, WORKERS_PART, launch_timeout_s, told_timeout_s
from ejbd.manager.facts.placing.ranks import workers_with_ranks
from ejbd.manager.facts.placing.seating import seated
from ejbd.manager.facts.queues import Failing
from ejbd.manager.facts.times import usable_end, work_now
from ejbd.manager.rules.placements import movability
from ejbd.manager.rules.placements.generations import (
    FAILED_RESTART_S,
    coordinator_lost,
    drop_older,
    is_proved,
    restored_for_s,
    resume_from,
)
from ejbd.manager.rules.placements.lead import ensure_lead
from ejbd.manager.rules.placements.setbacks import back_to_waiting, end_if_time_is_up, fail_epoch, start_over
from ejbd.store.models import Epoch, Launch, Subjob, Worker
from ejbd.store.states import EpochState, JobState, LaunchState, OperationState, SubjobState
from ejbd.wire.kinds import EpochCode, EventKind, JobKind, OperationKind, SubjobRole

CHECKPOINTED = 85  # the exit code by which a rank says that its state is written


def advance(world: JobWorld) -> Effects[None]:
    """Do everything that can be done now for one elastic job."""
    for _ in range(16):  # every step changes a state, and a job has not that many to go through at once
        if not (yield from _step(world)):
            return


def _step(world: JobWorld) -> Effects[bool]:
    job = world.job
    if not job.elastic or JobState(job.state).terminal or job.state == JobState.RECEIVED:
        return False
    if job.state == JobState.ENDING:
        ended: bool = yield FinishEnd()
        return ended
    if world.frozen:
        return False
    epoch = world.live_epoch
    if epoch is None:
        return (yield from _between_epochs(world))
    if epoch.state == EpochState.LAUNCHING:
        return (yield from _launching(world, epoch))
    if epoch.state == EpochState.RUNNING:
        return (yield from _running(world, epoch))
    return (yield from _stopping(world, epoch))


# -- no placement is live ---------------------------------------------------------------------------------------------


def _between_epochs(world: JobWorld) -> Effects[bool]:
    job = world.job
    if world.operations(OperationKind.STOP, unfinished=True):
        return False  # a rank of the last placement may still run
    if _unreachable_ranks(world):
        return False
    launch = world.launch
    if launch is not None and launch.exit_code is not None:
        return (yield from _lost_rather_than_failed(world, launch)) or (yield from _end_launch(world, launch))
    if not job.members:
        if job.state == JobState.RUNNING:
            saved = world.epoch is not None and world.epoch.state == EpochState.STOPPED
            yield from back_to_waiting(world, "suspended, with its work kept" if saved else "no subjob is left")
            return True
        return False
    members = [s for s in world.open_subjobs if s.id in job.members]
    if not members:
        return False  # the last one has just ended: whoever saw that takes it out
    if not all(world.ready(s) for s in members) or _waits_for_siblings(world, members) or _pauses(world):
        return False
    members = yield from movability.room_that_lasts(world, members)
    if not members:
        yield from back_to_waiting(world, "what it has does not last to its end, and it cannot be moved")
        return True
    if _too_narrow(world, members):
        yield from back_to_waiting(world, "what is left of its subjobs is too little for its ranks")
        return True
    if not (yield from ensure_lead(world, members)):
        return False
    if job.state == JobState.WAITING:
        yield MoveJob(job, JobState.RUNNING)
        if job.start_s is None:
            yield note(job, start_s=world.ctx.now)
        yield Rate(job, 1.0 if job.kind == JobKind.SCRIPT else 0.0)
    if launch is None:
        if job.kind == JobKind.SCRIPT or world.launched:
            return False  # the script will ask for it; a command has its one launch
        if not is_up(world):
            return False  # where its output cannot be written a job does not begin
        launch = yield from add_launch(world, 0, job.processes, str(world.ctx.spool.launch_file(job.id, 0)))
    yield from _start_epoch(world, launch, members)
    return True


def _lost_rather_than_failed(world: JobWorld, launch: Launch) -> Effects[bool]:
    """Ranks whose peers died with their node fail before anybody has missed that node: go back, the program is well."""
    job, epoch = world.job, world.epoch
    if epoch is None or epoch.state != EpochState.FAILED or launch.exit_code == CANCELLED_LAUNCH:
        return False
    stops = world.operations(OperationKind.STOP, epoch=epoch.number)
    if not any(o.state == OperationState.ABANDONED for o in stops):
        return False
    decided = yield Conclude(PeersFailed(job.setbacks, epoch.reason))
    if not isinstance(decided, Again) or decided.whole:
        return not isinstance(decided, GoesOn)
    yield note(launch, exit_code=None)
    yield LoseWork(job, epoch.work_at_start_s)
    yield tell(EventKind.EPOCH_LOST, job_id=job.id, epoch=epoch.number, reason=epoch.reason)
    return True


def _too_narrow(world: JobWorld, members: list[Subjob]) -> bool:
    """After a loss: more ranks a processor than O_max allows, and no shell that would be lost by waiting."""
    job = world.job
    places = sum(w.processors // world.needs.processors for s in members for w in world.workers_of(s.id))
    shell = holds_shell(job) and not (job.lead_worker is None and begins_again(job))
    return job.setbacks > 0 and not shell and places * world.parameters().omax < job.processes


def _unreachable_ranks(world: JobWorld) -> bool:
    """Ranks of the last placement may live on a subjob whose workers are lost, until the batch system has ended it."""
    epoch = world.epoch
    if epoch is None or epoch.state != EpochState.FAILED:
        return False
    return any(s.id in epoch.members and not world.workers_of(s.id) for s in world.open_subjobs)


def _waits_for_siblings(world: JobWorld, members: list[Subjob]) -> bool:
    """Subjobs that were asked for together start together where they can: it saves a move."""
    if world.epoch is not None or not world.awaited or any(s.role == SubjobRole.PLACEHOLDER for s in members):
        return False
    if any(s.anchor for s in world.awaited):
        return True  # the script can begin nowhere else; the anchor's grace bounds this
    since = min(s.start_s or world.ctx.now for s in members)
    return world.ctx.now - since < 2 * world.ctx.settings.poll_s


def _pauses(world: JobWorld) -> bool:
    """Placements that fail before they run may have a cause that passes (a full disk): do not use all of them up."""
    epoch = world.epoch
    if epoch is None or epoch.state != EpochState.FAILED or epoch.running_s is not None:
        return False
    if any((o.result or {}).get("spoiled") for o in world.operations(OperationKind.LAUNCH, epoch=epoch.number)):
        return False  # waiting mends no checkpoint
    return world.ctx.now < (epoch.ended_s or 0.0) + placement_pause_s(world.job.setbacks)


def add_launch(world: JobWorld, ordinal: int, size: int, file: str, *, together: bool = True) -> Effects[Launch]:
    """The application is to run: the whole of a command job, or one launch line of a script.

    `together`: a rank that fails ends the others.
    """
    now = world.ctx.now
    launch = Launch(
        job_id=world.job.id,
        ordinal=ordinal,
        state=LaunchState.ACTIVE,
        size=size,
        file=file,
        together=together,
        work_at_start_s=work_now(world.job, now),
        created_s=now,
    )
    yield Insert(launch)
    yield Flush()
    yield tell(EventKind.LAUNCH_ASKED, job_id=world.job.id, ordinal=ordinal, ranks=size)
    return launch


def _start_epoch(world: JobWorld, launch: Launch, members: list[Subjob]) -> Effects[None]:
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
    seating = seated(world, launch, workers)
    seats, processors = seating.seats, seating.wide
    epoch = Epoch(
        job_id=job.id,
        number=number,
        launch_ordinal=launch.ordinal,
        state=EpochState.LAUNCHING,
        size=launch.size,
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
    engine = moving.launch_engine(world, restart_from)
    common = launch_settings(world, Path(launch.file), launch.size, addresses, engine=engine, restart_from=restart_from)
    yield SettleNumber(job)
    common["variables"] = {
        **variables.of_launch(world, launch, members, seats, workers),
        **pbsvariables.of_launch(world, folder, seats, workers),
    }
    own = variables.of_ranks(seats, workers)
    for worker in workers:
        ranks = [
            {"rank": s.rank, "processor": s.processor, "variables": own[s.rank], **_wide(seating.processors[s.rank])}
            for s in seats
            if s.worker == worker.id
        ]
        payload = {
            "epoch": number,
            "size": launch.size,
            "argv": list(spec["argv"]),
            "cwd": spec["cwd"],
            "launch_file": launch.file,
            "ranks": ranks,
            "epoch_dir": str(folder),
            "restart_dir": str(ctx.spool.checkpoint_dir(job.id, restart_from)) if restart_from else None,
            "home": worker is workers[0],  # of the subjob that lasts longest
            "timeout_s": timeout_s * WORKERS_PART,
            **common,
        }
        yield Order(worker, OperationKind.LAUNCH, payload, epoch=number)
    yield tell(
        EventKind.EPOCH_LAUNCHING,
        job_id=job.id,
        epoch=number,
        launch=launch.ordinal,
        processors=processors,
        ranks=launch.size,
        subjobs=epoch.members,
        restart_from=restart_from,
    )


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


def _end_launch(world: JobWorld, launch: Launch) -> Effects[bool]:
    """Nothing of the launch runs any more: tell the script, or end the job."""
    ctx, job = world.ctx, world.job
    code = launch.exit_code or 0
    yield note(launch, state=LaunchState.ENDED)
    yield note(launch, ended_s=ctx.now)
    yield Flush()
    yield tell(EventKind.LAUNCH_ENDED, job_id=job.id, ordinal=launch.ordinal, code=code)
    said = last_words(world)
    if job.kind == JobKind.COMMAND:
        yield from _end_by_code(
            world, code, for_memory(world) or (said[0] if said else f"the application ended with code {code}")
        )
        return True
    yield from movability.launch_over(world)
    yield Rate(job, 1.0)  # the script's own steps take what they would take at full width
    lead = world.worker(job.lead_worker)
    if lead is not None:
        epoch = world.epoch
        if epoch is not None:
            yield Order(lead, OperationKind.DRAIN, {"epoch": epoch.number}, epoch=epoch.number)
        payload = {"ordinal": launch.ordinal, "code": code, **({"say": said} if said else {})}
        yield Order(lead, OperationKind.LAUNCH_ENDED, payload)
    return True


def _end_by_code(world: JobWorld, code: int, reason: str) -> Effects[None]:
    yield Conclude(ApplicationEnded(code, reason))


# -- a placement is live ----------------------------------------------------------------------------------------------


def _launching(world: JobWorld, epoch: Epoch) -> Effects[bool]:
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
    speed = _speed(world, epoch)
    yield MoveEpoch(
        epoch, EpochState.RUNNING, data={"processors": epoch.processors, "subjobs": epoch.members, "rate": speed}
    )
    yield note(epoch, running_s=ctx.now)
    if epoch.restart_from is not None:
        yield NoteRestart(epoch)
    yield NoteStartUp(epoch)
    yield Rate(world.job, speed)
    yield from _release_left_behind(world, epoch)
    return True


def _speed(world: JobWorld, epoch: Epoch) -> float:
    """Full-speed seconds that the epoch's ranks do in one, with the Delta and the pace that planning uses (Eq. 2)."""
    return rate_with(epoch.size, epoch.processors, world.delta) / world.overheads.pace.value


def _follow_delta(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """Where Delta is known better by now: what is done from now on counts so; what was done is left as it is."""
    job = world.job
    speed = _speed(world, epoch)
    if speed != job.work_rate:
        yield Rate(job, speed)
        yield tell(EventKind.EPOCH_RATE, job_id=job.id, epoch=epoch.number, rate=speed)


def _release_left_behind(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """The new placement runs: what it does not use is given back, and older checkpoints are deletable."""
    for subjob in world.open_subjobs:
        if subjob.id in epoch.members:
            if not subjob.joined:
                yield note(world.job, failed_starts=0, not_before_s=0.0)
                yield QueueSucceeded(world.job, Failing.STARTS, world.ctx.now)
            yield note(subjob, joined=True)
        elif subjob.joined and subjob.state == SubjobState.RUNNING and not subjob.anchor:
            yield Release(subjob, f"epoch {epoch.number} runs without it")
    yield from drop_older(world, epoch)


def _running(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    if (yield from _ranks_over(world, epoch)):
        return True
    if epoch.fallback and is_proved(world, epoch):
        yield note(epoch, fallback=[])  # nothing goes back there any more, nor to a checkpoint before
        yield from drop_older(world, epoch)
    yield from _follow_delta(world, epoch)
    job, now = world.job, world.ctx.now
    wanted = set(job.members)
    if wanted == set(epoch.members) or not node_limit.can_move(world) or now < job.move_not_before_s:
        return False
    if any(epoch.exits.values()):  # a rank has failed, and the others are waited for: no checkpoint of a part
        return False
    members = [s for s in world.open_subjobs if s.id in wanted]
    if len(members) != len(wanted) or not all(world.ready(s) for s in members):
        return False
    yield from begin_checkpoint(world, epoch)
    return True


def begin_checkpoint(world: JobWorld, epoch: Epoch) -> Effects[None]:
    """Ask every worker that has ranks to checkpoint and stop them."""
    ctx = world.ctx
    yield MoveEpoch(epoch, EpochState.STOPPING, data={"wanted": list(world.job.members)})
    yield note(epoch, stopping_s=ctx.now)
    yield Rate(world.job, 0.0)
    # A large state takes its time, as far as that is known.
    timeout_s = max(ctx.settings.limits.checkpoint_timeout_s, PATIENCE * (world.cost.checkpoint_s or 0.0))
    payload = {"epoch": epoch.number, "timeout_s": timeout_s}
    for worker in workers_with_ranks(world, epoch):
        yield Order(worker, OperationKind.CHECKPOINT, payload, epoch=epoch.number)


def _stopping(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    ctx, job = world.ctx, world.job
    # Only this attempt's operations: an earlier attempt of the same epoch may have failed.
    operations = [
        o
        for o in world.operations(OperationKind.CHECKPOINT, epoch=epoch.number)
        if o.created_s >= (epoch.stopping_s or 0)
    ]
    if not finished(operations):
        return False
    codes = [int(code) for code in epoch.exits.values()]
    if succeeded(operations) and len(codes) == epoch.size and all(code == CHECKPOINTED for code in codes):
        yield note(epoch, work_at_stop_s=work_now(job, ctx.now))
        yield note(epoch, checkpoint_bytes=sum(sum((o.result or {}).get("bytes", {}).values()) for o in operations))
        seconds = ctx.now - (epoch.stopping_s or ctx.now)
        yield NoteCheckpoint(epoch, operations)
        yield MoveEpoch(epoch, EpochState.STOPPED, data={"bytes": epoch.checkpoint_bytes, "seconds": round(seconds, 3)})
        return True
    if len(codes) == epoch.size and not any(codes):
        return (yield from _ranks_over(world, epoch))
    errors = "; ".join(sorted({o.error for o in operations if o.error})) or "not every rank stopped"
    if not any(codes) or (_go_on_alone(world, epoch) and CHECKPOINTED not in codes):
        # Nobody was stopped (some may have come to their end): the application is as it was, and so is its placement.
        yield Stalled(epoch)
        speed = _speed(world, epoch)
        reason = f"checkpoint failed: {errors}"
        yield MoveEpoch(
            epoch,
            EpochState.RUNNING,
            setback=True,
            reason=reason,
            code=EpochCode.CHECKPOINT_FAILED,
            data={"rate": speed},
        )
        yield Rate(job, speed)
        yield note(job, move_not_before_s=ctx.now + move_pause_s(world.cost.lambda_s))
        return True
    yield from movability.failed(world, epoch, f"a checkpoint of it did not complete: {errors}")
    why, code = f"checkpoint incomplete: {errors}", EpochCode.CHECKPOINT_INCOMPLETE
    yield from fail_epoch(world, epoch, code, why, members=list(epoch.members), engines=True)
    return True


def _ranks_over(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    """End the launch when all ranks have ended, or as soon as one has failed without which the others do not go on."""
    ctx = world.ctx
    codes = {int(rank): int(code) for rank, code in epoch.exits.items()}
    launch = world.launch
    asked = bool(world.operations(OperationKind.CHECKPOINT, epoch=epoch.number))
    if asked and CHECKPOINTED in codes.values() and all(code in (0, CHECKPOINTED) for code in codes.values()):
        return (yield from _late_checkpoint(world, epoch, list(codes.values())))
    bad = [(rank, code) for rank, code in codes.items() if code]  # in the order in which they were told
    if bad and (yield from end_if_time_is_up(world, epoch.members, world.told_s)):
        return True
    if bad and _warned_of(world, epoch, bad):
        rank, code = bad[0]
        why = f"rank {rank} ended with code {code} after the batch system's warning"
        yield from fail_epoch(world, epoch, EpochCode.WARNED, why, members=_not_warned(world, epoch), theirs=True)
        return True
    if bad:
        rank, code = bad[0]
        since = ctx.now - (epoch.running_s or ctx.now)
        dmtcp = moving.runs_under(world, epoch) == "dmtcp"
        lost = dmtcp and coordinator_lost(world, epoch)
        within_s = FAILED_RESTART_S if code == DMTCP_GAVE_UP else restored_for_s(world)
        if epoch.restart_from is not None and since < within_s and not lost:
            why = f"rank {rank} ended with code {code} right after the restart"
            yield from fail_epoch(world, epoch, EpochCode.RIGHT_AFTER_RESTART, why, engines=True)
            return True
        if code == DMTCP_GAVE_UP and dmtcp:
            # Not the program's doing: its coordinator died, or one of DMTCP's own assertions failed.
            if not lost:
                yield from movability.gave_up(world, epoch, f"DMTCP gave it up (code {code})")
            why = f"DMTCP gave rank {rank} up (code {code})"
            yield from fail_epoch(
                world, epoch, EpochCode.ENGINE_GAVE_UP, why, members=list(epoch.members), engines=True
            )
            return True
        alone = _go_on_alone(world, epoch)
        if alone and len(codes) < epoch.size:
            return False
        if moving.fails_to_begin(world, epoch):
            why = f"rank {rank} ended with code {code} in its first seconds under DMTCP"
            yield from movability.tried_without(world, why)
            yield from start_over(world, epoch, f"{why}; it is begun once more without it")
            return True
        yield NoteDeaths(epoch, bad)
        if len(codes) < epoch.size:
            yield StopRanks(epoch)
        yield MoveEpoch(
            epoch, EpochState.FAILED, reason=f"rank {rank} ended with code {code}", code=EpochCode.RANK_FAILED
        )
        code = max(launch_code(world, epoch, *each) for each in (bad if alone else bad[:1]))
    elif len(codes) == epoch.size:
        code = 0
        yield MoveEpoch(epoch, EpochState.ENDED)
    else:
        return False
    yield from movability.learn_of_beginning(world, epoch, code)
    yield Rate(world.job, 0.0)
    if launch is not None:
        yield note(launch, exit_code=code)
    return True


def stands_still(world: JobWorld, number: int, rank: int, seconds: float) -> Effects[None]:
    """A rank of the live placement `number` hangs since its restart: back to the checkpoint before, once a job.

    One that stands still only later was restored well, and its wait may be the program's own: that is only told.
    """
    epoch, told = world.live_epoch, world.count_events(EventKind.RANK_STUCK)
    live = (EpochState.RUNNING, EpochState.STOPPING)  # what hangs may have been asked for a checkpoint already
    if epoch is None or epoch.number != number or epoch.state not in live or epoch.restart_from is None:
        return
    yield tell(EventKind.RANK_STUCK, job_id=world.job.id, epoch=number, rank=rank, seconds=seconds)
    if not told and not is_proved(world, epoch):
        why = f"rank {rank} stood still for {seconds:.0f} s right after the restart"
        yield from fail_epoch(world, epoch, EpochCode.RIGHT_AFTER_RESTART, why, engines=True)


def _go_on_alone(world: JobWorld, epoch: Epoch) -> bool:
    """Whether the ranks are waited for when one of them has failed. Those of an MPI would wait for it themselves: where
    that cannot be seen in the program, its wire-up ends them."""
    if world.launch is None or world.launch.together:
        return False
    told = [operation.payload for operation in world.operations(OperationKind.LAUNCH, epoch=epoch.number)]
    return not any(payload.get("launcher") or (payload.get("mpi") or {}).get("sure") for payload in told)


def _warned_of(world: JobWorld, epoch: Epoch, bad: list[tuple[int, int]]) -> bool:
    """Whether one of these ranks was where the batch system had warned: it may have heard that itself."""
    warned = {s.id for s in world.open_subjobs if s.warned and not s.releasing}
    homes = {worker.id: worker.subjob_id for worker in world.workers}
    on_them = {seat.rank for seat in epoch.placement if homes.get(seat.worker) in warned}
    return bool(warned) and any(rank in on_them for rank, _ in bad)


def _not_warned(world: JobWorld, epoch: Epoch) -> list[str]:
    return [s.id for s in world.open_subjobs if s.id in epoch.members and not s.warned]


def _late_checkpoint(world: JobWorld, epoch: Epoch, codes: list[int]) -> Effects[bool]:
    """A checkpoint that had been given up came after all: the ranks have stopped, and are started again."""
    if len(codes) < epoch.size:
        return False
    if not all(code == CHECKPOINTED for code in codes):
        yield from fail_epoch(
            world,
            epoch,
            EpochCode.LATE_CHECKPOINT,
            "a late checkpoint met ranks that had ended",
            members=list(epoch.members),
        )
        return True
    ctx = world.ctx
    yield note(epoch, work_at_stop_s=work_now(world.job, ctx.now))
    yield Rate(world.job, 0.0)
    yield MoveEpoch(epoch, EpochState.STOPPING, reason="a late checkpoint", code=EpochCode.LATE_CHECKPOINT)
    yield MoveEpoch(epoch, EpochState.STOPPED)
    return True


def stop_launch(world: JobWorld, launch: Launch, code: int, why: str) -> Effects[None]:
    """End the launch that is under way with `code`, whatever its ranks are doing."""
    epoch = world.live_epoch
    if epoch is not None:
        yield StopRanks(epoch)
        yield MoveEpoch(epoch, EpochState.FAILED, reason=why, code=EpochCode.GIVEN_UP)
    yield Rate(world.job, 0.0)
    yield note(launch, exit_code=code)
    yield Flush()
