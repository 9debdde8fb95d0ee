"""What Slurm tells a job of itself by variables (SLURM_*), for an elastic one: as sbatch and srun would set them.

A script reckons with the job that it asked for, whatever there is of it now. SLURM_JOB_* are those of the whole job,
with the nodes where it begins first. EJB_* tell where it is. SLURM_STEP_* of a launch are its placement's. What the
worker alone knows (SLURM_CONF, the cluster's name, the node's) it adds itself.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Sequence
from itertools import groupby

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from ejbd._workers.ejb_worker.launch_options import read_distribution
from ejbd.core.placing import Seat
from ejbd.manager.facts.batchjob.numbers import number_of
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.indices import Indices
from ejbd.store import queries
from ejbd.store.models import Job, Launch, Subjob, Worker
from ejbd.wire.hostlists import fold, natural


def job_number(world: JobWorld) -> str:
    """SLURM_JOB_ID: the number that the job goes by, which is settled where this is asked."""
    return number_of(world.job)


def element_of(world: JobWorld) -> tuple[str, int] | None:
    """Of an array's element: SLURM_ARRAY_JOB_ID and its index.

    The array's number is that of the element that the batch system had first. Passed-through elements are told before
    they have a number, and get one of EJB's own.
    """
    job = world.job
    if job.array_id is None or job.array_index is None:
        return None
    array = queries.job(world.ctx.session, job.array_id)
    return number_of(array), job.array_index


def of_array(world: JobWorld) -> dict[str, str]:
    """What an array's element is told of itself."""
    if (element := element_of(world)) is None or (found := Indices.read(world.spec.array or "")) is None:
        return {}
    every = found.all
    return {
        "SLURM_ARRAY_JOB_ID": element[0],
        "SLURM_ARRAY_TASK_ID": str(element[1]),
        "SLURM_ARRAY_TASK_COUNT": str(len(every)),
        "SLURM_ARRAY_TASK_MIN": str(min(every.intiter())),
        "SLURM_ARRAY_TASK_MAX": str(found.last),
        "SLURM_ARRAY_TASK_STEP": str(found.step),
    }


def of_script(world: JobWorld, members: Sequence[Subjob]) -> dict[str, str]:
    """For the script: what sbatch sets in the batch step."""
    workers = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    told = {**_of_job(world, workers), **distribution_of(world.spec)[1], **of_command(world.spec)}
    return {**told, "ENVIRONMENT": "BATCH", **_task(0, 0, 0, [0])}


def distribution_of(spec: JobSpec) -> tuple[int, dict[str, str]]:
    """How many ranks each node gets in turn by the job's own --distribution (0: neighbours stay together), and the
    variables that say so."""
    given = next((word for word in spec.wants.shape if word.startswith("--distribution=")), None)
    if given is None:
        return 0, {}
    return read_distribution(*given.split("=", 1))


def of_command(spec: JobSpec) -> dict[str, str]:
    """EJB_COMMAND: the script's file, as it was submitted, and its arguments, as Slurm's `Command` has them.

    EJB_COMMENT: what its user wrote as its comment.
    """
    found = {"EJB_COMMENT": spec.comment} if spec.comment else {}
    return found if spec.script_path is None else {**found, "EJB_COMMAND": " ".join([spec.script_path, *spec.argv])}


def of_launch(
    world: JobWorld, launch: Launch, members: Sequence[Subjob], seats: Sequence[Seat], workers: Sequence[Worker]
) -> dict[str, str]:
    """For all ranks of a launch: what srun sets in a step. `workers`: those of `members` that have ranks."""
    everywhere = [worker for subjob in members for worker in world.workers_of(subjob.id)]
    node_of = {worker.id: worker.node for worker in workers}
    nodes = _in_order(node_of.values())
    counts = [sum(node_of[seat.worker] == node for seat in seats) for node in nodes]
    step, size = str(launch.ordinal), str(len(seats))
    of_job = _of_job(world, everywhere)
    del of_job["SLURM_CPUS_ON_NODE"]  # each worker knows its own
    return {
        **of_job,
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_TASKS_PER_NODE": _counts(counts),
        "SLURM_DISTRIBUTION": "cyclic" if len(seats) <= len(nodes) else "block",
        "SLURM_STEP_ID": step,
        "SLURM_STEPID": step,
        "SLURM_STEP_NODELIST": fold(nodes),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_TASKS_PER_NODE": _counts(counts),
    }


def of_modules(world: JobWorld) -> dict[str, str]:
    """Where an evolving job's processes find the module `ejb_elastic`: the worker appends it to PYTHONPATH."""
    return {"EJB_PYTHON_MODULES": str(world.spool.worker)} if world.spec.evolving is not None else {}


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


def _held(workers: Sequence[Worker]) -> dict[str, int]:
    held: dict[str, int] = {}
    for worker in workers:
        held[worker.node] = held.get(worker.node, 0) + worker.processors
    return held


