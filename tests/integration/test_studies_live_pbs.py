"""`ejb sim live --batch` on a PBS, as on a Slurm: jobs that sleep, or run by pbsdsh or EJB, beside the simulation.

On those that are on PATH, and on the fake: a play of each kind in one of the dialects (EJB_TEST_PBS=all: in both).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import until
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones
from tests.integration.test_studies_live_slurm import LOG, the_second_starts_early, write


@pytest.fixture(params=["openpbs", "torque-maui", *REAL], scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[PbsSite | PbsCluster]:
    if request.param in REAL:
        with real_ones(8, 4) as cluster:
            yield cluster(request.param)
        return
    dialect, _, maui = request.param.partition("-")
    with pbs_site(dialect, maui=bool(maui)) as site:
        yield site


def live(site: PbsSite | PbsCluster, folder: Path, *words: str, code: int = 0) -> Any:
    where = site.folder if isinstance(site, PbsSite) else site.directory
    argv = [sys.executable, "-m", "ejbd.cli.main", "sim", "live", str(folder / "log.swf"), "--scale", "1"]
    argv += ["--batch", site.dialect, "--cluster", str(where), "--json", "-", "--patience", "200", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, env={**os.environ, "TZ": "UTC0"})
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def nothing_left(site: PbsSite | PbsCluster) -> None:
    def left() -> bool:
        return bool(site.numbers()) if isinstance(site, PbsSite) else any(job.live for job in site.listed())

    until(lambda: not left(), "jobs of the play are left", 60)


def in_turn(site: PbsSite | PbsCluster, dialect: str) -> None:
    """A play takes half a minute of real time."""
    if isinstance(site, PbsSite) and site.dialect != dialect and os.environ.get("EJB_TEST_PBS") != "all":
        pytest.skip(f"on the fake in the dialect of {dialect}: EJB_TEST_PBS=all plays it in both")


@pytest.mark.nightly("test_studies_live_slurm.py plays one; test_batch_contract.py has what a play asks of a PBS")
def test_a_log_is_played_on_a_pbs_beside_its_simulation(site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    in_turn(site, "openpbs")
    write(tmp_path / "log.swf", LOG)
    told = live(site, tmp_path)
    assert (told["policy"], told["jobs"], told["procs"]) == ("easy", 4, 32)
    given, costs = told["parameters"], told["overheads"]
    assert (given["batch"], given["walltime_quantum_s"]) == ("PBS", 1.0)
    assert given["node_procs"] == (1 if site.dialect == "openpbs" else 4)
    assert costs["arrival_s"] > 0 and costs["handover_s"] > 0
    first, second, third, fourth = (job["live"] for job in told["each"])
    assert first[0] < first[1] <= second[0] < second[1] <= fourth[0]
    assert third[1] - third[0] >= 2
    assert costs["pace"] > 0 and given["results_checked"]  # of those that pbsdsh started
    for job, (_, run, _, _) in zip(told["each"], LOG, strict=True):
        assert job["live"][1] - job["live"][0] >= run
        meant = run * costs["pace"] + costs["begin_s"] if job["elastic"] else run
        assert job["simulated"][1] - job["simulated"][0] == pytest.approx(meant, abs=0.01)
    nothing_left(site)


@pytest.mark.nightly("test_studies_live_slurm.py has them on a Slurm; test_journey_pbs.py has an EJB on a PBS")
def test_wide_jobs_of_a_log_are_elastic_under_a_real_ejb(site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    """The second of 16 processors finds 8 free, and starts on them before the first, of 24, has ended."""
    in_turn(site, "torque")
    write(tmp_path / "log.swf", ((0, 15, 24, 60), (3, 4, 16, 60), (4, 1, 1, 60)))
    folder = tmp_path / "kept"
    told = live(site, tmp_path, "--policy", "ejb", "--min-procs", "16", "--lambda", "2", "--dir", str(folder))
    the_second_starts_early(told, folder)
    nothing_left(site)


@pytest.mark.sampled(2)
def test_what_is_no_cluster_of_that_kind_is_refused(site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    write(tmp_path / "log.swf", LOG)
    assert "--batch is slurm, openpbs, torque" in live(site, tmp_path, "--batch", "nothing", code=2)
    said = live(site, tmp_path, "--batch", "slurm", code=2)
    assert "is no folder of a running scripts/cluster with --batch slurm" in " ".join(said.split())


def test_a_server_that_is_away_is_told_in_a_sentence(tmp_path: Path) -> None:
    write(tmp_path / "log.swf", LOG)
    with pbs_site("torque") as site:
        site.kill()
        said = live(site, tmp_path, code=7)
    assert "pbsnodes: " in said and "cannot connect to server" in " ".join(said.split())
