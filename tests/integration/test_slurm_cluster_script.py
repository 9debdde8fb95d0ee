"""scripts/cluster: several side by side, repeatable, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.integration.slurm_clusters import SCRIPT, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(missing_slurm()), reason=missing_slurm())]


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def processes(directory: Path) -> list[str]:
    """Live processes whose environment names this cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{directory}/slurm.conf".encode() in environment and state not in "ZX":
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def test_two_side_by_side_one_of_them_mended() -> None:
    with slurm_cluster(2, 2) as one, slurm_cluster(3, 1, "--profile=easy") as two:
        again = cluster("up", str(one.directory), "--nodes=2", "--cpus=2")
        assert again.returncode == 0 and f"export SLURM_CONF={one.conf}" in again.stdout
        other = cluster("up", str(one.directory), "--nodes=3", "--cpus=2")
        assert other.returncode == 2 and "take it down first" in other.stderr
        assert "bf_job_part_count_reserve=1" in two.conf.read_text()
        assert two.run("sinfo", "--noheader", "--format=%D %C").split() == ["3", "0/3/0/3"]
        kept = one.sbatch("--time=5", script="sleep 300")
        one.until(lambda: one.states()[kept] == "RUNNING", "the job did not start")
        os.kill(one.pids()["n2"], signal.SIGKILL)
        assert cluster("status", str(one.directory)).returncode == 3
        one.up_again()
        assert cluster("status", str(one.directory)).returncode == 0
        assert one.states()[kept] == "RUNNING"


def test_down_leaves_no_process_of_daemons_steps_or_jobs() -> None:
    with slurm_cluster(2, 2) as site:
        # A step, a process that left its session, and one that ignores TERM.
        id = site.sbatch("--time=5", "--ntasks=4", script="setsid sleep 300 & trap '' TERM; srun sleep 300; sleep 300")
        site.until(
            lambda: len([p for p in processes(site.directory) if "sleep 300" in p]) >= 5, "the job did not start"
        )
        assert site.states()[id] == "RUNNING"
        assert cluster("down", str(site.directory)).returncode == 0
        deadline = time.monotonic() + 10
        while processes(site.directory) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes(site.directory) == []
        assert cluster("down", str(site.directory)).returncode == 0
        assert cluster("status", str(site.directory), "--json").returncode == 3


def test_a_shell_that_only_exported_the_variable_is_spared() -> None:
    with slurm_cluster(1, 1) as site:
        bystander = subprocess.Popen(["sleep", "300"], env={**os.environ, "SLURM_CONF": str(site.conf)})
        try:
            assert cluster("down", str(site.directory)).returncode == 0
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()


def test_wrong_use_is_told_in_one_sentence() -> None:
    with tempfile.TemporaryDirectory(prefix="ejb-slurm-") as folder:
        for arguments in (["up", folder, "--nodes=0"], ["up", f"{folder}/a b"], ["up", f"{folder}/{'x' * 90}"]):
            done = cluster(*arguments)
            assert done.returncode == 2 and done.stderr.startswith("cluster: ") and done.stderr.count("\n") == 1
        assert cluster("down", f"{folder}/none").returncode == 0
        assert cluster("status", f"{folder}/none").returncode == 3
