"""The variables by which sbatch takes options (SBATCH_PARTITION=long): over the script's lines, below the typed ones.

Those of sbatch 22.05 that say something of a job. It is imported only where there is such a variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_OPTIONS = {
    **{f"SBATCH_{name}": name.lower().replace("_", "-") for name in (
        "ACCOUNT", "ACCTG_FREQ", "CONSTRAINT", "CORE_SPEC", "DELAY_BOOT", "DISTRIBUTION", "ERROR", "EXPORT", "GPU_BIND",
        "GPU_FREQ", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GRES", "GRES_FLAGS", "HINT", "INPUT", "JOB_NAME",
        "MEM_BIND", "MEM_PER_CPU", "MEM_PER_GPU", "NETWORK", "OPEN_MODE", "OUTPUT", "PARTITION", "POWER", "PROFILE",
        "QOS", "RESERVATION", "SIGNAL", "THREAD_SPEC", "THREADS_PER_CORE", "WCKEY",
    )},
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_TIMELIMIT": "time",
}  # fmt: skip
_FLAGS = {
    "SBATCH_CONTIGUOUS": "contiguous",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_SPREAD_JOB": "spread-job",
    "SBATCH_USE_MIN_NODES": "use-min-nodes",
}


def options(environment: Mapping[str, str]) -> Iterator[str]:
    """The options that the variables stand for, a word each."""
    for variable, name in _OPTIONS.items():
        if variable in environment:
            yield f"--{name}={environment[variable]}"
    for variable, name in _FLAGS.items():
        if variable in environment:
            yield f"--{name}"
    if "SBATCH_EXCLUSIVE" in environment:
        value = environment["SBATCH_EXCLUSIVE"]
        yield f"--exclusive={value}" if value in ("user", "mcs") else "--exclusive"
