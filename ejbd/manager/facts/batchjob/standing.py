"""The standing order of a J0: what its workers begin by themselves where no daemon answers for long.

It is the job as its user submitted it, by the batch system's own means: what a passed-through job would be. Only a job
of which nothing has begun has one; what a daemon has begun waits for a daemon.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from ejbd.batch.base import BatchSystem
from ejbd.manager.facts.batchjob import passing, pbsvariables, variables
from ejbd.manager.facts.batchjob.output import output_paths
from ejbd.manager.facts.batchjob.prolog import VARIABLE, can_be_told, folders, task_prolog
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing.mpi import is_open_mpi, profile_named
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import Job, Subjob
from ejbd.wire.kinds import SubjobRole

MOST_PART = 0.1  # of J0's time that its workers wait for a daemon at the most
_NODE, _NUMBER = "\x01", "\x02"  # no path holds them; the worker knows what they stand for


@dataclass(frozen=True, slots=True)
class Order:
    """`content` is what the worker reads (docs/worker-protocol.md); `script` and `prolog`: the texts of the files that
    it names, where these are not there already."""

    content: dict[str, Any]
    script: str | None
    prolog: str | None = None


def may_be_plain(ctx: Context, job: Job) -> bool:
    """Whether workers may be left out of the job's J0: nothing can move it, or runs like it may turn out to be short.

    Nothing of its text has been looked at.
    """
    settings = ctx.queue_settings(job.queue)
    if not job.elastic or not ctx.settings.traits.begins_at_once:
        return False
    return settings.has_plain_j0s and (job.engine == "none" or settings.plain_below > 0.0)


def order_for(
    world: JobWorld,
    subjob: Subjob,
    spec: JobSpec,
    batch: BatchSystem,
    plain: bool = False,
    mark: Path | None = None,
) -> Order | None:
    """The order for a J0 that is about to be submitted; None where its job has to wait for a daemon.

    `plain`: its launches need nothing of EJB (:func:`ejbd.manager.facts.placing.plain.is_plain`). `mark`: the file that
    says, as J0 starts, whether runs like it are short.
    """
    ctx, job = world.ctx, world.job
    after_s = ctx.settings.limits.alone_after_s
    if not after_s or subjob.role != SubjobRole.PLACEHOLDER or not ctx.settings.traits.begins_alone:
        return None
    if job.script_run or world.epoch is not None:
        return None
    if spec.signal or job.walltimes is not None or spec.evolving is not None or _of_young_array(world):
        return None  # only the daemon acts at the end of its time, and settles its number
    launcher = profile_named(ctx.settings, spec.mpi) if is_open_mpi(ctx.settings, spec.mpi) else None
    script = passing.script_of(spec, batch, launcher)
    path, folder = world.spool.script_file(job.id), world.spool.subjob_dir(job.id, subjob.id) / "alone"
    if spec.script is None:
        path = folder / "script"
    told: dict[str, str | None] = {}
    if job.engine == "application" and ctx.settings.traits.begins_at_once and can_be_told(spec):
        told[VARIABLE] = str(folder / "task-prolog")
    element = variables.element_of(world)
    number = _NUMBER if job.number is None else job.number
    output, error = output_paths(spec, job.id, job.user, node=_NODE, number=number, element=element)
    content = {
        "id": secrets.token_hex(8),
        "after_s": min(after_s, MOST_PART * subjob.walltime_s),
        "at_once": plain and _is_held_by_nothing(world, spec),
        "at_once_if": None if mark is None else str(mark),
        "processors": subjob.processors,
        "script": str(path),
        "digest": hashlib.sha256(script.encode()).hexdigest(),
        "args": list(spec.argv) if spec.kind is JobKind.SCRIPT else [],
        "cwd": spec.cwd,
        "env_file": str(world.spool.env_file(job.id)),
        "folders": folders(folder) if told else [],
        "output": output,
        "error": error,
        "append": spec.keeps_output,
        "variables": {
            **_shape(spec),
            **variables.of_command(spec),
            **variables.of_array(world),
            **pbsvariables.of_array(world),
            **told,
        },
    }
    prolog = task_prolog(folder, job.id, subjob.id) if told else None
    return Order(content, script if spec.script is None else None, prolog)


def _is_held_by_nothing(world: JobWorld, spec: JobSpec) -> bool:
    """Whether workers could do nothing for a plain job once J0 has begun: nothing is moved or lent by them.

    Engine `none` counts where the user has said it, or workers have told that their nodes have no other: were no worker
    ever started, nothing would be known of DMTCP.
    """
    ctx, job = world.ctx, world.job
    return may_be_plain(ctx, job) and job.engine == "none" and (spec.engine == "none" or bool(ctx.offers_of(job.user)))


def _of_young_array(world: JobWorld) -> bool:
    """Whether the job is an element of an array that has no number yet: its element's J0 may be the one to give it."""
    if world.job.array_id is None:
        return False
    return world.ctx.session.scalar(select(Job.number).where(Job.id == world.job.array_id)) is None


def _shape(spec: JobSpec) -> dict[str, str | None]:
    """What the user has said of the job's shape, and no more; None: not to be set."""
    tasks = str(spec.processes) if spec.tasks_asked or spec.kind is JobKind.COMMAND else None
    return {
        "SLURM_JOB_NAME": spec.name,
        "SLURM_SUBMIT_DIR": spec.cwd,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": None if spec.processors_per_node is None else str(spec.processors_per_node),
        "SLURM_CPUS_PER_TASK": str(spec.threads) if spec.threads_asked else None,
    }
