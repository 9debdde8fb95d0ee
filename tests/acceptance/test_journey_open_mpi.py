"""Unmodified Open MPI programs through the daemon: moved as a whole by DMTCP, passed through without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.fakes.hosts import missing_hosts
from tests.fakes.mpi import build_open_mpi_rank, open_mpi_first
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

pytestmark = [pytest.mark.xdist_group("dmtcp")]
RANKS = 4
STEPS = 1500


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built, why = build_open_mpi_rank(tmp_path_factory.mktemp("openmpi"))
    if built is None:
        pytest.skip(why)
    return built


def ejb(daemon: Daemon, path: str, *words: str) -> dict[str, Any]:
    """What `ejb WORDS --json` says; `path` is the user's PATH."""
    # Root, too, may use mpirun: the tests run as anybody.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**os.environ, **root, "EJB_SOCKET": str(daemon.state / "ejbd.sock"), "PATH": path}
    argv = [sys.executable, "-m", "ejbd.cli.main", *words[:1], "--json", *words[1:]]
    done = subprocess.run(argv, env=environment, cwd=daemon.folder, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def told_once(output: Path, steps: int) -> None:
    """Each rank verified what it got in every step, and each of its lines is there once and in order."""
    lines = output.read_text().splitlines()
    for rank in range(RANKS):
        assert lines.count(f"rank {rank} of {RANKS} ends, bad 0") == 1, lines[-8:]
        told = [int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"rank {rank} of {RANKS} step")]
        assert told == list(range(0, steps, 10)), "a step is missing or told twice"


def dmtcp_is_there() -> None:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")


def starts_on_one_processor_and_moves_to_two(
    site: LocalSite | SlurmSite, daemon: Daemon, program: Path, make_room: Callable[[], None]
) -> None:
    """The whole tree goes from one processor of a node to two of another one, and ends well."""
    path, out = open_mpi_first(daemon.folder / "bin"), daemon.folder / "out"
    options = ["--mpi", "openmpi", "--engine", "dmtcp", "-n", str(RANKS), "-t", "3", "-o", str(out)]
    job = str(ejb(daemon, path, "submit", *options, "--", str(program), str(STEPS))["id"])
    with one_copy_only(job):  # of mpirun, that is
        daemon.wait_event(job, "epoch.running", 1)
        until(lambda: "step 10" in out.read_text(), "the ranks do not run", 30, daemon.trace(job))
        make_room()
        daemon.wait_event(job, "epoch.running", 2, timeout_s=90)
        final = daemon.wait(job, timeout_s=180)
    assert (final["state"], final["exit_code"], final["engine"]) == ("completed", 0, "dmtcp"), daemon.trace(job)()
    told_once(out, STEPS)
    launched = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
    assert [(e["processors"], len(e["subjobs"]), e["restart_from"]) for e in launched] == [(1, 1, None), (2, 1, 1)]
    where = {s["id"]: s["nodes"] for s in final["subjobs"]}
    first, second = (where[e["subjobs"][0]] for e in launched)
    assert len(first) == len(second) == 1 and first != second
    grown = next(e["data"]["decision"] for e in daemon.events(job) if e["kind"] == "decision.expand")
    assert "whole move: all processes to 2 processors on one node" in grown["reason"]
    assert "epoch.failed" not in daemon.kinds(job)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


@pytest.mark.dmtcp
def test_it_starts_on_a_part_of_a_node_and_moves_as_a_whole(tmp_path: Path, program: Path) -> None:
    """Four ranks on one processor of a node; then, when a filler has ended, all of them on two of another node.

    The first filler has two processors of a node, the second three of another one, where one is left; the third takes
    what the first has left. So what comes free when the first one ends is not where the ranks are.
    """
    dmtcp_is_there()
    site = LocalSite(tmp_path, 3, 4, block=4, fillers=(2, 3, 2))
    with daemon_on(site, tmp_path) as daemon:
        starts_on_one_processor_and_moves_to_two(site, daemon, program, site.more)


@pytest.mark.dmtcp
def test_two_at_once_on_one_node_both_run_under_dmtcp(tmp_path: Path, program: Path) -> None:
    """Each mpirun has the same process id there, by which it names its files: both died in MPI_Init."""
    dmtcp_is_there()
    site = LocalSite(tmp_path, 1, 8, block=1, fillers=(1,))
    with daemon_on(site, tmp_path) as daemon:
        path, jobs = open_mpi_first(tmp_path / "bin"), []
        for name in ("one", "two"):
            streams = ["-o", str(tmp_path / name), "-e", str(tmp_path / f"{name}.err")]
            options = ["--mpi", "openmpi", "--engine", "auto", "-n", "2", "-t", "3", *streams]
            jobs.append(str(ejb(daemon, path, "submit", *options, "--", str(program), "200")["id"]))
        for job, name in zip(jobs, ("one", "two"), strict=True):
            final = daemon.wait(job, timeout_s=180)
            assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)()
            assert daemon.kinds(job).count("epoch.launching") == 1, daemon.trace(job)()
            assert "MPI_Init" not in (tmp_path / f"{name}.err").read_text()


@pytest.mark.dmtcp
@pytest.mark.slurm
def test_it_moves_from_host_to_host(tmp_path: Path, program: Path) -> None:
    """The same on a real Slurm, whose nodes are hosts with addresses of their own."""
    dmtcp_is_there()
    if reason := missing_slurm() or missing_hosts():
        pytest.skip(reason)
    with slurm_cluster(3, 4, "--profile=netns") as cluster:
        site = SlurmSite(cluster, tmp_path, settings=f'listen = "{cluster.controller_address}:0"\n', shared=False)
        daemon = Daemon(tmp_path, site.toml, site.environment)

        def other(name: str, node: str, processors: int, minutes: int) -> str:
            place = (f"--nodelist={node}", f"--ntasks={processors}", f"--time={minutes}", f"--job-name={name}")
            return cluster.sbatch(*place, script=f"until [ -e '{tmp_path}/end-{name}' ]; do sleep 0.3; done")

        ids = [other("block", "n1", 4, 10), other("filler", "n2", 2, 60)]
        ids += [other("beside", "n2", 2, 60), other("most", "n3", 3, 60)]
        cluster.until(lambda: all(cluster.states().get(id) == "RUNNING" for id in ids), "the background did not start")
        try:
            daemon.start()
            starts_on_one_processor_and_moves_to_two(site, daemon, program, (tmp_path / "end-filler").touch)
        finally:
            daemon.stop()


def test_without_dmtcp_it_is_passed_through_and_completes(tmp_path: Path, program: Path) -> None:
    """It waits for its own processors, as an ordinary job, and runs on them."""
    site = LocalSite(tmp_path, 2, 4, block=4, fillers=(3,))
    with daemon_on(site, tmp_path) as daemon:
        path, out = open_mpi_first(tmp_path / "bin"), tmp_path / "out"
        options = ["--mpi", "openmpi", "--engine", "none", "-n", str(RANKS), "-t", "3", "-o", str(out)]
        job = str(ejb(daemon, path, "submit", *options, "--", str(program), "30")["id"])
        assert daemon.job(job)["elastic"] is False
        received = next(e["data"] for e in daemon.events(job) if e["kind"] == "job.received")
        assert (
            received["reason"] == "Open MPI's ranks are started by one mpirun, and without DMTCP that cannot be moved"
        )
        until(lambda: daemon.job(job)["state"] == "waiting", "it does not wait", trace=daemon.trace(job))
        site.unblock()
        final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)()
        told_once(out, 30)
        each_tag_once(daemon, site, job)
