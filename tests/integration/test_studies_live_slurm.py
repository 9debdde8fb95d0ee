"""`ejb sim live` on a real Slurm: jobs that sleep, or run by srun or EJB, beside their simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = pytest.mark.slurm

# Submission, run time, processors, walltime, in seconds. The second fills the cluster, the third slips past the fourth.
LOG = ((0, 4, 30, 60), (0, 3, 32, 60), (1, 2, 2, 60), (2, 1, 16, 60))


def write(path: Path, rows: tuple[tuple[int, int, int, int], ...], processors: int = 32) -> Path:
    lines = [f"; MaxProcs: {processors}"]
    for n, (submit, run, width, wall) in enumerate(rows, 1):
        lines.append(f"{n} {submit} -1 {run} {width} -1 -1 {width} {wall} -1 1 -1 -1 -1 -1 -1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def live(cluster: SlurmCluster, folder: Path, *words: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "ejbd.cli.main", "sim", "live", str(folder / "log.swf"), "--scale", "1"]
    argv += ["--cluster", str(cluster.directory), "--json", "-", "--patience", "200", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.nightly("the next one plays the same on the same; unit/test_studies_live.py the rest")
def test_a_log_is_played_on_a_real_slurm_beside_its_simulation(slurm: SlurmCluster, tmp_path: Path) -> None:
    write(tmp_path / "log.swf", LOG)
    told = live(slurm, tmp_path, "--plot", str(tmp_path / "plot"))
    assert (told["policy"], told["jobs"], told["procs"]) == ("easy", 4, 32)
    assert told["overheads"]["arrival_s"] > 0 and told["overheads"]["handover_s"] > 0
    first, second, third, fourth = (job["live"] for job in told["each"])
    assert first[0] < first[1] <= second[0] < second[1] <= fourth[0]
    assert third[1] - third[0] >= 2
    costs = told["overheads"]
    assert costs["pace"] > 0 and told["parameters"]["results_checked"]  # of those that srun started
    for job, (_, run, _, _) in zip(told["each"], LOG, strict=True):
        assert job["live"][1] - job["live"][0] >= run
        meant = run * costs["pace"] + costs["begin_s"] if job["elastic"] else run
        assert job["simulated"][1] - job["simulated"][0] == pytest.approx(meant, abs=0.01)
    assert (tmp_path / "plot.png").stat().st_size > 1000 and (tmp_path / "plot.svg").stat().st_size > 1000
    assert not slurm.run("squeue", "--noheader").strip()


def the_second_starts_early(told: Any, folder: Path) -> None:
    """Of a play of two wide jobs and a small one under EJB, whose daemon has its state in `folder`."""
    assert (told["elastic"]["jobs"], told["non_elastic"]["jobs"]) == (2, 1)
    first, second, _ = told["each"]
    assert second["live"][0] < first["live"][1]
    assert second["simulated"][0] < first["simulated"][1]
    costs = told["overheads"]
    # Slurm cuts a start to whole seconds, so that a quick one may take none.
    assert costs["start_up_s"] >= 0 and costs["pace"] > 0 and costs["elastic_arrival_s"] > costs["arrival_s"]
    assert (folder / "state" / "ejbd.sqlite").is_file()


def test_wide_jobs_of_a_log_are_elastic_under_a_real_ejb(tmp_path: Path) -> None:
    """The second of 4 processors finds 2 free, and starts on them before the first, of 6, has ended."""
    if reason := missing_slurm():
        pytest.skip(reason)
    write(tmp_path / "log.swf", ((0, 12, 6, 60), (3, 4, 4, 60), (4, 1, 1, 60)), 8)
    folder = tmp_path / "kept"
    words = ("--policy", "ejb", "--min-procs", "4", "--lambda", "2", "--dir", str(folder))
    with shared_cluster(2, 4) as small:
        told = live(small, tmp_path, *words)
        the_second_starts_early(told, folder)
        assert not small.run("squeue", "--noheader").strip()