def shape(world: JobWorld, workers: Sequence[Worker]) -> tuple[list[str], list[int], list[int]]:
    """The job as it was asked for: its nodes, as far as they are known, and the processors and ranks of each."""
    held = _held(workers)
    here = _in_order(held)
    j0 = world.placeholder
    on_j0 = j0 is not None and bool(workers) and all(worker.subjob_id == j0.id for worker in workers)
    if not on_j0:
        return _whole(world, here)
    processors = [held[node] for node in here]  # these are the very nodes
    return (
        here,
        processors,
        _tasks(world.spec, world.job.processes, [one // world.needs.processors for one in processors]),
    )


def _of_job(world: JobWorld, workers: Sequence[Worker]) -> dict[str, str]:
    job, spec = world.job, world.spec
    number = job_number(world)
    held = _held(workers)
    here = _in_order(held)
    nodes, processors, tasks = shape(world, workers)
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_PARTITION": job.queue,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_NODELIST": _listed(nodes),
        "SLURM_NODELIST": _listed(nodes),
        "SLURM_JOB_NUM_NODES": str(len(tasks)),
        "SLURM_NNODES": str(len(tasks)),
        "SLURM_JOB_CPUS_PER_NODE": _counts(processors),
        "SLURM_CPUS_ON_NODE": str(processors[0]) if processors else "1",
        "SLURM_TASKS_PER_NODE": _counts(tasks),
        "SLURM_SUBMIT_DIR": spec.cwd,
        "EJB_NODELIST": fold(here),
        "EJB_NNODES": str(len(here)),
        "EJB_CPUS_PER_NODE": _counts(held[node] for node in here),
        **_user(job),
    }
    if spec.tasks_asked:
        found |= {"SLURM_NTASKS": str(job.processes), "SLURM_NPROCS": str(job.processes)}
    if spec.processors_per_node is not None:
        found["SLURM_NTASKS_PER_NODE"] = str(spec.processors_per_node)
    if spec.threads_asked:
        found["SLURM_CPUS_PER_TASK"] = str(spec.threads)
    return {**found, **_memory(world), **of_array(world)}


def _memory(world: JobWorld) -> dict[str, str]:
    """As it was asked for, or else as the site gives it."""
    wants = world.spec.wants
    of_processor, of_node = wants.memory_per_processor_mb, wants.memory_per_node_mb
    if of_processor is None and of_node is None and world.ctx.view is not None:
        rules = world.ctx.view.memory
        of_processor, of_node = rules.default_mb_per_processor, rules.default_mb_per_node
    if of_processor:
        return {"SLURM_MEM_PER_CPU": str(of_processor)}
    return {"SLURM_MEM_PER_NODE": str(of_node)} if of_node else {}


def _whole(world: JobWorld, here: Sequence[str]) -> tuple[list[str], list[int], list[int]]:
    """Nodes, processors and ranks on each of the job as it was asked for: where it is, and others that it might get."""
    job, spec, needs = world.job, world.spec, world.needs
    view = world.ctx.view
    usable = [node for node in view.usable_nodes(job.queue) if needs.allows(node)] if view is not None else []
    widest = max((node.processors for node in usable), default=job.processes * needs.processors)
    room = max(1, widest // needs.processors)
    count = spec.nodes or -(-job.processes // (spec.processors_per_node or room))
    tasks = _tasks(spec, job.processes, [room] * count)
    whole = widest if needs.whole_nodes or needs.per_node else None
    processors = [whole or one * spec.threads for one in tasks]
    j0 = world.placeholder
    planned = next((seen.planned_nodes for seen in view.jobs if j0 and seen.mark == j0.tag), ()) if view else ()
    names = dict.fromkeys([*here, *planned, *_in_order(node.name for node in usable)])
    return _in_order(list(names)[:count], first=here), processors, tasks


def _tasks(spec: JobSpec, ranks: int, room: Sequence[int]) -> list[int]:
    """Ranks a node: as were asked for, evenly over the nodes that were, or filling one after the other."""
    if spec.nodes is not None and spec.nodes == len(room) and not spec.tasks_asked:
        return [1] * spec.nodes if not spec.wants.unsized else list(room)
    if spec.processors_per_node is not None:
        return [spec.processors_per_node] * len(room)
    if spec.nodes is not None:
        count = len(room)
        return [ranks // count + (node < ranks % count) for node in range(count)]
    found: list[int] = []
    for one in room:
        found.append(min(one, ranks - sum(found)))
    return found


def _user(job: Job) -> dict[str, str]:
    try:
        known = pwd.getpwnam(job.user)
    except KeyError:
        return {}
    return {"SLURM_JOB_UID": str(known.pw_uid), "SLURM_JOB_GID": str(known.pw_gid)}


def _listed(nodes: Sequence[str]) -> str:
    """A list of nodes in this very order: what its names are taken for goes by it, as the first one for an address."""
    parts: list[list[str]] = []
    for node in nodes:
        if parts and natural(parts[-1][-1]) < natural(node):
            parts[-1].append(node)
        else:
            parts.append([node])
    return ",".join(map(fold, parts))


def _counts(numbers: Iterable[int]) -> str:
    """Slurm's spelling: `4(x2),2` for 4, 4 and 2."""
    groups = [(number, len(list(group))) for number, group in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in groups)


def _in_order(nodes: Iterable[str], first: Sequence[str] = ()) -> list[str]:
    """Each node once, in the order of Slurm's lists, `first` before all others."""
    names = list(dict.fromkeys(nodes))
    if first:
        return [*(name for name in first if name in names), *_in_order(name for name in names if name not in first)]
    try:
        return [str(node) for node in NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)]
    except NodeSetException:
        return sorted(names)
