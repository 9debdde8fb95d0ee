"""What a job of the embedded cluster is told of itself, in Slurm's variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from ejbd.batch.local.jobs import Job
from ejbd.batch.local.options import QUEUE
from ejbd.wire.hostlists import fold

CLUSTER = "embedded"


def slurm_variables(job: Job, tells: dict[str, Any]) -> dict[str, str]:
    """As the script has them in its first process. `tells`: the job's `name`, and how many `tasks` it asked for."""
    names = [name for name, _ in job.nodes]
    counts = [count for _, count in job.nodes]
    nodes, number = fold(names), str(job.id)
    return {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": str(tells["name"]),
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_JOB_PARTITION": QUEUE,
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(len(names)),
        "SLURM_NNODES": str(len(names)),
        "SLURM_JOB_CPUS_PER_NODE": describe_counts(counts),
        "SLURM_CPUS_ON_NODE": str(counts[0]),
        "SLURM_TASKS_PER_NODE": describe_counts(tasks_of_nodes(job, int(tells["tasks"]))),
        "SLURMD_NODENAME": names[0],
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_JOB_START_TIME": str(int(job.start_s or 0)),
        "SLURM_JOB_END_TIME": str(int(job.end_s or 0)),
    }


def mpi_defaults(job: Job) -> dict[str, str]:
    """What lets MPI programs run on virtual nodes, where nothing else was said.

    Open MPI takes nodes for machines. It has a daemon on each, and each would have the shared memory to itself.
    """
    return {"OMPI_MCA_btl": "^vader,sm"} if len(job.nodes) > 1 else {}


def tasks_of_nodes(job: Job, tasks: int) -> Sequence[int]:
    """How many of its tasks each node of a job has: as many as there is room for, and at least one."""
    layout, left = job.layout, max(tasks, len(job.nodes))
    found: list[int] = []
    for place, (_, count) in enumerate(job.nodes):
        room = max(1, min(count, layout.most_a_node or count) // layout.threads)
        last = len(job.nodes) - 1 - place
        found.append(min(room, left - last) if last else left)
        left -= found[-1]
    return found


def describe_counts(counts: Iterable[int]) -> str:
    """Slurm's spelling: `4(x2),2` for 4, 4 and 2."""
    groups = [(count, len(list(group))) for count, group in groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
