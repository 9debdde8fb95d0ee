"""A private PBS: what OpenPBS's and Torque's have in common.

Server and scheduler have a host of their own, and so has each node's mom: a network namespace with an address and a
host name. From binaries on PATH, as root: the daemons insist. `DIR/bin` has the commands, which run on the server's
host.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from clusters import netns
from clusters.configuration import read_settings, settings_file
from clusters.errors import ClusterError
from clusters.hosts import Hosts
from clusters.processes import end_processes
from clusters.programs import SEARCH_PATH, until

HEAD = "head"


def holder(program: str, beside: str) -> Path | None:
    """The folder above that of the first `program` on PATH that has `beside` in it: both kinds have a pbs_server."""
    for folder in filter(None, SEARCH_PATH.split(":")):
        found = shutil.which(program, path=folder)
        if found and (above := Path(found).resolve().parent.parent) and (above / beside).exists():
            return above
    return None


class Pbs(ABC):
    """The cluster in a folder."""

    batch: ClassVar[str]
    title: ClassVar[str]
    server: ClassVar[str]
    """The process name of its server."""
    sign: ClassVar[str]
    """What the other kind does not have beside its pbs_server."""
    commands: ClassVar[tuple[str, ...]]
    more_users: ClassVar[str] = ""
    """Lines behind those of /etc/passwd on the hosts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # ---- in what they differ

    @abstractmethod
    def prepare(self, host: str) -> None:
        """Lay out what a host's daemons read, once. Raises ClusterError."""

    @abstractmethod
    def start_head(self) -> None:
        """Start what is missing of server and scheduler, until they answer, and tell a new server what it is to be."""

    @abstractmethod
    def answering(self) -> int:
        """Nodes that take jobs."""

    @abstractmethod
    def environment(self, host: str) -> dict[str, str]:
        """In which daemons and commands of a host run, beside PATH."""

    def under(self, command: str) -> str:
        """What stands before one of the commands, with a space behind it."""
        return ""

    # ---- what is the same

    @classmethod
    def prefix(cls) -> Path:
        """Where it is installed. Raises ClusterError (69) where it is not."""
        folder = holder("pbs_server", cls.sign)
        if folder is None:
            what = f"{cls.title} is not installed: pbs_server of its own is not on PATH"
            raise ClusterError(f"{what}; build it, and put its sbin on PATH", code=69)
        return folder

    @property
    def settings(self) -> dict[str, Any]:
        return read_settings(self.directory)

    @property
    def hosts(self) -> Hosts:
        settings = self.settings
        names = {f"n{i}": i for i in range(1, settings["nodes"] + 1)} | {HEAD: settings["nodes"] + 1}
        return Hosts(self.directory, settings["network"], names)

    def home(self, host: str) -> Path:
        """What a host's daemons keep."""
        return self.directory / "hosts.d" / host / "home"

    def up(self, args: argparse.Namespace) -> None:
        wanted = {"batch": self.batch, "nodes": args.nodes, "cpus": args.cpus}
        self.prefix()
        if reason := netns.impossible():
            raise ClusterError(reason)
        self._check_folder()
        if args.nodes >= netns.MOST_HOSTS:
            raise ClusterError(f"--nodes goes from 1 to {netns.MOST_HOSTS - 1} here", code=2)
        settings = self.settings
        if settings and self.hosts.pid(HEAD) is not None:
            if {key: settings.get(key) for key in wanted} != wanted:
                text = f"{self.directory} holds a running cluster of another shape; take it down first"
                raise ClusterError(text, code=2)
        else:
            self.down()
            settings = {**wanted, "network": netns.make(args.nodes + 1, str(self.directory)), "profile": "netns"}
            settings["controller_address"] = netns.address(settings["network"], netns.MACHINE)
            settings_file(self.directory).write_text(json.dumps(settings) + "\n")
        for name in ("log", "bin"):
            (self.directory / name).mkdir(exist_ok=True)
        self.hosts.start()
        for host in self.hosts.names:
            self._mount_users(host)
        self.prepare(HEAD)
        self.start_head()
        for number in range(1, settings["nodes"] + 1):
            self.prepare(f"n{number}")
            self.start(f"n{number}", "pbs_mom")
        until(
            f"not all {settings['nodes']} nodes came up",
            lambda: self.answering() == settings["nodes"],
            60 + settings["nodes"],
            self.directory,
            "commands",
        )
        self.write_commands(self.prefix() / "bin", self.commands)

    def down(self) -> None:
        if self.settings:
            self.hosts.stop()
        end_processes(self.directory)
        if (network := self.settings.get("network")) is not None:
            netns.remove(network)
        for name in ("hosts.d", "bin", "net", "home"):
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def status(self) -> dict[str, Any]:
        settings, hosts = self.settings, self.hosts
        alive = {name: pid for name in hosts.names if (pid := hosts.pid(name)) is not None}
        answering = self.answering() if HEAD in alive else 0
        return {
            "directory": str(self.directory),
            "bin": str(self.directory / "bin"),
            "up": answering == settings["nodes"] and len(alive) == len(hosts.names),
            "nodes_responding": answering,
            "daemons": alive,
            **settings,
        }

    def describe(self) -> str:
        settings = self.settings
        network = netns.address(settings["network"], 0)
        return (
            f"{self.title}, {settings['nodes']} nodes of {settings['cpus']} CPUs, network {network}/24, "
            f"this machine {settings['controller_address']}"
        )

    def _check_folder(self) -> None:
        for one in (self.directory, *self.directory.parents):
            mode = one.stat().st_mode if one.exists() else 0o755
            if not mode & 0o001:
                raise ClusterError(f"{self.title} has parts that run as other users, which cannot get through {one}", 2)
            if mode & 0o022:
                text = f"{self.title} trusts no folder below {one}, where others may write; take another"
                raise ClusterError(text, code=2)

    def _mount_users(self, host: str) -> None:
        """The machine's, but for root's home: every job waits for what a login shell finds there."""
        (home := self.directory / "home").mkdir(mode=0o700, exist_ok=True)
        lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines() if line.count(":") == 6]
        users = [":".join([*one[:5], str(home) if one[2] == "0" else one[5], one[6]]) for one in lines]
        (file := self.home(host).parent / "passwd").parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(users) + "\n" + self.more_users)
        self.mount(host, file, "/etc/passwd")

    def mount(self, host: str, what: Path, where: str) -> None:
        """So that it is seen there on this host alone; nothing happens where it has been done."""
        script = 'grep -qF " $1 " /proc/self/mountinfo || mount --bind "$0" "$1"'
        done = self.hosts.run(host, "sh", "-c", script, str(what), where, environment=self.full_environment(host))
        if done.returncode:
            raise ClusterError(f"{where} of {host} could not be mounted: {last_line(done.stdout)}")

    def full_environment(self, host: str) -> dict[str, str]:
        return {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": "/root", **self.environment(host)}

    def command(self, *argv: str, text: str = "") -> str:
        """What a command says on the server's host, "" where it fails."""
        program = str(self.prefix() / "bin" / argv[0])
        done = self.hosts.run(HEAD, program, *argv[1:], environment=self.full_environment(HEAD), text=text)
        return done.stdout if done.returncode == 0 else ""

    def runs(self, host: str, daemon: str) -> bool:
        """Whether a process of that name lives there."""
        return self.hosts.run(host, "pgrep", "-x", daemon, environment=self.full_environment(host)).returncode == 0

    def start(self, host: str, daemon: str, *options: str, folder: Path | None = None) -> None:
        """A daemon that goes into the background by itself; nothing happens where it lives."""
        if self.runs(host, daemon) or self.runs(host, f"{daemon}.bin"):
            return
        program = str((folder or self.prefix() / "sbin") / daemon)
        done = self.hosts.run(host, program, *options, environment=self.full_environment(host), timeout=120)
        if done.returncode:
            said = " ".join(done.stdout.split())[-300:] or "it said nothing"
            raise ClusterError(f"{daemon} did not start on {host}: {said}")

    def write_commands(self, folder: Path, names: tuple[str, ...]) -> None:
        """The commands as anything on this machine may call them: each on the server's host, in the caller's folder."""
        words = " ".join(self.hosts.enter(HEAD))
        settings = " ".join(f"{name}={value}" for name, value in self.environment(HEAD).items())
        for name in names:
            if (folder / name).exists():
                file = self.directory / "bin" / name
                enter = 'sh -c \'cd "$0" 2>/dev/null || cd /; exec "$@"\' "$PWD"'
                program = f"{self.under(name)}{folder / name}"
                file.write_text(f'#!/bin/sh\nexec {words} env {settings} {enter} {program} "$@"\n')
                file.chmod(0o755)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" *")]
    return lines[-1] if lines else "it said nothing"


def job_environment(folder: Path) -> str:
    """What moms give to jobs, as lines of a file: PATH, and the time zone of the user that brings the cluster up."""
    return f"PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin\nTZ={os.environ.get('TZ', 'UTC0')}\n"
