"""An unmodified MPI program that evolves under real DMTCP: 4, then 12, then 4 processors, each line once."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ejbd.doctor.plugin import build
from tests.acceptance.journeys import nothing_left, one_copy_only
from tests.acceptance.sites import LocalSite, Site, SlurmSite
from tests.acceptance.test_evolving_local import all_ended, processor_seconds
from tests.fakes.daemon import FAST, Daemon
from tests.fakes.mpi import build_rank, missing_mpich
from tests.integration.slurm_clusters import missing_slurm, shared_cluster

pytestmark = [pytest.mark.dmtcp, pytest.mark.xdist_group("dmtcp")]

RANKS = 12
STEPS = 3600  # 36 s and more: none ends before its last width begins, however quick the machine is


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if reason := missing_mpich():
        pytest.skip(reason)
    return build_rank(tmp_path)


@contextmanager
def on_slurm(folder: Path) -> Iterator[tuple[Daemon, SlurmSite]]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        site = SlurmSite(cluster, folder)
        toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
        yield Daemon(folder, toml, site.environment), site
        cluster.empty()


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[Daemon, LocalSite]]:
    site = LocalSite(folder, 8, 4)
    yield Daemon(folder, site.toml), site
    site.close()


@pytest.mark.parametrize(
    ("where", "profile"),
    [(embedded, "4:10s,12:15s,4:10m"), pytest.param(on_slurm, "4:12s,12:20s,4:10m", marks=pytest.mark.slurm)],
)
def test_holds_4_then_12_then_4_and_computes_the_same(
    where: Callable[[Path], AbstractContextManager[tuple[Daemon, Site]]], profile: str, tmp_path: Path, program: Path
) -> None:
    with where(tmp_path) as (daemon, site):
        evolves(daemon, site, profile, tmp_path, program)


def evolves(daemon: Daemon, site: Site, widths: str, tmp_path: Path, program: Path) -> None:
    out = tmp_path / "out"
    record = build(daemon.state / "spool")  # as `ejb doctor` does: its ranks yield, and MPI_Finalize ends
    assert record["trusted"], record["why"]
    try:
        daemon.start()
        profile = {"profile": widths, "ntasks": None, "time": "15"}
        job = daemon.submit(
            str(program), str(STEPS), overrides={**profile, "engine": "dmtcp", "mpi": "auto", "output": str(out)}
        )
        with one_copy_only(job):
            final = daemon.wait(job, timeout_s=400)
        assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "dmtcp"), daemon.trace(job)()
        lines = out.read_text().splitlines()
        for rank in range(RANKS):
            assert lines.count(f"rank {rank} of {RANKS} ends, bad 0") == 1
            told = [int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"rank {rank} of {RANKS} step")]
            assert told == list(range(0, STEPS, 10)), "each line once and in order, across both moves"
        epochs = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        trace = daemon.trace(job)
        assert [(e["processors"], e["restart_from"]) for e in epochs] == [(4, None), (12, 1), (4, 2)], trace()
        nothing_left(daemon, site, job)
        used, peak = processor_seconds(all_ended(daemon, job))
        print(f"{used:.0f} processor-seconds were held; the peak throughout would have been {peak:.0f}")
        assert used < peak
    finally:
        daemon.stop()
