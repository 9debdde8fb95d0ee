"""The lead: the one worker of a job that runs the user's script and writes the output files.

The shell of a script lives and dies with the subjob that it began in. Unless the script says `#EJB restartable` that
subjob is its *anchor* and is kept until the script ends, even when the ranks have moved elsewhere. A restartable script
is started again on the next lead. There the launches that had ended return their codes at once. A script that begins
again (ejbd.manager.jobspec.again) is started so, too, when its anchor is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ejbd.core.view import KILL_WAIT_S
from ejbd.manager.effects import Effects, Order, SettleNumber, note, tell
from ejbd.manager.facts.batchjob import pbsvariables, variables
from ejbd.manager.facts.batchjob.output import output_paths, server_in
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import finished
from ejbd.manager.facts.times import usable_end
from ejbd.manager.rules.placements import alone
from ejbd.store.models import Launch, Operation, Subjob, Worker
from ejbd.store.states import EpochState, LaunchState
from ejbd.wire.kinds import EventKind, OperationKind


def ensure_lead(world: JobWorld, members: list[Subjob]) -> Effects[bool]:
    """See that a worker on `members` (or on the anchor) leads. False: not yet, the old one is still handing over."""
    current = world.worker(world.job.lead_worker)
    if current is not None:
        home = world.subjob(current.subjob_id)
        if home is not None and not home.releasing and (home.anchor or home in members):
            return True
        handover = _handover(world, current)
        if handover is None:
            yield from hand_over(world, current)
            return False
        if not finished([handover]):
            return False
    if not world.job.script_run and not (yield from alone.withdraw(world)):
        return False  # the job has begun by itself, and is taken up at the next look
    yield from _appoint(world, members)
    return True


def hand_over(
    world: JobWorld,
    lead: Worker,
    say: Sequence[str] = (),
    grace_s: float = KILL_WAIT_S,
    exit: Mapping[str, Any] | None = None,
) -> Effects[None]:
    """As :class:`~ejbd.manager.effects.HandOver`."""
    epoch = world.epoch
    if epoch is not None and not EpochState(epoch.state).live:
        yield Order(lead, OperationKind.DRAIN, {"epoch": epoch.number, "moved": True}, epoch=epoch.number)
    told: dict[str, Any] = {"grace_s": grace_s}
    if say:
        told["say"] = list(say)
    if exit is not None:
        told["exit"] = dict(exit)
    yield Order(lead, OperationKind.UNLEAD, told)


def _handover(world: JobWorld, lead: Worker) -> Operation | None:
    """The `unlead` that was sent to this lead since it was appointed."""
    operations = [o for o in world.operations(OperationKind.LEAD, OperationKind.UNLEAD) if o.worker_id == lead.id]
    return operations[-1] if operations and operations[-1].kind == OperationKind.UNLEAD else None


def _appoint(world: JobWorld, members: list[Subjob]) -> Effects[None]:
    ctx, job = world.ctx, world.job
    yield SettleNumber(job)
    anchored = [s for s in members if s.anchor]
    home = max(anchored or members, key=lambda s: (usable_end(s, ctx.now), -s.ordinal))
    lead = world.workers_of(home.id)[0]
    yield note(job, script_run=job.script_run + 1, lead_worker=lead.id)
    spec = world.spec
    script = None
    if spec.script is not None:
        if not spec.restartable:
            # Here, and nowhere else, whatever was planned: an anchor that did not start in time holds no shell.
            for subjob in world.open_subjobs:
                yield note(subjob, anchor=subjob is home)
        ended = {
            str(launch.ordinal): launch.exit_code or 0
            for launch in ctx.session.query(Launch).where(Launch.job_id == job.id, Launch.state == LaunchState.ENDED)
        }
        script = {
            "path": str(world.spool.script_file(job.id)),
            "args": list(spec.argv),
            "cwd": spec.cwd,
            "env_file": str(world.spool.env_file(job.id)),
            "job_name": spec.name,
            "restartable": spec.restartable,
            "ended_launches": ended,
            "variables": {
                **variables.of_script(world, members if home in members else [home]),
                **pbsvariables.of_script(world, members if home in members else [home]),
                **variables.of_modules(world),
                **_restarts(world),
            },
        }
    before = world.operations(OperationKind.LEAD)
    if before:  # %N is the first lead's node: the output stays in one piece wherever the lead goes
        output, error = before[0].payload["output"], before[0].payload["error"]
    else:
        number, element = variables.job_number(world), variables.element_of(world)
        server = server_in(home.batch_id)
        output, error = output_paths(
            spec, job.id, job.user, node=lead.node, number=number, element=element, server=server
        )
    payload = {
        "run": job.script_run,
        "output": output,
        "error": error,
        "script": script,
        "append": spec.keeps_output,
        "processors": job.processes * (world.needs.processors if world.needs.per_node else spec.threads),
        "tasks": spec.nodes if not spec.tasks_asked and spec.nodes else job.processes,
        "threads": spec.threads,
    }
    yield Order(lead, OperationKind.LEAD, payload)
    yield tell(EventKind.LEAD_APPOINTED, job_id=job.id, subjob_id=home.id, node=lead.node, run=job.script_run)


def _restarts(world: JobWorld) -> dict[str, str]:
    """How often an ordinary script was begun again, as the batch system tells it. One that says `restartable` begins
    again with each move of its shell, which is no other run."""
    again = world.job.script_run - 1
    return {"SLURM_RESTART_COUNT": str(again)} if again and not world.spec.restartable else {}
