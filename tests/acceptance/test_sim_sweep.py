"""A sweep of the simulator as batch jobs: an array of a real Slurm, and jobs of EJB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ejbd.sim import sweep as sweeps
from ejbd.sim.compiled import NUMBA_PLAIN
from ejbd.sim.models import Model, generate
from ejbd.sim.swf import write_swf
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import missing_slurm, shared_cluster

PATIENCE_S = 120


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    write_swf(path, generate(Model.UNIFORM, jobs=60, processors=16, seed=3, load=0.9))
    return path


def sweep(log: Path, out: Path, environment: Mapping[str, str], *more: str) -> str:
    words = [sys.executable, "-m", "ejbd.cli.main", "sim", "sweep", str(log), "--out", str(out)]
    words += ["--vary", "omax=2,4", "--vary", "lambda=10,60", *more]
    env = {**os.environ, **environment, NUMBA_PLAIN: "1"}  # compiling would take longer than these simulations
    done = subprocess.run(words, env=env, cwd=out.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def same_as_here(log: Path, out: Path, environment: Mapping[str, str]) -> None:
    """The results that the jobs left are those of a sweep on this machine, and are all that it needs."""
    until(lambda: len(sweeps.Results(out).read()) == 4, "not every part has come in", PATIENCE_S)
    parts = sorted(path.name for path in out.glob("*.jsonl"))
    assert parts == ["results-1-of-2.jsonl", "results-2-of-2.jsonl"]
    gathered = json.loads(sweep(log, out, environment, "--json"))
    here = json.loads(sweep(log, out.parent / "here", environment, "--json"))
    assert len(gathered) == 4
    for row in (*gathered, *here):
        del row["elapsed_s"], row["kernels_s"]
    assert gathered == here
    assert (out / "results-1-of-1.jsonl").read_text() == "", "nothing was left to simulate"


@pytest.mark.nightly("unit/test_sim_cli.py submits one as an array; test_passed_through_slurm.py runs an array")
@pytest.mark.slurm
def test_as_an_array_on_slurm(log: Path, tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(2, 2) as cluster:
        said = sweep(log, tmp_path / "out", cluster.environment, "--submit", "sbatch", "--parts", "2")
        assert said.startswith("Submitted batch job")
        same_as_here(log, tmp_path / "out", cluster.environment)
        cluster.empty()


@pytest.mark.nightly("unit/test_sim_cli.py submits a sweep; unit/test_sim_sweep.py has two at one time on one folder")
def test_through_ejb(log: Path, tmp_path: Path) -> None:
    site = LocalSite(tmp_path, 2, 2)
    daemon = Daemon(tmp_path, site.toml)
    environment = {"EJB_SOCKET": str(daemon.state / "ejbd.sock")}
    try:
        daemon.start()
        said = sweep(log, tmp_path / "out", environment, "--submit", "ejb", "--parts", "2")
        assert len(said.split()) >= 2, said
        same_as_here(log, tmp_path / "out", environment)
        for job in daemon.client.get("/v1/jobs").json()["jobs"]:
            assert daemon.wait(job["id"])["state"] == "completed"
    finally:
        daemon.stop()
        site.close()
