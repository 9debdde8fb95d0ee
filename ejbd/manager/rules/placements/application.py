"""How an application is carried through its placements: launch, checkpoint and stop, restart elsewhere, end.

:func:`advance` does whatever can be done next for one job. It is called after every poll and after every report of a
worker, and does nothing where there is nothing to do. An application never has two live placements: a new epoch is made
only when no rank of the old one can be running. Subjobs that are left are released only when the new epoch runs
(architecture: Epochs).
"""

from __future__ import annotations

from ejbd.manager.effects import (
    Conclude,
    Effects,
    Evolve,
    FinishEnd,
    Flush,
    LoseWork,
    MoveJob,
    Order,
    Rate,
    note,
    tell,
)
from ejbd.manager.effects.ends import Again, ApplicationEnded, GoesOn, PeersFailed
from ejbd.manager.facts.deaths import CANCELLED_LAUNCH, for_memory, last_words
from ejbd.manager.facts.homes import is_up
from ejbd.manager.facts.jobworld import JobWorld, begins_again, holds_shell
from ejbd.manager.facts.pauses import placement_pause_s
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.launchwidth import is_wide_enough
from ejbd.manager.rules.placements import movability
from ejbd.manager.rules.placements.exits import ranks_over
from ejbd.manager.rules.placements.generations import (
    drop_older,
    is_proved,
)
from ejbd.manager.rules.placements.launching import add_launch, launching, start_epoch
from ejbd.manager.rules.placements.lead import ensure_lead
from ejbd.manager.rules.placements.pace import follow_delta
from ejbd.manager.rules.placements.resizing import follow_share, go_on_with, waits_for_room
from ejbd.manager.rules.placements.setbacks import back_to_waiting
from ejbd.manager.rules.placements.stopping import begin_checkpoint, stopping
from ejbd.store.models import Epoch, Launch, Subjob
from ejbd.store.states import EpochState, JobState, LaunchState, OperationState
from ejbd.wire.kinds import EventKind, JobKind, OperationKind, SubjobRole


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
        return (yield from launching(world, epoch))
    if epoch.state == EpochState.RUNNING:
        return (yield from _running(world, epoch))
    return (yield from stopping(world, epoch))


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
        return False  # the last one has just ended: the rule that saw that takes it out
    if not all(world.ready(s) for s in members) or _waits_for_siblings(world, members) or _pauses(world):
        return False
    members = yield from movability.room_that_lasts(world, members)
    if not members:
        yield from back_to_waiting(world, "what it has does not last to its end, and it cannot be moved")
        return True
    if not world.staged and _too_narrow(world, members):
        yield from back_to_waiting(world, "what is left of its subjobs is too little for its ranks")
        return True
    if world.ctx.hands.own.trouble:
        return False  # nothing is begun on a spool that is away, or takes nothing: polls come back here
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
        launch = yield from add_launch(world, 0, job.processes, str(world.spool.launch_file(job.id, 0)))
    if (world.staged and not is_wide_enough(world, launch, members)) or waits_for_room(world, members):
        return False
    yield from start_epoch(world, launch, members)
    return True


def _lost_rather_than_failed(world: JobWorld, launch: Launch) -> Effects[bool]:
    """Ranks fail when their peers die with a node, before that node is missed: go back, the program is well."""
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
    """Ranks of the last placement may live on a subjob that has lost its workers, until the batch system ends it."""
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


def _end_launch(world: JobWorld, launch: Launch) -> Effects[bool]:
    """Nothing of the launch runs any more: tell the script, or end the job."""
    ctx, job = world.ctx, world.job
    code = launch.exit_code or 0
    yield note(launch, state=LaunchState.ENDED, ended_s=ctx.now)
    yield Flush()
    yield tell(EventKind.LAUNCH_ENDED, job_id=job.id, ordinal=launch.ordinal, code=code)
    said = last_words(world)
    if job.kind == JobKind.COMMAND:
        why = for_memory(world) or (said[0] if said else f"the application ended with code {code}")
        yield Conclude(ApplicationEnded(code, why))
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
    if world.staged:
        yield Evolve()  # what it alone needed is held no longer
    return True


# -- a placement is live ----------------------------------------------------------------------------------------------


def _running(world: JobWorld, epoch: Epoch) -> Effects[bool]:
    if (yield from ranks_over(world, epoch)):
        return True
    if epoch.fallback and is_proved(world, epoch):
        yield note(epoch, fallback=[])  # nothing goes back there any more, nor to a checkpoint before
        yield from drop_older(world, epoch)
    if (yield from follow_share(world, epoch)):
        return True
    yield from follow_delta(world, epoch)
    job, now = world.job, world.ctx.now
    wanted = set(job.members)
    if wanted == set(epoch.members) or not node_limit.can_move(world) or now < job.move_not_before_s:
        return False
    if any(epoch.exits.values()):  # a rank has failed, and the others are waited for: no checkpoint of a part
        return False
    members = [s for s in world.open_subjobs if s.id in wanted]
    if len(members) != len(wanted) or not all(world.ready(s) for s in members):
        return False
    if (yield from go_on_with(world, epoch, members)) or world.ctx.hands.own.trouble:
        return False
    yield from begin_checkpoint(world, epoch)
    return True
