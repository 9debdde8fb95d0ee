"""A real Slurm, OpenPBS or Torque of many virtual nodes on this one machine, for trying things out and for the tests.

    scripts/cluster up DIR [--nodes 8 --cpus 4 --profile fast|fail|easy|acct|multiuser|netns|cgroup --exclusive]
                        [--memory MB --gpus N --features ib,fast]
    scripts/cluster up DIR --batch openpbs|torque [--nodes 8 --cpus 4]
    scripts/cluster status DIR [--json]
    scripts/cluster down DIR

Everything lives in DIR, runs as the user that calls it (root or not), and listens on loopback only. With the profile
netns (root only) each node has an address and a host name of its own. With the profile cgroup (root only) jobs are held
to their processors and their memory by control groups. Several clusters run side by side, one a folder. `up` may be
repeated: it starts what is missing. What DIR/more.conf says, where there is one, is put behind the configuration (an
Epilog, preemption, more partitions). Standard library only.

OpenPBS and Torque are taken from PATH (the `sbin` of where each was built; Maui with Torque where its `sbin` is on
PATH, too), need root, and have a host for the server and one for each node, as with the profile netns. Their commands
are in DIR/bin.
Exit codes: 0 done, 1 failed, 2 wrong use, 3 (status) not up, 69 Slurm (or OpenPBS, or Torque) is not installed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
from pathlib import Path

from clusters import netns
from clusters.configuration import PROFILES, read_settings
from clusters.errors import ClusterError
from clusters.openpbs import OpenPbs
from clusters.pbs import Pbs
from clusters.processes import end_processes
from clusters.slurm import describe, down, remove_network, status, up
from clusters.torque import Torque

PBS: dict[str, type[Pbs]] = {kind.batch: kind for kind in (OpenPbs, Torque)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="cluster", description="A real Slurm, OpenPBS or Torque of many virtual nodes on this one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {name: commands.add_parser(name) for name in ("up", "down", "status")}
    for sub in parsers.values():
        sub.add_argument("directory", type=Path, metavar="DIR", help="where everything of this cluster lives")
    parsers["up"].add_argument("--batch", choices=("slurm", *PBS), default="slurm")
    parsers["up"].add_argument("--nodes", type=int, default=8, help="virtual nodes (8)")
    parsers["up"].add_argument("--cpus", type=int, default=4, help="CPUs a node (4)")
    parsers["up"].add_argument("--profile", choices=PROFILES, default="fast")
    parsers["up"].add_argument(
        "--exclusive", action="store_true", help="a second partition, whole, that gives out whole nodes"
    )
    parsers["up"].add_argument(
        "--memory", type=int, default=0, metavar="MB", help="memory a node, given out as processors are (not counted)"
    )
    parsers["up"].add_argument(
        "--gpus", type=int, default=0, help="devices of the name gpu on each node (0); there is nothing behind them"
    )
    parsers["up"].add_argument(
        "--features", default="", metavar="WORDS", help="features of every node, with commas between"
    )
    parsers["up"].add_argument(
        "--base-port", type=int, default=0, help="first port (default: a free block is looked for)"
    )
    parsers["status"].add_argument("--json", action="store_true")
    args = parser.parse_args()
    directory = args.directory.expanduser().resolve()
    try:
        if args.command != "up" and not directory.is_dir():
            raise ClusterError(f"there is no cluster in {directory}", code=0 if args.command == "down" else 3)
        if args.command == "up" and not (1 <= args.nodes <= 2000 and 1 <= args.cpus <= 1024):
            raise ClusterError("--nodes goes from 1 to 2000, --cpus from 1 to 1024", code=2)
        return act(directory, args)
    except netns.NetworkError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.code


def give_up(directory: Path) -> None:
    """A cluster that came up by half is of no use."""
    end_processes(directory)
    remove_network(directory)


def act(directory: Path, args: argparse.Namespace) -> int:
    batch = args.batch if args.command == "up" else read_settings(directory).get("batch", "slurm")
    if batch in PBS:
        return act_pbs(PBS[batch](directory), args)
    if args.command == "status":
        found = status(directory)
        if args.json:
            print(json.dumps(found, indent=2))
        elif found["up"]:
            print(f"up: {describe(found)}\n  export SLURM_CONF={found['conf']}")
        else:
            names = " ".join(found["daemons"]) or "none"
            print(f"not up: {directory} ({found['nodes_responding']} nodes answer; daemons: {names})")
        return 0 if found["up"] else 3
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if args.command == "down":
            down(directory)
            print(f"down: {directory}")
            return 0
        try:
            up(directory, args)
        except ClusterError as error:
            if error.code == 1:
                give_up(directory)
            raise
        except netns.NetworkError as error:
            give_up(directory)
            raise ClusterError(str(error)) from error
        except subprocess.TimeoutExpired as error:
            give_up(directory)
            raise ClusterError(f"{error.cmd[0]} hung for {error.timeout:g} s; see {directory / 'log'}") from error
    print(f"up: {describe(read_settings(directory))}\nuse it with\n  export SLURM_CONF={directory}/slurm.conf")
    print(f"end it with\n  {sys.argv[0]} down {args.directory}")
    return 0


_FOR_SLURM = ("profile", "exclusive", "memory", "gpus", "features", "base_port")


def act_pbs(cluster: Pbs, args: argparse.Namespace) -> int:
    directory = cluster.directory
    if args.command == "status":
        found = cluster.status()
        if args.json:
            print(json.dumps(found, indent=2))
        elif found["up"]:
            print(f"up: {cluster.describe()}\n  export PATH={found['bin']}:$PATH")
        else:
            print(f"not up: {directory} ({found['nodes_responding']} nodes answer)")
        return 0 if found["up"] else 3
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if args.command == "down":
            cluster.down()
            print(f"down: {directory}")
            return 0
        if odd := [name for name in _FOR_SLURM if getattr(args, name) not in (0, "", False, "fast")]:
            raise ClusterError(f"--{odd[0].replace('_', '-')} is for Slurm", code=2)
        if (settings := cluster.settings) and settings.get("batch", "slurm") != cluster.batch:
            raise ClusterError(f"{directory} holds a cluster of another kind; take it down first", code=2)
        try:
            cluster.up(args)
        except (ClusterError, netns.NetworkError, subprocess.TimeoutExpired) as error:
            if getattr(error, "code", 1) == 1:
                cluster.down()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ClusterError(f"{error.cmd[-1]} hung for {error.timeout:g} s; see {directory / 'log'}") from error
            raise
    print(f"up: {cluster.describe()}\nuse it with\n  export PATH={directory}/bin:$PATH")
    print(f'or in ejbd.toml\n  batch = "pbs"\n  [pbs]\n  bin = "{directory}/bin"')
    print(f"end it with\n  {sys.argv[0]} down {args.directory}")
    return 0
