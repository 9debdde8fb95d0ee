"""Real ones for tests: brought up by scripts/cluster where their binaries are on PATH, taken down afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clusters import netns
from clusters.errors import ClusterError
from clusters.main import PBS
from clusters.pbs import HEAD, Pbs
from clusters.torque import Torque
from tests.integration.slurm_clusters import SCRIPT

REAL = {f"{batch}-real": batch for batch in PBS}
"""What a parameter of a test is called, and what is behind it."""


def missing(batch: str) -> str:
    """Why no such PBS can be brought up here; "" where it can. Torque is tested with Maui."""
    try:
        PBS[batch].prefix()
    except ClusterError as error:
        return str(error)
    if batch == Torque.batch and not Torque.maui():
        return "Maui is not installed: maui is not on PATH; build it for Torque, and put its sbin on PATH"
    return netns.impossible()


@dataclass(frozen=True, slots=True)
class Listed:
    """A job as the server lists it, and what is asked of it in tests. `status`: none before its end."""

    id: str
    name: str
    state: str
    live: bool
    status: int | None
    error_path: str


@dataclass(frozen=True, slots=True)
class PbsCluster:
    """A running cluster: nodes n1 … nN of `cpus` processors, queue `batch`, where waiting jobs have planned starts."""

    directory: Path
    nodes: int
    cpus: int
    dialect: str

    @property
    def maui(self) -> bool:
        return self.dialect == Torque.batch

    @property
    def cluster(self) -> Pbs:
        return PBS[self.dialect](self.directory)

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def path(self) -> str:
        return f"{self.bin}:/usr/local/bin:/usr/bin:/bin"

    @property
    def machine(self) -> str:
        """The address at which nodes reach processes of this machine."""
        return str(self.cluster.settings["controller_address"])

    def call(
        self, *argv: str, stdin: str = "", cwd: Path | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / argv[0]), *argv[1:]],
            env={**os.environ, "PATH": self.path, "TZ": "UTC0", "LC_ALL": "C"},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def run(self, *argv: str, stdin: str = "", cwd: Path | None = None) -> str:
        done = self.call(*argv, stdin=stdin, cwd=cwd)
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}"
        return done.stdout

    def listed(self) -> list[Listed]:
        """All jobs that the server remembers."""
        found = []
        if self.dialect == Torque.batch:
            for job in ElementTree.fromstring(self.run("qstat", "-x") or "<Data/>"):
                text = {tag: job.findtext(tag) or "" for tag in ("Job_Id", "Job_Name", "job_state", "exit_status")}
                status = int(text["exit_status"]) if text["exit_status"] else None
                state = text["job_state"]
                errors = job.findtext("Error_Path") or ""
                found.append(Listed(text["Job_Id"], text["Job_Name"], state, state != "C", status, errors))
            return found
        for id, job in json.loads(self.run("qstat", "-x", "-f", "-F", "json")).get("Jobs", {}).items():
            state, errors = job["job_state"], job.get("Error_Path", "")
            found.append(Listed(id, job["Job_Name"], state, state not in "FX", job.get("Exit_status"), errors))
        return found

    def node_states(self) -> list[str]:
        """Of all nodes, in the words of `pbsnodes`."""
        if self.dialect == Torque.batch:
            return [node.findtext("state") or "" for node in ElementTree.fromstring(self.run("pbsnodes", "-x"))]
        nodes = json.loads(self.run("pbsnodes", "-a", "-F", "json"))["nodes"]
        return [node["state"] for node in nodes.values()]

    def empty(self) -> None:
        """Every job ended, every processor free."""
        force = ["-p"] if self.dialect == Torque.batch else ["-W", "force"]
        deadline = time.monotonic() + 120
        first = True
        while True:
            if ids := [job.id for job in self.listed() if job.live]:
                # A deletion by force tells no mom: it is for what does not end otherwise.
                late = time.monotonic() > deadline - 60
                if first or late:
                    self.call("qdel", *(force if late or not self.maui else []), *ids)
                first = False
            if not ids and all(state == "free" for state in self.node_states()):
                return
            assert time.monotonic() < deadline, f"the jobs of a test did not end: {ids}"
            time.sleep(0.5)

    def on(self, host: str, *argv: str) -> subprocess.CompletedProcess[str]:
        words = [*self.cluster.hosts.enter(host), *argv]
        return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)

    def _kill_on(self, host: str, name: str) -> None:
        pids = self.on(host, "pgrep", "-x", name).stdout.split()
        assert pids, f"no {name} runs on {host}"
        assert self.on(host, "kill", "-KILL", *pids).returncode == 0
        deadline = time.monotonic() + 30
        while self.on(host, "pgrep", "-x", name).stdout:  # who is to start it again looks whether it lives
            assert time.monotonic() < deadline, f"{name} of {host} does not end"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to the server, by its pid on its host; jobs live on."""
        self._kill_on(HEAD, self.cluster.server)

    def start(self) -> None:
        """What is missing."""
        _cluster("up", self.directory, f"--batch={self.dialect}", f"--nodes={self.nodes}", f"--cpus={self.cpus}")

    def kill_mom(self, node: str) -> None:
        """SIGKILL to the mom of a node; the processes of its jobs live."""
        self._kill_on(node, "pbs_mom")

    def start_mom(self, node: str) -> None:
        self.cluster.start(node, "pbs_mom")

    def kill_maui(self) -> None:
        self._kill_on(HEAD, "maui")

    def shorten(self, id: str, walltime_s: int) -> None:
        """As an operator may, on a running job. Torque's client may hang once that is done."""
        try:
            self.call("qalter", "-l", f"walltime={walltime_s}", id, timeout_s=5)
        except subprocess.TimeoutExpired:
            assert self.maui

    def reserve(self, start_s: float, hosts: list[str]) -> str:
        """For maintenance, for an hour; its name."""
        start_s = max(start_s, time.time() + 2)
        if self.maui:
            when = time.strftime("%H:%M:%S_%m/%d/%y", time.localtime(start_s))
            said = self.run("setres", "-s", when, "-d", "1:00:00", "|".join(f"^{host}$" for host in hosts))
            time.sleep(max(0.0, min(5.0, start_s + 1 - time.time())))
            return next(word.strip("'") for word in said.split() if "SYSTEM" in word)
        when, end = (time.strftime("%Y%m%d%H%M.%S", time.localtime(at)) for at in (start_s, start_s + 3600))
        name = self.run("pbs_rsub", "-R", when, "-E", end, "--hosts", *hosts).split()[0]
        time.sleep(max(0.0, min(5.0, start_s + 1 - time.time())))  # one that is to begin now has begun
        return name

    def take_back(self, reservation: str) -> None:
        self.run("releaseres" if self.maui else "pbs_rdel", reservation)


