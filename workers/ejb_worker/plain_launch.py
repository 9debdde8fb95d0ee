"""A launch that EJB cannot hold, as the batch system's own: on the nodes that the job has where its script runs.

In J0 it is what it would be under sbatch. A smaller subjob has fewer nodes and processors than the job asked for: there
its ranks share what is there, and what names other nodes or more of them is left out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from .launch_options import arity
from .shimfolder import without_shims

FILE = "allocation.json"
"""In the folder of the shims: the variables by which the batch system tells the lead of its allocation."""
_OF_THE_ALLOCATION = (
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_JOB_CPUS_PER_NODE",
)
_OF_THE_SHAPE = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
)
_COUNTS = {
    "-N": "nodes",
    "--nodes": "nodes",
    "--ntasks-per-node": "each",
    "--tasks-per-node": "each",
    "-n": "size",
    "--ntasks": "size",
}
_NAMED = ("-w", "--nodelist")
_DROPPED = ("-x", "--exclude", "-r", "--relative", "--jobid", "--exclusive", "--exact", "--mem", "--mem-per-cpu")


def allocation_of(environ: Mapping[str, str]) -> Dict[str, str]:
    """What the lead writes down for its shims; empty where there is no Slurm."""
    found = {name: environ[name] for name in _OF_THE_ALLOCATION if name in environ}
    return found if "SLURM_JOB_ID" in found else {}


def read_allocation(environ: Mapping[str, str]) -> Dict[str, str]:
    """Of the calling script's job; empty where there is none."""
    try:
        with open(os.path.join(environ.get("EJB_SHIMS", ""), FILE), encoding="utf-8") as file:
            return {str(name): str(value) for name, value in json.load(file).items()}
    except (OSError, ValueError):
        return {}


def find_launcher(name: str, environ: Mapping[str, str]) -> Optional[str]:
    """The launcher behind the shims on PATH; None where there is none that could launch here."""
    import shutil  # few launches come here

    if name == "srun" and not read_allocation(environ):
        return None
    return shutil.which(name, path=without_shims(dict(environ)).get("PATH", os.defpath))


def launch_plainly(name: str, program: str, words: Sequence[str], stdin: Optional[Dict[str, Any]]) -> NoReturn:
    """Become the launcher itself. `stdin`: what was read of standard input by now. Raises OSError."""
    environ = dict(os.environ)
    allocation = read_allocation(environ)
    env = without_shims(environ)
    whole = allocation.get("SLURM_JOB_ID") in (None, env.get("SLURM_JOB_ID"))
    if not allocation:  # an mpirun that took these for an allocation's would look for Slurm's srun
        env = {one: value for one, value in env.items() if not one.startswith("SLURM_")}
    elif not whole:
        words = fitted(words, env, allocation) if name == "srun" else words
        for one in _OF_THE_SHAPE:
            env.pop(one, None)
        env.update(allocation, SLURM_TASKS_PER_NODE=allocation.get("SLURM_JOB_CPUS_PER_NODE", "1"))
    if name == "srun":
        words = ["--overlap", *words]  # the workers hold all processors
    elif allocation:
        env["SLURM_OVERLAP"] = "1"  # of an mpirun that starts its own helpers by srun
    if stdin is not None:
        _give_back(stdin)
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)  # Python has them otherwise
    os.execve(program, [name, *words], env)


def fitted(words: Sequence[str], env: Mapping[str, str], allocation: Mapping[str, str]) -> List[str]:
    """The words of an srun for an allocation that is smaller than the job: as many ranks, where they have room."""
    there = _expanded(allocation.get("SLURM_JOB_NODELIST", ""), env)
    kept: List[str] = ["--overcommit", "--mem=0"]
    counts: Dict[str, str] = {"each": "1"}
    left = list(words)
    while left and left[0].startswith("-") and left[0] not in ("-", "--"):
        option, value, taken = _option(left)
        count = _COUNTS.get(option)
        if count is not None:
            counts[count] = value
        elif option in _NAMED:
            kept += left[:taken] if set(_expanded(value, env)) <= set(there) else []
        elif option not in _DROPPED:
            kept += left[:taken]
        left = left[taken:]
    size = counts.get("size", "")
    if not size and counts.get("nodes", "").isdigit() and counts["each"].isdigit():
        size = str(int(counts["nodes"]) * int(counts["each"]))
    size = size or env.get("SLURM_NTASKS") or env.get("SLURM_JOB_NUM_NODES", "1")
    return [*kept, "--ntasks=%s" % size, *left]


def _option(words: List[str]) -> Tuple[str, str, int]:
    """The first option, its value, and how many words both take."""
    word = words[0]
    name, equals, value = word.partition("=")
    if word.startswith("--") and equals:
        return name, value, 1
    if not word.startswith("--") and len(word) > 2 and arity("srun", word[:2]):
        return word[:2], word[2:], 1
    taken = 1 + arity("srun", word)
    return word, words[1] if taken > 1 and len(words) > 1 else "", taken


def _expanded(nodes: str, env: Mapping[str, str]) -> List[str]:
    """The names in a list of nodes, as Slurm reads it."""
    if "[" not in nodes:
        return [name for name in nodes.split(",") if name]
    done = subprocess.run(
        ["scontrol", "show", "hostnames", nodes], env=dict(env), stdout=subprocess.PIPE, universal_newlines=True
    )
    return done.stdout.split()


def _give_back(stdin: Dict[str, Any]) -> None:
    """Standard input as it was before it was kept: what was read of it, and then what is left in it (`rest`)."""
    kept = os.open(str(stdin["path"]), os.O_RDONLY)
    os.lseek(kept, int(stdin["offset"]), os.SEEK_SET)
    if not stdin.get("rest"):
        os.dup2(kept, 0)
        return
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        try:
            for source in (kept, 0):
                data = os.read(source, 1 << 16)
                while data:
                    os.write(write, data)
                    data = os.read(source, 1 << 16)
        finally:
            os._exit(0)
    os.close(write)
    os.dup2(read, 0)
