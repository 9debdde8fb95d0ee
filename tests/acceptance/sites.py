"""The two batch systems that journeys run on, each with other people's jobs that an elastic job has to wait behind.

A *block* keeps J0 waiting; *fillers* are ended one by one to make room for growth. All of them end when they are told
to (a file appears), not after a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from ejbd.batch.base import tag_in
from ejbd.batch.local import LocalBatch
from ejbd.batch.local.client import Client
from tests.fakes.daemon import FAST, ROOT, Daemon, ordinary, until
from tests.fakes.me import ME
from tests.integration.background import Background, fill
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A row of the batch system's own listing, ended jobs included."""

    id: str
    name: str
    state: str
    live: bool
    status: int | None = None  # PBS: how it ended, in its own numbers


class Site(Protocol):
    """A batch system with a background. `toml` and `environment` are what a daemon needs to use it."""

    @property
    def toml(self) -> str: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def layout(self) -> Mapping[str, int]:
        """How a job of four ranks asks for its nodes."""

    def fill(self) -> None:
        """Start the background and wait until it runs."""

    def more(self) -> None:
        """End the next filler and wait until its processors are free."""

    def unblock(self) -> None:
        """End the block, so that J0 can start."""

    def jobs(self) -> list[BatchJob]:
        """All jobs that the batch system remembers."""

    def close(self) -> None:
        """Cancel every job and wait until none is left."""


@dataclass
class LocalSite:
    """The embedded cluster in `folder`/cluster, with a server of its own."""

    folder: Path
    nodes: int = 4
    cpus: int = 2
    block: int = 4
    fillers: Sequence[int] = (1, 2)
    settings: str = ""
    ended: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.folder / "cluster"

    @property
    def toml(self) -> str:
        shape = f'directory = "{self.directory}"\nnodes = {self.nodes}\nprocessors_per_node = {self.cpus}\n'
        top = f'batch = "local"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        return f"{top}{self.settings}{FAST}\n[local]\n{shape}"

    @property
    def batch(self) -> LocalBatch:
        return LocalBatch(self.directory, self.nodes, self.cpus)

    def start(self, name: str, processors: int, walltime_s: float = 3600) -> None:
        """Queue an ordinary job that ends when `end` is called."""
        script = f"until [ -e '{self.folder}/end-{name}' ]; do sleep 0.3; done\n"
        self.ids[name] = asyncio.run(self.batch.submit(ME, ordinary(name, processors, walltime_s, self.folder, script)))

    def state(self, name: str) -> str:
        return next((job.state for job in self.jobs() if job.id == self.ids[name]), "unknown")

    def end(self, name: str) -> None:
        (self.folder / f"end-{name}").touch()
        until(lambda: self.state(name) == "completed", f"{name} did not end")

    def fill(self) -> None:
        self.start("block", self.block, 600)
        for i, processors in enumerate(self.fillers):
            self.start(f"filler-{i}", processors)
        until(lambda: all(self.state(name) == "running" for name in self.ids), "the background did not start")

    def more(self) -> None:
        self.end(f"filler-{self.ended}")
        self.ended += 1

    def unblock(self) -> None:
        self.end("block")

    def jobs(self) -> list[BatchJob]:
        view = asyncio.run(self.batch.observe())
        return [BatchJob(job.id, job.name, job.state.value, not job.state.ended) for job in view.jobs]

    def kill_server(self) -> None:
        """SIGKILL to the cluster's server; its jobs are no children of it that would die."""
        client = Client(self.directory, self.nodes, self.cpus, timeout_s=10)
        pid = int(asyncio.run(client.call("hello"))["pid"])
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "the server lives")

    def close(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "ejbd.batch.local", "down", str(self.directory)],
            cwd=ROOT,
            check=True,
            timeout=180,
            capture_output=True,
        )


@dataclass
class SlurmSite:
    """A real Slurm of 4 x 2, shared by the tests of a module and emptied in between; `folder` is one test's."""

    cluster: SlurmCluster
    folder: Path
    path: str = ""  # where Slurm's commands are looked for first
    settings: str = ""
    slurm_settings: str = ""
    layout: Mapping[str, int] = field(default_factory=lambda: {"nodes": 2, "ntasks_per_node": 2})
    ended: int = 0
    background: Background | None = None
    block_minutes: int = 6  # after which the block is ended, and J0 starts
    shared: bool = True  # False: the cluster is taken down after the test, whatever its nodes' state

    @property
    def toml(self) -> str:
        top = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        return f"{top}{self.settings}{FAST}\n{self.slurm_settings}"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.cluster.conf), **({"PATH": self.path} if self.path else {})}

    def fill(self) -> None:
        self.background = fill(self.cluster, self.folder, free=1, block_nodes=2, block_minutes=self.block_minutes)

    def more(self) -> None:
        assert self.background is not None
        # The smallest first: the whole node stays for a later growth.
        self.background.end(self.background.fillers[-1 - self.ended])
        self.ended += 1

    def unblock(self) -> None:
        assert self.background is not None
        self.background.end("block")

    def jobs(self) -> list[BatchJob]:
        rows = self.cluster.run("squeue", "--noheader", "--states=all", "--format=%i|%T|%k|%j").splitlines()
        found = []
        for row in rows:
            id, state, comment, name = row.split("|", 3)
            name = tag_in(comment) or name  # to its user it goes by his own name
            live = state in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING")
            found.append(BatchJob(id, name, state, live))
        return found

    def close(self) -> None:
        if self.shared:
            self.cluster.empty()


@contextmanager
def small_file_system(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs of `size` (as mount takes it) at `folder`, which is made; the test is skipped where that cannot be."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "ejb-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)


@contextmanager
def daemon_on_slurm(folder: Path, nodes: int, toml: str) -> Iterator[tuple[SlurmCluster, Daemon]]:
    """A daemon with its state in `folder`, on a Slurm of so many nodes of one processor, without a background."""
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(nodes, 1) as cluster:
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{toml}'
        daemon = Daemon(folder, settings, {"SLURM_CONF": str(cluster.conf)})
        daemon.start()
        try:
            yield cluster, daemon
        finally:
            daemon.stop()
