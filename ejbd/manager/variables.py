"""What Slurm tells a job of itself by variables (SLURM_*), for an elastic one: as sbatch and srun would set them.

The nodes are those of the moment: where the script begins, and for a launch where its placement begins. What the worker
alone knows (SLURM_CONF, the cluster's name, the node's) it adds itself.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Sequence
from itertools import groupby

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from ejbd.core.placing import Seat
from ejbd.manager.jobworld import JobWorld
from ejbd.store.models import Job, Launch, Subjob, Worker
from ejbd.wire.kinds import SubjobRole


def job_number(world: JobWorld) -> str:
    """SLURM_JOB_ID: the number of the job's first J0, also where J0 was asked for again, so that it never changes.

    A job whose J0 has no number (nobody answered yet) has its own serial number.
    """
    first = next((s for s in world.subjobs if s.role == SubjobRole.PLACEHOLDER), None)
    given = (first.batch_id or "").partition(".")[0] if first is not None else ""  # PBS: `12.head`
    return given if given.isdigit() else str(world.job.seq)


def of_script(world: JobWorld, members: Sequence[Subjob]) -> dict[str, str]:
    """For the script: what sbatch sets in the batch step."""
    workers = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    return {**_of_job(world, workers), "ENVIRONMENT": "BATCH", **_task(0, 0, 0, [0])}


def of_launch(
    world: JobWorld, launch: Launch, members: Sequence[Subjob], seats: Sequence[Seat], workers: Sequence[Worker]
) -> dict[str, str]:
    """For all ranks of a launch: what srun sets in a step. `workers`: those of `members` that have ranks."""
    everywhere = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    node_of = {worker.id: worker.node for worker in workers}
    nodes = _in_order(node_of.values())
    counts = [sum(node_of[seat.worker] == node for seat in seats) for node in nodes]
    step, size = str(launch.ordinal), str(launch.size)
    return {
        **_of_job(world, everywhere),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_TASKS_PER_NODE": _counts(counts),
        "SLURM_DISTRIBUTION": "block",
        "SLURM_STEP_ID": step,
        "SLURM_STEPID": step,
        "SLURM_STEP_NODELIST": _folded(nodes),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_TASKS_PER_NODE": _counts(counts),
    }


def of_ranks(seats: Sequence[Seat], workers: Sequence[Worker]) -> dict[int, dict[str, str]]:
    """For each rank: which it is on its node, and which node that is."""
    node_of = {worker.id: worker.node for worker in workers}
    found = {}
    for number, node in enumerate(_in_order(node_of.values())):
        here = sorted(seat.rank for seat in seats if node_of[seat.worker] == node)
        for local, rank in enumerate(here):
            found[rank] = _task(rank, local, number, here)
    return found


def _task(rank: int, local: int, node: int, here: Sequence[int]) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
        "SLURM_GTIDS": ",".join(map(str, here)),
    }


def _of_job(world: JobWorld, workers: Sequence[Worker]) -> dict[str, str]:
    job, spec = world.job, world.spec
    number, ranks = job_number(world), str(job.processes)
    processors: dict[str, int] = {}
    for worker in workers:
        processors[worker.node] = processors.get(worker.node, 0) + worker.processors
    nodes = _in_order(processors)
    here = [processors[node] for node in nodes]
    if spec.nodes is not None:  # a script reckons with what it has asked for, whatever is there now
        count = spec.nodes
        tasks = [job.processes // count + (node < job.processes % count) for node in range(count)]
        here = here if len(here) == count else tasks
    else:
        count = len(nodes)
        tasks = _filled(job.processes, here)
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_PARTITION": job.queue,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_NODELIST": _folded(nodes),
        "SLURM_NODELIST": _folded(nodes),
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_NNODES": str(count),
        "SLURM_JOB_CPUS_PER_NODE": _counts(here),
        "SLURM_TASKS_PER_NODE": _counts(tasks),
        "SLURM_NTASKS": ranks,
        "SLURM_NPROCS": ranks,
        "SLURM_SUBMIT_DIR": spec.cwd,
        **_user(job),
    }
    if spec.processors_per_node is not None:
        found["SLURM_NTASKS_PER_NODE"] = str(spec.processors_per_node)
    return found


def _user(job: Job) -> dict[str, str]:
    try:
        known = pwd.getpwnam(job.user)
    except KeyError:
        return {}
    return {"SLURM_JOB_UID": str(known.pw_uid), "SLURM_JOB_GID": str(known.pw_gid)}


def _filled(ranks: int, processors: Sequence[int]) -> list[int]:
    """Ranks a node where as many share each processor as need be."""
    total = sum(processors) or 1
    ends = [ranks * sum(processors[: index + 1]) // total for index in range(len(processors))]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def _counts(numbers: Iterable[int]) -> str:
    """Slurm's spelling: `4(x2),2` for 4, 4 and 2."""
    groups = [(number, len(list(group))) for number, group in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in groups)


def _in_order(nodes: Iterable[str]) -> list[str]:
    """Each node once, in the order of Slurm's lists."""
    names = list(dict.fromkeys(nodes))
    try:
        return [str(node) for node in NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)]
    except NodeSetException:
        return sorted(names)


def _folded(nodes: Sequence[str]) -> str:
    """`n[1-2]` for n1 and n2."""
    try:
        return str(NodeSet.fromlist(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ",".join(nodes)
