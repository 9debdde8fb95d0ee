"""Hosts that live as long as a cluster does: each has a process of its own that holds its namespaces.

In its process namespace this is the first process, so that everything on the host ends with it, jobs that have called
setsid as well. Standard library only; needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from clusters import netns
from clusters.errors import ClusterError
from clusters.processes import MARK

# The first process takes in every orphan.
_FIRST = """
import os, time
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.2)
"""


class Hosts:
    """The hosts of the cluster in a folder, by their names; `names`: name -> its number in the network."""

    def __init__(self, directory: Path, network: int, names: dict[str, int]) -> None:
        self.directory = directory
        self.network = network
        self.names = names
        self._pids = directory / "net" / "pids"

    def start(self) -> None:
        """Bring up those that are missing."""
        self._pids.mkdir(parents=True, exist_ok=True)
        netns.mend(self.network, len(self.names))
        hosts_file = self.directory / "net" / "hosts"
        netns.write_hosts(hosts_file, self.network, self.names)
        for name, number in self.names.items():
            if self.pid(name) is None:
                self._hold(name, number, hosts_file)

    def _hold(self, name: str, number: int, hosts_file: Path) -> None:
        own = [*_UNSHARE, sys.executable, "-I", "-S", "-c", _FIRST]
        words = netns.command(self.network, number, name, hosts_file, own)
        with open(self.directory / "log" / "start.log", "ab") as log:
            outer = subprocess.Popen(
                words,
                env={**os.environ, MARK: str(self.directory), "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while True:
            children = _children(outer.pid)
            if children and _is_first(children[0]):
                break
            if outer.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"the host {name} did not come up; see {self.directory / 'log' / 'start.log'}")
            time.sleep(0.02)
        (self._pids / name).write_text(f"{children[0]}\n")

    def pid(self, name: str) -> int | None:
        """Of the process that holds the host, while it lives."""
        try:
            pid = int((self._pids / name).read_text())
        except (OSError, ValueError):
            return None
        return pid if _is_first(pid) else None

    def stop(self) -> None:
        """End all hosts, with everything that runs there."""
        for name in self.names:
            if (pid := self.pid(name)) is not None:
                os.kill(pid, signal.SIGKILL)

    def enter(self, name: str) -> list[str]:
        """The words before a command that is to run on a host."""
        pid = self.pid(name)
        if pid is None:
            raise ClusterError(f"the host {name} is not up")
        return ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--pid"]

    def run(
        self, name: str, *argv: str, environment: dict[str, str], text: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end. Its output goes through files: what it leaves behind may keep them."""
        with open(self.directory / "log" / "commands.log", "a+") as log:
            start = log.seek(0, os.SEEK_END)
            done = subprocess.run(
                [*self.enter(name), *argv],
                env=environment,
                input=text,
                stdout=log,
                stderr=log,
                cwd="/",
                text=True,
                timeout=timeout,
                check=False,
            )
            log.seek(start)
            return subprocess.CompletedProcess(argv, done.returncode, log.read(), "")


_UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_first(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0] == os.fsencode(sys.executable) and _FIRST.encode() in words
