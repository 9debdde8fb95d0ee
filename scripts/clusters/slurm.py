"""A private Slurm: up, down, and how it is."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path

from clusters import cgroups, netns
from clusters.configuration import (
    Settings,
    check_possible,
    free_base_port,
    prepare,
    read_settings,
    settings_file,
    user_name,
)
from clusters.database import start_database
from clusters.errors import ClusterError
from clusters.processes import daemons, end_processes
from clusters.programs import program, run, start, until

PLAIN = {"memory": 0, "gpus": 0, "features": ""}  # of a cluster that was made without these words


def responding(directory: Path) -> int:
    """Number of nodes with which the controller has spoken."""
    listing = run(directory, "sinfo", "-h", "-N", "-p", "batch", "-o", "%T").split()
    return sum(1 for state in listing if not state.endswith("*") and not state.startswith(("down", "unk", "future")))


def up(directory: Path, args: argparse.Namespace) -> None:
    wanted = {"nodes": args.nodes, "cpus": args.cpus, "profile": args.profile, "exclusive": args.exclusive}
    wanted |= {"memory": args.memory, "gpus": args.gpus, "features": args.features}
    settings = read_settings(directory)
    alive = daemons(directory) if settings else {}
    if alive:
        present = {key: value for key, value in {**PLAIN, **settings}.items() if key in wanted}
        if present != wanted:
            raise ClusterError(
                f"{directory} holds a running cluster of another shape ({describe(settings)}); take it down first",
                code=2,
            )
    check_possible(directory, wanted)
    directory.mkdir(parents=True, exist_ok=True)
    with open(Path(tempfile.gettempdir()) / f"ejb-cluster-ports.{os.getuid()}.lock", "w") as lock:
        # From the search for free ports until they are taken: only one cluster at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not alive:
            remove_network(directory)
            clear_state(directory)
            settings = {**wanted, "base_port": args.base_port or free_base_port(args.nodes, str(directory))}
            if args.profile == "netns":
                settings["network"] = netns.make(args.nodes, str(directory))
                settings["controller_address"] = netns.address(settings["network"], netns.MACHINE)
            settings_file(directory).write_text(json.dumps(settings) + "\n")
        prepare(directory, settings)
        prepare_network(directory, settings)
        start_daemons(directory, settings, alive)


def prepare_network(directory: Path, settings: Settings) -> None:
    if (network := settings.get("network")) is not None:
        netns.mend(network, settings["nodes"])
        (directory / "net").mkdir(exist_ok=True)
        names = {f"n{i}": i for i in range(1, settings["nodes"] + 1)}
        netns.write_hosts(directory / "net" / "hosts", network, names)


def remove_network(directory: Path) -> None:
    """Also what a cluster left here that was not taken down."""
    if (network := read_settings(directory).get("network")) is not None:
        netns.remove(network)


def start_daemons(directory: Path, settings: Settings, alive: dict[str, int]) -> None:
    conf, munge = str(directory / "slurm.conf"), directory / "munge"
    nodes = [f"n{i}" for i in range(1, settings["nodes"] + 1)]
    if "munged" not in alive:
        (munge / "munge.socket").unlink(missing_ok=True)
        # --force: munged would otherwise refuse a socket below a folder that is closed to other users.
        files = [f"--{name}-file={munge}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        start(directory, "munged", "--force", f"--socket={munge}/munge.socket", *files)
    if settings["profile"] == "acct":
        start_database(directory, alive)
        if "slurmdbd" not in alive:
            start(directory, "slurmdbd")
        until(
            "slurmdbd did not answer",
            lambda: "Cluster" in run(directory, "sacctmgr", "show", "cluster"),
            30,
            directory,
            "slurmdbd",
        )
    if "slurmctld" not in alive:
        start(directory, "slurmctld", "-i", "-f", conf)
    for number, node in enumerate(nodes, 1):
        if node in alive:
            continue
        words = ["slurmd", "-N", node, "-f", conf]
        if (network := settings.get("network")) is not None:
            words = netns.command(network, number, node, directory / "net" / "hosts", [program("slurmd"), *words[1:]])
        start(directory, *words)
    wait_s = 20 + 0.1 * len(nodes)
    until(
        f"not all {len(nodes)} nodes came up",
        lambda: responding(directory) == len(nodes),
        wait_s,
        directory,
        "slurmctld",
    )


def clear_state(directory: Path) -> None:
    """What a cluster that is down leaves behind, but for its logs: jobs of yesterday must not start again."""
    for name in ("state", "spool", "run", "db"):
        shutil.rmtree(directory / name, ignore_errors=True)


def down(directory: Path) -> None:
    settings = read_settings(directory)
    if not settings and not directory.exists():
        return
    if "slurmctld" in daemons(directory):
        run(directory, "scancel", "--user", user_name(), timeout=5)
    end_processes(directory)
    remove_network(directory)
    if settings.get("profile") == "cgroup":
        cgroups.remove(settings["nodes"])
    clear_state(directory)


def describe(settings: Settings) -> str:
    whole = ", partition whole" if settings["exclusive"] else ""
    if (network := settings.get("network")) is not None:
        whole += f", network {netns.address(network, 0)}/24, this machine {settings['controller_address']}"
    return f"{settings['nodes']} nodes of {settings['cpus']} CPUs, profile {settings['profile']}{whole}"


def status(directory: Path) -> Settings:
    settings = read_settings(directory)
    alive = daemons(directory) if settings else {}
    slurmds = {name: pid for name, pid in alive.items() if name.startswith("n") and name[1:].isdigit()}
    nodes = settings.get("nodes", 0)
    answering = responding(directory) if "slurmctld" in alive else 0
    return {
        "directory": str(directory),
        "conf": str(directory / "slurm.conf"),
        "up": bool(settings) and {"munged", "slurmctld"} <= set(alive) and len(slurmds) == nodes == answering,
        "nodes_responding": answering,
        "daemons": {name: pid for name, pid in alive.items() if name not in slurmds},
        "slurmd": slurmds,
        **settings,
    }
