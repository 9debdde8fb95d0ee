"""The network between a node and the daemon is cut, as a switch that is gone does it: nothing comes back, not even a
reset. The nodes are network namespaces; Slurm's own daemons are cut off with what runs beside them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusters import netns
from tests.acceptance.journeys import daemon_on, nothing_left, undisturbed
from tests.acceptance.sites import SlurmSite
from tests.fakes.daemon import Daemon
from tests.fakes.hosts import missing_hosts
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("faults-network")]
STEPS = 700
SILENCE_S = 15  # of a worker, and 10 of a slurmd


class Empty(SlurmSite):
    """Without a background."""

    def fill(self) -> None:
        return


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm() or missing_hosts():
        pytest.skip(reason)
    with slurm_cluster(2, 2, "--profile=netns") as cluster:
        yield cluster


@contextmanager
def cut(cluster: SlurmCluster, node: str) -> Iterator[None]:
    """The node hears nobody, and nobody hears it."""
    network = int(json.loads((cluster.directory / "cluster.json").read_text())["network"])

    def link(state: str) -> None:
        argv = ["ip", "-n", netns.name(network), "link", "set", f"h{node.removeprefix('n')}", state]
        subprocess.run(argv, check=True, timeout=30)

    link("down")
    try:
        yield
    finally:
        link("up")


def where(daemon: Daemon, job: str) -> str:
    return str(next(s["nodes"][0] for s in daemon.job(job)["subjobs"] if s["state"] == "running"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seconds", [SILENCE_S * 0.4, SILENCE_S * 1.5], ids=["for a while", "for longer than is borne"])
def test_a_node_is_cut_off_and_comes_back(cluster: SlurmCluster, tmp_path: Path, seconds: float) -> None:
    """For a while: nobody notices. For longer: both Slurm and EJB give it up, its worker and ranks live on in the dark,
    and are ended once the network is back; the job is complete, with the undisturbed result."""
    settings = f'listen = "{cluster.controller_address}:0"\n'
    site = Empty(cluster, tmp_path, settings=settings)
    with daemon_on(site, tmp_path, worker_silence_s=SILENCE_S) as daemon:
        overrides = {"nodes": 1, "ntasks_per_node": 2}
        command = daemon.heat(STEPS, tmp_path / "result")
        job = daemon.submit(*command, ranks=2, time="5:00", overrides=overrides)
        daemon.wait_event(job, "epoch.running")
        with cut(cluster, where(daemon, job)):
            time.sleep(seconds)
        final = daemon.wait(job, timeout_s=240)
        assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)()
        assert (tmp_path / "result").read_bytes() == undisturbed(tmp_path, STEPS)
        nothing_left(daemon, site, job)
        if seconds < SILENCE_S:
            assert daemon.kinds(job).count("epoch.running") == 1, daemon.trace(job)()
