"""What PBS tells a job of itself: PBS_* variables and the file that $PBS_NODEFILE names.

For an elastic job in front of PBS, and for one with #PBS lines in front of any batch system. As with SLURM_*, a script
reckons with the job that it asked for. Its nodefile has a line for each rank, whatever there is of the job now. That of
a launch has the nodes where the ranks are.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ejbd.core.placing import Seat
from ejbd.manager.facts.batchjob import variables
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Subjob, Worker
from ejbd.wire.kinds import J0_ROLES

_OF_SUBMITTER = ("HOME", "LANG", "LOGNAME", "MAIL", "PATH", "SHELL", "TZ")


def told(world: JobWorld) -> bool:
    """Whether the job is one that PBS_* variables are for."""
    return world.spec.pbs or world.ctx.settings.batch == "pbs"


def of_submission(spec: JobSpec, env: Mapping[str, str], directory: str) -> dict[str, str]:
    """What qsub writes down of where a job comes from."""
    found = {f"PBS_O_{name}": env[name] for name in _OF_SUBMITTER if name in env}
    return {
        **found,
        "PBS_O_WORKDIR": directory,
        "PBS_O_HOST": socket.gethostname(),
        "PBS_O_SYSTEM": "Linux",
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBNAME": spec.name,
        **({"PBS_O_QUEUE": spec.queue, "PBS_QUEUE": spec.queue} if spec.queue else {}),
    }


def of_script(world: JobWorld, members: Sequence[Subjob]) -> dict[str, str]:
    """For the script: the whole job, with its nodefile."""
    if not told(world):
        return {}
    workers = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    nodes, processors, tasks = variables.shape(world, workers)
    # Fewer nodes may be known than the job asks for: then ranks are counted where they are.
    names = nodes or [worker.node for worker in workers] or ["localhost"]
    lines = [names[at % len(names)] for at, count in enumerate(tasks) for _ in range(count)]
    folder = world.spool.job_dir(world.job.id) / "script"
    return {
        **_of_job(world),
        "PBS_NODEFILE": str(world.spool.make_nodefile(folder, lines)),
        "PBS_NUM_NODES": str(len(tasks)),
        "PBS_NUM_PPN": str(max(tasks, default=1)),
        "PBS_NODENUM": "0",
        "PBS_VNODENUM": "0",
        "PBS_TASKNUM": "1",
        "NCPUS": str(processors[0] if processors else 1),
    }


def of_launch(world: JobWorld, folder: Path, seats: Sequence[Seat], workers: Sequence[Worker]) -> dict[str, str]:
    """For the ranks of a launch: where they are. `folder`: that of the placement."""
    if not told(world):
        return {}
    node_of = {worker.id: worker.node for worker in workers}
    lines = [node_of[seat.worker] for seat in sorted(seats, key=lambda seat: seat.rank)]
    return {**_of_job(world), "PBS_NODEFILE": str(world.spool.make_nodefile(folder, lines))}


def _of_job(world: JobWorld) -> dict[str, str]:
    job, spec = world.job, world.spec
    found = of_submission(spec, spec.env, spec.cwd)
    found |= {
        "PBS_JOBID": _id(world),
        "PBS_QUEUE": job.queue,
        "PBS_O_QUEUE": spec.queue or job.queue,
        "PBS_O_LOGNAME": job.user,
        "PBS_NP": str(job.processes),
        "PBS_WALLTIME": str(round(spec.walltime_s)),
    }
    found |= of_array(world)
    if spec.threads > 1:
        found["OMP_NUM_THREADS"] = spec.env.get("OMP_NUM_THREADS", str(spec.threads))
    return found


def of_array(world: JobWorld) -> dict[str, str]:
    """What an array's element is told of itself, in the words of OpenPBS and of Torque."""
    if (element := variables.element_of(world)) is None or not told(world):
        return {}
    array, index = element
    return {"PBS_ARRAY_ID": array, "PBS_ARRAY_INDEX": str(index), "PBS_ARRAYID": str(index)}


def _id(world: JobWorld) -> str:
    """Of the first J0, as PBS spells it (`12.head`); in front of Slurm its number."""
    first = next((s for s in world.subjobs if s.role in J0_ROLES), None)
    given = first.batch_id if first is not None else None
    return given if given and "." in given else variables.job_number(world)
