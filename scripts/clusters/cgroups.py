"""Control groups of a cluster's jobs: the plugins that use them, what they need of this machine, and their end."""

from __future__ import annotations

import os
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "memory", "freezer")  # of version 1; version 2 freezes by itself


def plugins(used: bool) -> dict[str, str]:
    """For slurm.conf: with control groups, as sites have them, or without any."""
    if not used:
        return {"tracking": "linuxproc", "task_plugins": "task/none", "gathering": "none"}
    return {"tracking": "cgroup", "task_plugins": "task/cgroup,task/affinity", "gathering": "cgroup"}


def configuration(used: bool) -> str:
    """What cgroup.conf holds; "" where Slurm finds out all by itself."""
    second = (MOUNT / "cgroup.controllers").exists()
    if not used:
        # Without a cgroup file system Slurm cannot find out the version by itself.
        return "" if second else "CgroupPlugin=cgroup/v1\n"
    lines = ["ConstrainCores=yes", "ConstrainRAMSpace=yes"]
    # Nothing here is a unit of systemd: its groups are made without asking for one.
    kind = ["CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes", "EnableControllers=yes"]
    return "\n".join([*(kind if second else ["CgroupPlugin=cgroup/v1"]), *lines]) + "\n"


def impossible(nodes: int, cpus: int) -> str:
    """Why jobs cannot have control groups here; "" where they can."""
    if os.getuid() != 0:
        return "it needs root, which alone makes control groups"
    if cpus > (os.cpu_count() or 1):
        return f"jobs are bound to real processors, and this machine has {os.cpu_count()} (--cpus)"
    if (MOUNT / "cgroup.controllers").exists():
        have = (MOUNT / "cgroup.controllers").read_text().split()
        missing = [name for name in CONTROLLERS[:2] if name not in have]
    else:
        missing = [name for name in CONTROLLERS if not os.access(MOUNT / name, os.W_OK)]
    if missing:
        return f"{MOUNT} has no {', '.join(missing)} that can be written"
    taken = [name for name in (f"slurm_n{i}" for i in range(1, nodes + 1)) if _jobs(MOUNT / CONTROLLERS[0] / name)]
    return f"another cluster has jobs in {MOUNT}/{CONTROLLERS[0]}/{taken[0]}" if taken else ""


def _jobs(folder: Path) -> bool:
    return any(folder.glob("uid_*/job_*"))


def remove(nodes: int) -> None:
    """The groups of nodes that are down, from the innermost out; one that still has a process stays."""
    for number in range(1, nodes + 1):
        for top in [*MOUNT.glob(f"*/slurm_n{number}"), *MOUNT.glob(f"*/n{number}_slurmstepd.scope")]:
            inner = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            for folder in [*inner, top]:
                try:
                    folder.rmdir()
                except OSError:
                    continue
