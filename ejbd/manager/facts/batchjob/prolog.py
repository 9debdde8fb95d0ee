"""What an application with checkpoints of EJB's kind is told where srun starts its ranks, and no worker does.

Such a program (engine `application`) may go by any `EJB_` variable of docs/worker-protocol.md, however its text reads.
Slurm runs a task prolog before each rank, and what that says is in the rank's environment. Nothing asks such ranks for
a checkpoint, so that `EJB_CHECKPOINT_DIR` stays empty.

It is run for each rank, by all of a node at the same time: so it starts no program but for a script's later launches.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ejbd.manager.jobspec import JobSpec

VARIABLE = "SLURM_TASK_PROLOG"
_PROLOG = r"""#!/bin/sh
umask 077
at={folder}/step-$SLURM_STEP_ID
processor={subjob}.$SLURMD_NODENAME.$SLURM_LOCALID
address=$SLURM_LAUNCH_NODE_IPADDR
[ "$SLURM_NODEID" = 0 ] || read -r address < /proc/sys/kernel/hostname
[ -d "$at/checkpoint" ] || mkdir -p "$at/rendezvous" "$at/checkpoint"
echo "$processor" > "$at/$SLURM_PROCID"
printf 'export %s\n' EJB_JOB_ID={job} EJB_SUBJOB_ID={subjob} EJB_EPOCH=1 \
    "EJB_RANK=$SLURM_PROCID" "EJB_SIZE=$SLURM_STEP_NUM_TASKS" \
    "EJB_NODE=$SLURMD_NODENAME" "EJB_ADDRESS=$address" \
    "EJB_PROCESSOR=$processor" "EJB_PROCESSOR_DIR=$at" "EJB_PROCESSOR_FILE=$at/$SLURM_PROCID" \
    "EJB_CHECKPOINT_DIR=$at/checkpoint" "EJB_RENDEZVOUS=$at/rendezvous" "EJB_PROGRESS=$at/progress"
"""


def can_be_told(spec: JobSpec) -> bool:
    """Whether the job has no task prolog of its own, by its environment or its text."""
    return VARIABLE not in spec.env and "task-prolog" not in (spec.script or " ".join(spec.argv))


def folders(folder: Path) -> list[str]:
    """What the first launch finds there already."""
    return [str(folder / "step-0" / name) for name in ("rendezvous", "checkpoint")]


def task_prolog(folder: Path, job: str, subjob: str) -> str:
    """The prolog of the ranks of a J0. `folder`: of this J0, on a file system that all of its nodes see."""
    return _PROLOG.format(folder=shlex.quote(str(folder)), job=job, subjob=subjob)
