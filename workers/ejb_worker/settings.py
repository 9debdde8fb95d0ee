"""Where the worker is and what it belongs to: `subjob.json` and `manager.json` of the spool."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping

from . import PROTOCOL
from .files import read_json

# What the batch system set for this worker and what is as true for the job's own processes.
_OF_THE_SITE = (
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_QOS",
    "SLURM_NODE_ALIASES",
    "SLURM_PRIO_PROCESS",
    "SLURM_SUBMIT_HOST",
    "SLURM_WORKING_CLUSTER",
    "TMPDIR",
)

# What Slurm (since 23.02) says of the batch job in which a script runs. Ranks have it of their script.
_OF_THE_BATCH_JOB = (
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_OOM_KILL_STEP",
    "SLURM_JOB_EXCLUSIVE",
    "SLURM_JOB_OVERSUBSCRIBE",
)
_OF_ITS_NUMBER = ("SLURM_JOB_SLUID",)
# How the batch script hands on which step it is itself: Slurm tells a script so since 26.05.
_BATCH_STEP = "EJB_BATCH_STEP_ID"

_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)

# Since 23.11 Slurm makes mpirun start its daemons by srun so: each, and the variable by which a user chooses another.
LAUNCHER_VARIABLES = {
    "HYDRA_BOOTSTRAP": "HYDRA_BOOTSTRAP",
    "HYDRA_LAUNCHER_EXTRA_ARGS": "HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP": "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "I_MPI_HYDRA_BOOTSTRAP",
    "OMPI_MCA_plm_slurm_args": "",
    "PRTE_MCA_plm_slurm_args": "",
}

SITES_OWN = frozenset(_OF_THE_SITE + _DEVICES)


def site_variables(given: Mapping[str, str], node: str, processors: int) -> Dict[str, str]:
    """Variables of the site and of this node for the job's processes, beside those of their own (`given`)."""
    found = {name: os.environ[name] for name in _OF_THE_SITE if name in os.environ}
    found["TMPDIR"] = given.get("TMPDIR") or found.get("TMPDIR") or "/tmp"  # the user's own word counts, as with sbatch
    found["HOSTNAME"] = given.get("HOSTNAME") or node
    # Which devices are the job's is another matter on each node.
    found.update({name: os.environ[name] for name in _DEVICES if name in os.environ})
    found.update(launcher_variables(given))
    found.update(SLURMD_NODENAME=node, SLURM_CPUS_ON_NODE=str(processors))
    found.update(SLURM_TOPOLOGY_ADDR=node, SLURM_TOPOLOGY_ADDR_PATTERN="node")
    return found


def batch_job_variables(number: str) -> Dict[str, str]:
    """What a script is told of the batch job in which it runs. `number`: by which the job goes, which may be another
    batch job's: then the unique name of this one is not told.
    """
    names = _OF_THE_BATCH_JOB + (_OF_ITS_NUMBER if os.environ.get("SLURM_JOB_ID") == number else ())
    found = {name: os.environ[name] for name in names if name in os.environ}
    if step := os.environ.get(_BATCH_STEP):
        found.update(SLURM_STEP_ID=step, SLURM_STEPID=step)
    return found


def launcher_variables(given: Mapping[str, str]) -> Dict[str, str]:
    """What Slurm told this worker for mpirun's sake, as far as the user's environment (`given`) leaves it to Slurm."""
    return {
        name: os.environ[name]
        for name, choice in LAUNCHER_VARIABLES.items()
        if name in os.environ and name not in given and given.get(choice, "slurm") == "slurm"
    }


def with_modules(env: Dict[str, str]) -> Dict[str, str]:
    """`env` with what the manager has for the job's Python programs at the end of PYTHONPATH, once."""
    added = env.get("EJB_PYTHON_MODULES", "")
    parts = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    if not added or added in parts:
        return env
    return {**env, "PYTHONPATH": os.pathsep.join([*parts, added])}


class SettingsError(Exception):
    """One sentence."""


class Subjob:
    """What `subjob.json` says. `binding` is "auto" (see the protocol) or "none"."""

    __slots__ = ("binding", "folder", "job", "job_dir", "secret", "spool", "subjob")

    def __init__(self, folder: str, values: Dict[str, Any]) -> None:
        self.folder = folder
        if values.get("protocol") != PROTOCOL:
            raise SettingsError(
                "%s/subjob.json: protocol %s, this worker speaks %d" % (folder, values.get("protocol"), PROTOCOL)
            )
        try:
            self.job = str(values["job"])
            self.subjob = str(values["subjob"])
            self.secret = str(values["secret"])
            self.spool = str(values["spool"])
            self.job_dir = str(values["job_dir"])
        except KeyError as error:
            raise SettingsError("%s/subjob.json: %s is missing" % (folder, error)) from None
        self.binding = str(values.get("binding", "auto"))

    def inside(self, path: str, *folders: str) -> str:
        """`path`, if it is in that folder of the job's own, links and all. Raises ValueError (a sentence).

        Whatever the manager has read, written or run comes through here: it says which, not where.
        """
        top = os.path.realpath(os.path.join(self.job_dir, *folders))
        if not os.path.realpath(path).startswith(top + os.sep):
            raise ValueError("%s is not in the job's folder %s" % (path, top))
        return path


def read_subjob(folder: str) -> Subjob:
    folder = os.path.abspath(folder)
    try:
        return Subjob(folder, read_json(os.path.join(folder, "subjob.json")))
    except (OSError, ValueError) as error:
        raise SettingsError("cannot read the subjob's file: %s" % error) from None


def manager_url(spool: str) -> str:
    """The manager's present address. Raises OSError or ValueError while there is none."""
    url = read_json(os.path.join(spool, "manager.json")).get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError("%s/manager.json has no url" % spool)
    return url.rstrip("/")


def own_address(peer: str) -> str:
    """The address of this node that leads towards `peer` (nothing is sent)."""
    import socket  # what becomes the job's own script needs none

    try:
        family, kind, _proto, _name, target = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
