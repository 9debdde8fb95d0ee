"""An unmodified MPI program through real DMTCP: started over-subscribed without mpiexec, grown, finalized."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ejbd.plugin import build
from tests.acceptance.journeys import each_tag_once, nothing_left
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import Daemon
from tests.fakes.mpi import build_rank, missing_mpich
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

pytestmark = [pytest.mark.dmtcp, pytest.mark.xdist_group("dmtcp")]
RANKS = 4
STEPS = 1500

Site = LocalSite | SlurmSite


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if reason := missing_mpich():
        pytest.skip(reason)
    return build_rank(tmp_path_factory.mktemp("mpi"))


def grows_twice_and_ends_well(site: Site, daemon: Daemon, program: Path, folder: Path) -> None:
    site.fill()
    daemon.start()
    overrides = {"engine": "dmtcp", "mpi": "auto", "output": str(folder / "out"), **site.layout}
    job = daemon.submit(str(program), str(STEPS), ranks=RANKS, time="3:00", overrides=overrides)
    daemon.wait_event(job, "epoch.running", 1)
    for count in (2, 3):
        site.more()
        daemon.wait_event(job, "epoch.running", count, timeout_s=90)
    final = daemon.wait(job, timeout_s=180)
    assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "dmtcp"), final
    lines = (folder / "out").read_text().splitlines()
    for rank in range(RANKS):
        assert lines.count(f"rank {rank} of {RANKS} ends, bad 0") == 1
        told = [int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"rank {rank} of {RANKS} step")]
        assert told == list(range(0, STEPS, 10)), "each line once and in order, across all moves"
    assert "epoch.failed" not in daemon.kinds(job)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


def test_an_mpi_program_on_the_embedded_cluster(tmp_path: Path, program: Path) -> None:
    site = LocalSite(tmp_path, 4, 2, block=4, fillers=(1, 2))
    daemon = Daemon(tmp_path, site.toml)
    try:
        grows_twice_and_ends_well(site, daemon, program, tmp_path)
    finally:
        daemon.stop()
        site.close()


@pytest.mark.slurm
def test_an_mpi_program_on_slurm(tmp_path: Path, program: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(4, 2) as cluster:
        site = SlurmSite(cluster, tmp_path)
        daemon = Daemon(tmp_path, site.toml, site.environment)
        record = build(daemon.state / "spool")
        assert record["trusted"], record["why"]
        try:
            grows_twice_and_ends_well(site, daemon, program, tmp_path)
        finally:
            daemon.stop()
            site.close()


def test_auto_is_dmtcp_where_the_site_has_it(tmp_path: Path, program: Path) -> None:
    site = LocalSite(tmp_path, 2, 2)
    daemon = Daemon(tmp_path, site.toml, {"PATH": os.environ["PATH"]})
    try:
        daemon.start()
        job = daemon.submit(str(program), "5", ranks=2, overrides={"engine": "auto"})
        assert daemon.job(job)["engine"] == "dmtcp"
        assert daemon.wait(job)["exit_code"] == 0
    finally:
        daemon.stop()
        site.close()
