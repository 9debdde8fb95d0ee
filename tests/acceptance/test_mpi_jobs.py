"""MPI jobs of MPICH as users submit them, on the embedded cluster: every rank knows its peers, and every job ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon
from tests.fakes.mpi import build_rank, missing_mpich

RANKS = 4
RINGS = 20
AT_ONCE = 5
pytestmark = [pytest.mark.xdist_group("mpich")]

WRAPPER = """#!/bin/sh
"$@"
"""
SCRIPT = """#!/bin/bash
#SBATCH -n 4 -t 2
mpirun {wrapper} {rank} 3 || exit 10
srun bash -c '{rank} 3; exit $?' || exit 11
mpiexec -n 2 {python} -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' {rank} 3 || exit 12
echo the script has ended
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if reason := missing_mpich():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("mpi")
    site = LocalSite(folder, 8, 4)
    value = Daemon(folder, site.toml)
    value.start()
    try:
        yield value
    finally:
        value.stop()
        site.close()


def submit(daemon: Daemon, *argv: str, **body: Any) -> str:
    overrides = {"engine": "none", **body.pop("overrides", {})}
    return daemon.submit(*argv, ranks=RANKS, overrides=overrides, **body)


def output(daemon: Daemon, job: str) -> list[str]:
    return (daemon.folder / f"ejb-{job}.out").read_text().splitlines()


@pytest.mark.nightly("integration/test_mpich_ranks.py has twenty of twenty rings")
def test_twenty_of_twenty_rings_end(daemon: Daemon) -> None:
    """`ejb submit -n 4 -t 1 -- ring`, where nothing was built on site: 4 of 16 hung in MPI_Finalize."""
    rank = str(build_rank(daemon.folder))
    assert not (daemon.state / "spool" / "dmtcp").exists()
    ended = []
    for _ in range(RINGS // AT_ONCE):
        jobs = [submit(daemon, rank, "2") for _ in range(AT_ONCE)]
        ended += [(job, daemon.wait(job)["state"]) for job in jobs]
    assert [state for _, state in ended] == ["completed"] * RINGS
    for job, _ in ended:
        said = {line for line in output(daemon, job) if "ends" in line}
        assert said == {f"rank {r} of {RANKS} ends, bad 0" for r in range(RANKS)}


def test_a_script_starts_its_ranks_by_way_of_others(daemon: Daemon) -> None:
    rank = build_rank(daemon.folder)
    wrapper = daemon.folder / "wrapper.sh"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    text = SCRIPT.format(rank=rank, wrapper=wrapper, python="python3")
    job = submit(daemon, script=text, env={"PATH": os.environ["PATH"]}, overrides={})
    final = daemon.wait(job)
    said = output(daemon, job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), said
    assert "the script has ended" in said
    ends = [line for line in said if "ends" in line]
    assert len(ends) == 2 * RANKS + 2 and not any("of 1 " in line for line in said), said
    assert ends.count("rank 0 of 2 ends, bad 0") == 1
    assert all(ends.count(f"rank {r} of {RANKS} ends, bad 0") == 2 for r in range(RANKS))
