"""A real OpenPBS for tests: brought up by scripts/cluster where its binaries are on PATH, taken down afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters import netns, openpbs
from clusters.configuration import read_settings
from clusters.errors import ClusterError
from tests.integration.slurm_clusters import SCRIPT


def missing_openpbs() -> str:
    """Why no OpenPBS can be brought up here; "" where it can."""
    try:
        openpbs.prefix()
    except ClusterError as error:
        return str(error)
    return netns.impossible()


@dataclass(frozen=True, slots=True)
class PbsCluster:
    """A running cluster: nodes n1 … nN of `cpus` processors, queue `batch`, strict ordering."""

    directory: Path
    nodes: int
    cpus: int
    dialect: str = "openpbs"
    maui: bool = False

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def path(self) -> str:
        return f"{self.bin}:/usr/local/bin:/usr/bin:/bin"

    @property
    def machine(self) -> str:
        """The address at which nodes reach processes of this machine."""
        return str(json.loads((self.directory / "cluster.json").read_text())["controller_address"])

    def run(self, *argv: str, stdin: str = "", cwd: Path | None = None, timeout_s: float = 60) -> str:
        done = subprocess.run(
            [str(self.bin / argv[0]), *argv[1:]],
            env={**os.environ, "PATH": self.path, "TZ": "UTC0", "LC_ALL": "C"},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}"
        return done.stdout

    def jobs(self) -> dict[str, dict[str, object]]:
        """Those that have not ended."""
        listed = json.loads(self.run("qstat", "-f", "-F", "json")).get("Jobs", {})
        return {id: job for id, job in listed.items() if job["job_state"] not in ("F", "X")}

    def empty(self) -> None:
        """Every job ended, every processor free."""
        deadline = time.monotonic() + 120
        while True:
            if ids := list(self.jobs()):
                subprocess.run(
                    [str(self.bin / "qdel"), "-W", "force", *ids], capture_output=True, timeout=60, check=False
                )
            nodes = json.loads(self.run("pbsnodes", "-a", "-F", "json"))["nodes"].values()
            if not ids and all(node["state"] == "free" for node in nodes):
                return
            assert time.monotonic() < deadline, f"the jobs of a test did not end: {ids}"
            time.sleep(0.5)

    def kill(self) -> None:
        """SIGKILL to the server, by its pid on its host; jobs live on."""
        hosts = openpbs.hosts_of(self.directory, read_settings(self.directory))
        argv = [*hosts.enter(openpbs.HEAD), "pgrep", "-x", "pbs_server.bin"]
        pids = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()
        subprocess.run([*hosts.enter(openpbs.HEAD), "kill", "-KILL", *pids], timeout=60, check=True)

    def start(self) -> None:
        """What is missing."""
        _cluster("up", self.directory, "--batch=openpbs", f"--nodes={self.nodes}", f"--cpus={self.cpus}")

    def reserve(self, start_s: float, hosts: list[str]) -> str:
        """For maintenance, for an hour; its name."""
        start_s = max(start_s, time.time() + 2)
        when, end = (time.strftime("%Y%m%d%H%M.%S", time.localtime(at)) for at in (start_s, start_s + 3600))
        name = self.run("pbs_rsub", "-R", when, "-E", end, "--hosts", *hosts).split()[0]
        time.sleep(max(0.0, min(5.0, start_s + 1 - time.time())))  # one that is to begin now has begun
        return name


@contextmanager
def pbs_cluster(nodes: int, cpus: int) -> Iterator[PbsCluster]:
    """Up for the length of a `with`."""
    directory = Path(tempfile.mkdtemp(prefix="ejb-openpbs-", dir="/var/lib"))  # its daemons trust no folder in /tmp
    directory.chmod(0o755)  # the server's database runs as a user of its own
    try:
        _cluster("up", directory, "--batch=openpbs", f"--nodes={nodes}", f"--cpus={cpus}")
        yield PbsCluster(directory, nodes, cpus)
    finally:
        _cluster("down", directory)
        shutil.rmtree(directory, ignore_errors=True)


def _cluster(command: str, directory: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), command, str(directory), *options],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"cluster {command} ended with {done.returncode}: {done.stderr.strip()}"
