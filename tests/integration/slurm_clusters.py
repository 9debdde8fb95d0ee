"""Real Slurm clusters for tests: brought up by scripts/cluster, each in a folder of its own, taken down afterwards."""

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

from ejbd.batch.process import plain_environment
from ejbd.batch.slurm import SlurmBatch

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"
_SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "sinfo")
_NEEDED_ACCT = (*_NEEDED, "slurmdbd", "mariadbd", "mariadb-install-db")


def missing_slurm(accounting: bool = False) -> str:
    """Why no cluster (with an accounting database) can be brought up here; "" where it can."""
    missing = [
        name for name in (_NEEDED_ACCT if accounting else _NEEDED) if shutil.which(name, path=_SEARCH_PATH) is None
    ]
    return f"not installed: {', '.join(missing)}" if missing else ""


EPILOG = "Epilog=$dir/epilog\n"
"""In a cluster's configuration: :meth:`SlurmCluster.epilog_takes` has to be called before the first job."""


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A running cluster: nodes n1 … nN of `cpus` processors; partition `batch`, and `whole` where `exclusive`."""

    directory: Path
    nodes: int
    cpus: int

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def controller_address(self) -> str:
        """Where the nodes reach processes of this machine."""
        settings = json.loads((self.directory / "cluster.json").read_text())
        return str(settings.get("controller_address", "127.0.0.1"))

    @property
    def environment(self) -> dict[str, str]:
        return plain_environment() | {"SLURM_CONF": str(self.conf)}

    def run(self, *argv: str, stdin: str = "", timeout_s: float = 60, check: bool = True) -> str:
        """stdout of a Slurm command on this cluster."""
        done = subprocess.run(
            argv, env=self.environment, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def batch(self, **options: object) -> SlurmBatch:
        return SlurmBatch(conf=self.conf, **options)  # type: ignore[arg-type]

    def sbatch(self, *options: str, script: str) -> str:
        """Submit somebody else's job; its id."""
        argv = ("sbatch", "--parsable", "--no-requeue", "--output=/dev/null", *options)
        return self.run(*argv, stdin=f"#!/bin/sh\n{script}\n").strip()

    def states(self) -> dict[str, str]:
        """Job id -> state, of all jobs that the controller remembers."""
        rows = self.run("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines()
        return dict(line.split() for line in rows)

    def empty(self, timeout_s: float = 120) -> None:
        """Cancel every job and wait until no processor is held any more, and each can be had."""
        live = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
        ids = self.run("squeue", "--noheader", f"--states={live}", "--format=%A").split()
        if ids:
            self.run("scancel", *sorted(set(ids)), check=False)
        idle = f"0/{self.nodes * self.cpus}/0/{self.nodes * self.cpus}"
        self.until(
            lambda: (
                not self.run("squeue", "--noheader", f"--states={live}", "--format=%i").strip()
                and self.run("sinfo", "--noheader", "--partition=batch", "--format=%C").split() == [idle]
            ),
            "the jobs of a test did not end",
            timeout_s,
        )

    def release_unlaunched(self) -> int:
        """Let go what Slurm holds since it could not launch it (its slurmd was gone); how many that were."""
        rows = self.run("squeue", "--noheader", "--states=PENDING", "--format=%i|%r", check=False).splitlines()
        held = [row.partition("|")[0] for row in rows if row.endswith("|launch failed requeued held")]
        if held:
            self.run("scontrol", "release", *held, check=False)
        return len(held)

    def epilog_takes(self, seconds: float) -> None:
        """From now on jobs complete for so long; of a cluster `more` of which is :data:`EPILOG`."""
        (self.directory / "epilog_s").write_text(f"{seconds:g}\n")
        if not (self.directory / "epilog").exists():
            (self.directory / "epilog").write_text('#!/bin/sh\nread s <"${0%/*}/epilog_s" && exec sleep "$s"\n')
            (self.directory / "epilog").chmod(0o755)

    def until(self, ready: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline:
                queue = self.run("squeue", "--states=all", "--Format=JobArrayID,State,Reason,NodeList", check=False)
                raise AssertionError(f"{what} within {timeout_s:g} s\n{queue}")
            time.sleep(0.1)

    @property
    def job_state(self) -> Path:
        """What a restarted controller knows of jobs."""
        return self.directory / "state" / "job_state"

    def saved(self) -> Path:
        """Wait until the controller has written down what it knows now (every 5 s, where jobs have changed)."""
        began = time.time()
        id = self.run("squeue", "--noheader", "--format=%A").split()[0]
        self.run("scontrol", "update", f"JobId={id}", "Comment=saved")
        self.until(
            lambda: self.job_state.exists() and self.job_state.stat().st_mtime > began,
            "the controller did not save its state",
            30,
        )
        return self.job_state

    def up_again(self, *options: str) -> None:
        """Start what a test has killed."""
        _cluster("up", self.directory, f"--nodes={self.nodes}", f"--cpus={self.cpus}", *options)

    def pids(self) -> dict[str, int]:
        """Daemon (slurmctld, munged) or node name -> pid."""
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "status", str(self.directory), "--json"],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        found = json.loads(done.stdout)
        return {**found["daemons"], **found["slurmd"]}


@contextmanager
def slurm_cluster(nodes: int = 8, cpus: int = 4, *options: str, more: str = "") -> Iterator[SlurmCluster]:
    """A cluster of its own for the length of a `with`. `more` is put behind its configuration, `$dir` its folder.

    Sockets need short paths, hence not pytest's tmp_path.
    """
    directory = Path(tempfile.mkdtemp(prefix="ejb-slurm-"))
    try:
        if "--profile=multiuser" in options:
            directory.chmod(0o711)
        if more:
            (directory / "more.conf").write_text(more.replace("$dir", str(directory)))
        _cluster("up", directory, f"--nodes={nodes}", f"--cpus={cpus}", *options)
        yield SlurmCluster(directory, nodes, cpus)
    finally:
        _cluster("down", directory)
        shutil.rmtree(directory, ignore_errors=True)


_Shape = tuple[int, int, tuple[str, ...], str]
_kept: dict[_Shape, tuple[SlurmCluster, ExitStack]] = {}
KEPT = 3
"""Clusters without a test that a process of pytest keeps: an idle one costs some memory and a hundredth of a core."""


@contextmanager
def shared_cluster(nodes: int, cpus: int, *options: str, more: str = "") -> Iterator[SlurmCluster]:
    """:func:`slurm_cluster` for tests that leave it as they find it, but for jobs, whichever file they stand in.

    Given back it is emptied and looked at. One that is not well is taken down, and the next test has a new one.
    """
    shape = (nodes, cpus, options, more)
    kept = _kept.pop(shape, None)
    if kept is None:
        stack = ExitStack()
        kept = stack.enter_context(slurm_cluster(nodes, cpus, *options, more=more)), stack
    cluster, stack = kept
    try:
        yield cluster
        cluster.empty(60)
    except BaseException:
        stack.close()
        raise
    _kept[shape] = kept
    if len(_kept) > KEPT:
        take_down(*list(_kept)[:-KEPT])


def take_down(*shapes: _Shape) -> None:
    """Take down what is kept of these shapes; of all of them at the end of a run."""
    for shape in shapes or list(_kept):
        _kept.pop(shape)[1].close()


def _cluster(command: str, directory: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), command, str(directory), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"scripts/cluster {command} ended with {done.returncode}: {done.stderr.strip()}")
