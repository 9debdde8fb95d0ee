"""The environment of a rank, and of the command that starts all of them."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping

from .engines.base import EpochContext
from .place import Place
from .settings import LAUNCHER_VARIABLES, Subjob, site_variables
from .watching import progress_file

# Of the script's own world, not of the ranks'.
_NOT_FOR_RANKS = ("EJB_LAUNCH_SOCKET", "EJB_LAUNCH_FOLDER", "EJB_SHIMS", "EJB_RESTART_DIR")

_BATCH_SYSTEMS = ("SLURM_", "PBS_", "LSB_", "OMPI_COMM_", "PMIX_", "PMI_")


def rank_environment(
    context: EpochContext,
    subjob: Subjob,
    place: Place,
    rank: int,
    processor: int,
    given: Mapping[str, str],
    of_launcher: Mapping[str, Any],
) -> Dict[str, str]:
    """A rank's, without what MPI and the site's modules add. `given`: of the launch; `of_launcher` is on top of it."""
    env = {str(name): str(value) for name, value in given.items() if name not in _NOT_FOR_RANKS}
    size = str(context.payload["size"])
    env.update(
        EJB_JOB_ID=subjob.job,
        EJB_SUBJOB_ID=subjob.subjob,
        EJB_RANK=str(rank),
        EJB_SIZE=size,
        EJB_EPOCH=str(context.epoch),
        EJB_NODE=place.node,
        EJB_PROCESSOR=place.processor(subjob, processor),
        EJB_PROCESSOR_DIR=place.processor_dir,
        EJB_PROCESSOR_FILE=place.processor_file(context.epoch, rank),
        EJB_CHECKPOINT_DIR=context.checkpoint_dir,
        EJB_RENDEZVOUS=os.path.join(context.folder, "rendezvous"),
        EJB_ADDRESS=place.address,
        EJB_PROGRESS=progress_file(str(context.payload["launch_file"])),
        SLURM_PROCID=str(rank),
        SLURM_NTASKS=size,
        SLURM_NPROCS=size,
    )
    env.update(site_variables(env, place.node, place.processors))
    if "SLURM_JOB_GROUP" in os.environ:  # which a newer Slurm tells its tasks, as the worker is one
        env["SLURM_JOB_GROUP"] = os.environ["SLURM_JOB_GROUP"]
    for told in (context.payload, next(one for one in context.payload["ranks"] if int(one["rank"]) == rank)):
        env.update({str(name): str(value) for name, value in (told.get("variables") or {}).items()})
    env.update({str(name): str(value) for name, value in of_launcher.items() if value is not None})
    for name in (name for name, value in of_launcher.items() if value is None):
        env.pop(name, None)
    if context.restart_dir is not None:
        env["EJB_RESTART_DIR"] = context.restart_dir
    return env


def launchers_environment(env: Dict[str, str], more: Dict[str, str]) -> Dict[str, str]:
    """Without what tells a launcher of a batch system's allocation: it starts its ranks here, and nowhere else.

    What is one rank's own is left out too: all of its ranks would see it.
    """
    plain = {
        name: value
        for name, value in env.items()
        if not name.startswith(_BATCH_SYSTEMS)
        and name not in LAUNCHER_VARIABLES
        and name not in ("EJB_RANK", "EJB_PROCESSOR", "EJB_PROCESSOR_FILE")
    }
    plain.update({str(name): str(value) for name, value in more.items()})
    return plain