@contextmanager
def pbs_cluster(batch: str, nodes: int, cpus: int) -> Iterator[PbsCluster]:
    """Up for the length of a `with`."""
    directory = Path(tempfile.mkdtemp(prefix=f"ejb-{batch}-", dir="/var/lib"))  # its daemons trust no folder in /tmp
    directory.chmod(0o755)  # the server's database runs as a user of its own
    try:
        _cluster("up", directory, f"--batch={batch}", f"--nodes={nodes}", f"--cpus={cpus}")
        yield PbsCluster(directory, nodes, cpus, batch)
    finally:
        _cluster("down", directory)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def real_ones(nodes: int, cpus: int) -> Iterator[Callable[[str], PbsCluster]]:
    """Clusters by the word that parameters have for them (REAL), each brought up once; skips where it cannot be had."""
    with ExitStack() as stack:
        clusters: dict[str, PbsCluster] = {}

        def cluster(word: str) -> PbsCluster:
            if word not in clusters:
                if reason := missing(REAL[word]):
                    pytest.skip(reason)
                clusters[word] = stack.enter_context(pbs_cluster(REAL[word], nodes, cpus))
            return clusters[word]

        yield cluster


def _cluster(command: str, directory: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), command, str(directory), *options],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"cluster {command} ended with {done.returncode}: {done.stderr.strip()}"
