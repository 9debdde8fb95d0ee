"""What a cluster is like: its settings, its ports, its folders and what Slurm reads of them."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import string
from pathlib import Path
from typing import Any

from clusters import cgroups, netns
from clusters.errors import ClusterError
from clusters.programs import program

TEMPLATES = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
PROFILES = ("fast", "fail", "easy", "acct", "multiuser", "netns", "cgroup")
SCHEDULER = "bf_interval=1,bf_resolution=1,bf_window=1440,sched_interval=1,sched_min_interval=0,permit_job_expansion"

Settings = dict[str, Any]


def free_base_port(nodes: int, seed: str) -> int:
    """A base port below the ephemeral range: its block (controller, accounting, one a node) is free now."""
    needed = [0, 1, 2, *range(100, 100 + nodes)]
    span = (len(needed) // 100 + 2) * 100
    bases = list(range(10000, 32000 - span, span))
    first = sum(seed.encode()) % len(bases)
    for base in bases[first:] + bases[:first]:
        if all(port_is_free(base + offset) for offset in needed):
            return base
    raise ClusterError(f"no free block of {nodes + 3} ports between 10000 and 32000")


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def user_name() -> str:
    """The user that really runs this, whatever LOGNAME says."""
    return pwd.getpwuid(os.getuid()).pw_name


def settings_file(directory: Path) -> Path:
    return directory / "cluster.json"


def read_settings(directory: Path) -> Settings:
    try:
        settings: Settings = json.loads(settings_file(directory).read_text())
        return settings
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ClusterError(f"{settings_file(directory)} cannot be read ({error})") from error


def write_configuration(directory: Path, settings: Settings) -> None:
    multiuser, base = settings["profile"] == "multiuser", settings["base_port"]
    me = user_name()
    accounting = "AccountingStorageType=accounting_storage/none"
    if settings["profile"] == "acct":
        accounting = "\n".join(
            (
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={base + 2}",
                f"AccountingStoragePass={directory}/munge/munge.socket",
            )
        )
    quick = settings["profile"] == "fail"
    whole = f"PartitionName=whole Nodes=n[1-{settings['nodes']}] MaxTime=INFINITE DefaultTime=10 State=UP"
    whole += " OverSubscribe=EXCLUSIVE"
    host, network = socket.gethostname().split(".")[0], settings.get("network")
    values = {
        "dir": directory,
        "host": host,
        "controller_address": settings.get("controller_address", "127.0.0.1"),
        "node_host": host,
        "node_address": "127.0.0.1",
        "controller_port": base,
        "slurmd_port": base + 1,
        "dbd_port": base + 2,
        "first_port": base + 100,
        "last_port": base + 99 + settings["nodes"],
        "nodes": settings["nodes"],
        "cpus": settings["cpus"],
        "slurm_user": "slurm" if multiuser else me,
        "slurmd_user": "root" if multiuser else me,
        "storage_user": me,
        "scheduler_parameters": SCHEDULER + (",bf_job_part_count_reserve=1" if settings["profile"] == "easy" else ""),
        "slurmd_timeout": 2 if quick else 10,
        "message_timeout": 2 if quick else 5,
        "accounting": accounting,
        "exclusive_partition": whole if settings["exclusive"] else "",
        **cgroups.plugins(settings["profile"] == "cgroup"),
        **_of_nodes(settings),
    }
    if network is not None:
        every = f"[1-{settings['nodes']}]"
        values |= {"node_host": f"n{every}", "node_address": netns.address(network, 1).removesuffix("1") + every}
    names = ["slurm.conf", "slurmdbd.conf"] if settings["profile"] == "acct" else ["slurm.conf"]
    for name in names:
        text = string.Template((TEMPLATES / f"{name}.in").read_text()).substitute(values)
        path = directory / name
        more = directory / "more.conf"
        if name == "slurm.conf" and more.exists():
            text += more.read_text()
        path.write_text(text)
        path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)
    if settings.get("gpus"):
        for number in range(settings["gpus"]):  # Slurm wants a device file for each
            (directory / f"gpu{number}").touch()
        files = f"{directory}/gpu[0-{settings['gpus'] - 1}]"
        (directory / "gres.conf").write_text(f"NodeName=n[1-{settings['nodes']}] Name=gpu File={files}\n")
    if text := cgroups.configuration(settings["profile"] == "cgroup"):
        (directory / "cgroup.conf").write_text(text)


def _of_nodes(settings: Settings) -> Settings:
    """What nodes have beside processors. A processor's share of memory is what a job gets that does not ask."""
    memory, gpus, features = settings.get("memory", 0), settings.get("gpus", 0), settings.get("features", "")
    counted = f"SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU={max(1, memory // settings['cpus'])}"
    return {
        "memory": memory or 1000,
        "select_parameters": counted if memory else "SelectTypeParameters=CR_Core",
        "gres_types": "GresTypes=gpu" if gpus else "",
        "node_words": (f" Gres=gpu:{gpus}" if gpus else "") + (f" Feature={features}" if features else ""),
    }


def prepare(directory: Path, settings: Settings) -> None:
    for name in ("munge", "state", "spool", "run", "log"):
        (directory / name).mkdir(mode=0o755, exist_ok=True)
        (directory / name).chmod(0o755)
    key = directory / "munge" / "munge.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
    write_configuration(directory, settings)
    if settings["profile"] == "multiuser":
        directory.chmod(0o755)
        for name in ("state", "run", "log"):
            shutil.chown(directory / name, "slurm", "slurm")


def check_possible(directory: Path, settings: Settings) -> None:
    for name in ("munged", "slurmctld", "slurmd", "sinfo", "scancel"):
        program(name)
    if settings["profile"] == "acct":
        for name in ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb-admin", "sacctmgr"):
            program(name)
    if settings["profile"] == "multiuser":
        if os.getuid() != 0:
            raise ClusterError("the profile multiuser needs root, since its slurmd runs jobs as other users", code=2)
        for folder in [directory, *directory.parents]:
            if folder.exists() and not folder.stat().st_mode & 0o001:
                raise ClusterError(
                    f"the profile multiuser needs a folder that every user can reach, but {folder} is closed to others",
                    code=2,
                )
    if settings["profile"] == "netns":
        if settings["nodes"] > netns.MOST_HOSTS:
            raise ClusterError(f"the profile netns has {netns.MOST_HOSTS} nodes at most", code=2)
        if reason := netns.impossible():
            raise ClusterError(f"the profile netns cannot be used: {reason}", code=2)
    if settings["profile"] == "cgroup" and (reason := cgroups.impossible(settings["nodes"], settings["cpus"])):
        raise ClusterError(f"the profile cgroup cannot be used: {reason}", code=2)
    if len(os.fsencode(str(directory))) > 80:
        raise ClusterError(
            f"{directory} is too long for the sockets in it (at most 80 bytes); choose a shorter path", code=2
        )
    if any(not (c.isalnum() or c in "/._-+") for c in str(directory)):
        raise ClusterError(f"{directory} holds characters that slurm.conf cannot; use letters, digits and ._-+", code=2)
