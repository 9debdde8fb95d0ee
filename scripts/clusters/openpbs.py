"""A private OpenPBS: server, scheduler and communication on a host of their own, and a mom on each node.

From binaries on PATH (pbs_server, in the `sbin` of where OpenPBS was installed), as root: its daemons insist. Each has
a network namespace with an address and a host name. `DIR/bin` has the commands, which run on the server's host.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

from clusters import netns
from clusters.configuration import read_settings, settings_file
from clusters.errors import ClusterError
from clusters.hosts import Hosts
from clusters.processes import end_processes
from clusters.programs import SEARCH_PATH, until

HEAD = "head"
COMMANDS = (
    *("qsub", "qstat", "qdel", "qalter", "qhold", "qrls", "qsig", "qmgr", "qrun", "qrerun"),
    *("pbsnodes", "pbs_rstat", "pbs_rsub", "pbs_rdel"),
)
_QUEUE = """\
create queue batch queue_type=execution,enabled=True,started=True
set server default_queue = batch
set server flatuid = True
set server acl_roots = root
set server query_other_jobs = True
set server job_history_enable = True
set server backfill_depth = 10
set server scheduler_iteration = 20
set server scheduling = True
"""
_SCHEDULER = {"strict_ordering": "true ALL", "backfill_prime": "false ALL", "preemptive_sched": "false ALL"}


def prefix() -> Path:
    """Where OpenPBS is installed. Raises ClusterError (69) where it is not."""
    found = shutil.which("pbs_server", path=SEARCH_PATH)
    folder = Path(found).resolve().parent.parent if found else None
    if folder is None or not (folder / "libexec" / "pbs_habitat").exists():
        text = "OpenPBS is not installed: pbs_server of its own is not on PATH; build it, and put its sbin on PATH"
        raise ClusterError(text, code=69)
    return folder


def up(directory: Path, args: argparse.Namespace) -> None:
    wanted = {"batch": "openpbs", "nodes": args.nodes, "cpus": args.cpus}
    settings = read_settings(directory)
    folder = prefix()
    if reason := netns.impossible():
        raise ClusterError(reason)
    _check_folder(directory)
    if args.nodes >= netns.MOST_HOSTS:
        raise ClusterError(f"--nodes goes from 1 to {netns.MOST_HOSTS - 1} here", code=2)
    if settings and hosts_of(directory, settings).pid(HEAD) is not None:
        if {key: settings.get(key) for key in wanted} != wanted:
            raise ClusterError(f"{directory} holds a running cluster of another shape; take it down first", code=2)
    else:
        down(directory)
        settings = {**wanted, "network": netns.make(args.nodes + 1, str(directory)), "profile": "netns"}
        settings["controller_address"] = netns.address(settings["network"], netns.MACHINE)
        settings_file(directory).write_text(json.dumps(settings) + "\n")
    for name in ("log", "bin"):
        (directory / name).mkdir(exist_ok=True)
    hosts = hosts_of(directory, settings)
    hosts.start()
    _head(directory, hosts, folder, settings)
    _nodes(directory, hosts, folder, settings)
    write_commands(directory, hosts, HEAD, folder / "bin", COMMANDS, {"PBS_CONF_FILE": str(_conf(directory, HEAD))})


def _check_folder(directory: Path) -> None:
    for one in (directory, *directory.parents):
        mode = one.stat().st_mode if one.exists() else 0o755
        if not mode & 0o001:
            raise ClusterError(f"the server's database runs as another user, who cannot get through {one}", code=2)
        if mode & 0o022:
            raise ClusterError(f"OpenPBS trusts no folder below {one}, where others may write; take another", code=2)


def hosts_of(directory: Path, settings: dict[str, Any]) -> Hosts:
    names = {f"n{i}": i for i in range(1, settings["nodes"] + 1)} | {HEAD: settings["nodes"] + 1}
    return Hosts(directory, settings["network"], names)


def down(directory: Path) -> None:
    if settings := read_settings(directory):
        hosts_of(directory, settings).stop()
    end_processes(directory)
    if (network := read_settings(directory).get("network")) is not None:
        netns.remove(network)
    for name in ("hosts.d", "bin", "net"):
        shutil.rmtree(directory / name, ignore_errors=True)


def status(directory: Path) -> dict[str, Any]:
    settings = read_settings(directory)
    hosts = hosts_of(directory, settings)
    alive = {name: pid for name in hosts.names if (pid := hosts.pid(name)) is not None}
    answering = _answering(directory) if HEAD in alive else 0
    return {
        "directory": str(directory),
        "bin": str(directory / "bin"),
        "conf": str(_conf(directory, HEAD)),
        "up": answering == settings["nodes"] and len(alive) == len(hosts.names),
        "nodes_responding": answering,
        "daemons": alive,
        **settings,
    }


def describe(settings: dict[str, Any]) -> str:
    network = netns.address(settings["network"], 0)
    return (
        f"OpenPBS, {settings['nodes']} nodes of {settings['cpus']} CPUs, network {network}/24, "
        f"this machine {settings['controller_address']}"
    )


def _answering(directory: Path) -> int:
    """Nodes that take jobs."""
    text = _command(directory, "pbsnodes", "-a", "-F", "json")
    try:
        nodes = json.loads(text).get("nodes", {})
    except ValueError:
        return 0
    return sum(node.get("state") in ("free", "job-busy", "job-exclusive") for node in nodes.values())


def _command(directory: Path, *argv: str, text: str = "") -> str:
    settings = read_settings(directory)
    environment = _environment(directory, HEAD)
    folder = prefix()
    done = hosts_of(directory, settings).run(
        HEAD, str(folder / "bin" / argv[0]), *argv[1:], environment=environment, text=text
    )
    return done.stdout if done.returncode == 0 else ""


def _conf(directory: Path, host: str) -> Path:
    return directory / "hosts.d" / host / "pbs.conf"


def _environment(directory: Path, host: str) -> dict[str, str]:
    return {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": "/root", "PBS_CONF_FILE": str(_conf(directory, host))}


def _write_conf(directory: Path, host: str, folder: Path) -> Path:
    """Its configuration; the folder of what it keeps."""
    home = _conf(directory, host).parent / "home"
    home.parent.mkdir(parents=True, exist_ok=True)
    serves = int(host == HEAD)
    lines = {
        "PBS_EXEC": folder,
        "PBS_HOME": home,
        "PBS_SERVER": HEAD,
        "PBS_START_SERVER": serves,
        "PBS_START_SCHED": serves,
        "PBS_START_COMM": serves,
        "PBS_START_MOM": 1 - serves,
        "PBS_SCP": "/bin/cp",
        "PBS_CORE_LIMIT": 0,
    }
    _conf(directory, host).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return home


def _head(directory: Path, hosts: Hosts, folder: Path, settings: dict[str, Any]) -> None:
    home = _write_conf(directory, HEAD, folder)
    environment = _environment(directory, HEAD)
    if not (home / "server_priv" / "db_user").exists():
        done = hosts.run(HEAD, str(folder / "libexec" / "pbs_habitat"), environment=environment, timeout=120)
        if done.returncode:
            raise ClusterError(f"pbs_habitat: {_last(done.stdout)}; see {directory / 'log' / 'commands.log'}")
        _set_scheduler(home / "sched_priv" / "sched_config")
    for daemon in ("pbs_comm", "pbs_sched", "pbs_server"):
        _start(directory, hosts, HEAD, folder, daemon)
    until("the server did not answer", lambda: bool(_command(directory, "qstat", "-Bf")), 60, directory, "commands")
    if "batch" not in _command(directory, "qstat", "-Q"):
        nodes = "".join(
            f"create node n{i} resources_available.ncpus={settings['cpus']}\n" for i in range(1, settings["nodes"] + 1)
        )
        _command(directory, "qmgr", text=_QUEUE + nodes)


def _set_scheduler(file: Path) -> None:
    """As sites set it that plan the starts of waiting jobs: without strict ordering nobody is protected."""
    kept = [line for line in file.read_text().splitlines() if line.partition(":")[0].strip() not in _SCHEDULER]
    file.write_text("\n".join([*kept, *(f"{name}: {value}" for name, value in _SCHEDULER.items())]) + "\n")


def _nodes(directory: Path, hosts: Hosts, folder: Path, settings: dict[str, Any]) -> None:
    for number in range(1, settings["nodes"] + 1):
        node = f"n{number}"
        home = _write_conf(directory, node, folder)
        if not (home / "mom_priv" / "config").exists():
            hosts.run(node, str(folder / "libexec" / "pbs_habitat"), environment=_environment(directory, node))
            (home / "mom_priv" / "config").write_text(f"$clienthost {HEAD}\n$usecp *:/ /\n$restrict_user False\n")
            path = f"PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin\nPBS_CONF_FILE={_conf(directory, node)}\n"
            (home / "pbs_environment").write_text(f"{path}TZ={os.environ.get('TZ', 'UTC0')}\n")
        _start(directory, hosts, node, folder, "pbs_mom")
    until(
        f"not all {settings['nodes']} nodes came up",
        lambda: _answering(directory) == settings["nodes"],
        60 + settings["nodes"],
        directory,
        "commands",
    )


def _start(directory: Path, hosts: Hosts, host: str, folder: Path, daemon: str) -> None:
    """A daemon that goes into the background by itself; nothing happens where it lives."""
    for name in (daemon, f"{daemon}.bin"):
        if hosts.run(host, "pgrep", "-x", name, environment=_environment(directory, host)).returncode == 0:
            return
    done = hosts.run(host, str(folder / "sbin" / daemon), environment=_environment(directory, host), timeout=120)
    if done.returncode:
        raise ClusterError(f"{daemon} did not start on {host}: {_last(done.stdout)}")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" *")]
    return lines[-1] if lines else "it said nothing"


def write_commands(
    directory: Path, hosts: Hosts, host: str, folder: Path, names: tuple[str, ...], environment: dict[str, str]
) -> None:
    """The commands as anything on this machine may call them: each runs on a host, in the caller's folder."""
    words = " ".join(hosts.enter(host))
    settings = " ".join(f"{name}={value}" for name, value in environment.items())
    for name in names:
        if (folder / name).exists():
            file = directory / "bin" / name
            enter = 'sh -c \'cd "$0" 2>/dev/null || cd /; exec "$@"\' "$PWD"'
            file.write_text(f'#!/bin/sh\nexec {words} env {settings} {enter} {folder / name} "$@"\n')
            file.chmod(0o755)
