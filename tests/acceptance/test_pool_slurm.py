"""A pool in one allocation of a real Slurm: its jobs are folded on real nodes, by one worker a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ejbd.client.client import Client
from ejbd.errors import EjbError
from tests.acceptance.sites import POLL_S
from tests.fakes.daemon import ROOT, Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster


class PoolOnSlurm:
    """A site's daemon on a Slurm, and a user that has pools there."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        deep = str(folder / "a-state-folder" / ("deep" * 25))  # more than a socket's path may have
        self.folder, self.cluster = folder, cluster
        self.daemon = Daemon(folder, settings, {"SLURM_CONF": str(cluster.conf), "XDG_STATE_HOME": deep})
        self.socket = str(self.daemon.state / "ejbd.sock")
        self.environment = {**self.daemon.environment, "EJB_SOCKET": self.socket}
        self.paced = folder / "paced"

    def ejb(self, *words: str) -> str:
        argv = [sys.executable, "-m", "ejbd.cli.main", *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=120, env=self.environment, cwd=self.folder, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def told(self) -> dict[str, Any]:
        (found,) = json.loads(self.ejb("pool", "list", "--json"))
        return dict(found)

    def says(self) -> str:
        logs = [*self.folder.rglob("pool.out"), *self.folder.rglob("ejbd.log")]
        states = self.cluster.run("squeue", "--all")
        return "\n".join([states, *(f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in logs)])

    def inside(self) -> Client:
        return Client(socket=str(self.told()["socket"]))

    def submit(self, name: str, ranks: int, steps: int, walltime: str = "5") -> str:
        work = [str(self.paced), "--steps", str(steps), "--pace", "100ms", "--result", str(self.folder / name)]
        options = ["-n", str(ranks), "-t", walltime, "--engine", "application"]
        return self.ejb("submit", "--pool", "play", "--quiet", *options, "--", *work)

    def is_as_alone(self, name: str, ranks: int, steps: int) -> bool:
        alone = [str(self.paced), "--steps", str(steps), "--expect", str(ranks)]
        want = subprocess.run(alone, check=True, capture_output=True, timeout=180).stdout
        return (self.folder / name).read_bytes() == want


@contextmanager
def pool_site(folder: Path) -> Iterator[PoolOnSlurm]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        site = PoolOnSlurm(folder, cluster)
        subprocess.run(["cc", "-O2", "-o", site.paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
        site.daemon.start()
        try:
            yield site
        finally:
            site.daemon.stop()


def kinds(inside: Client, job: str) -> list[str]:
    return [event["kind"] for event in inside.get(f"/v1/jobs/{job}/events", limit=1000)["events"]]


def completed(site: PoolOnSlurm, job: str) -> bool:
    try:
        return bool(site.inside().get(f"/v1/jobs/{job}")["state"] == "completed")
    except (EjbError, KeyError):  # between two allocations
        return False


def test_two_jobs_share_an_allocation_and_compute_the_same(tmp_path: Path) -> None:
    with pool_site(tmp_path) as site:
        site.ejb("pool", "start", "-N", "2", "-t", "10", "play")
        until(lambda: bool(site.told()["runs"]), "the pool does not run", 180, site.says)
        assert len(site.told()["nodes"]) == 2
        sock = Path(str(site.told()["socket"]))
        inside = site.inside()
        (of_rest,) = Client(socket=site.socket).pools()
        assert (of_rest["name"], of_rest["state"], len(of_rest["nodes"])) == ("play", "running", 2)

        one = site.submit("first", 8, 120)
        until(lambda: "epoch.running" in kinds(inside, one), "the first job does not run", 60)
        sock.rename(hidden := sock.with_name("hidden"))  # as seen from another host
        two = site.submit("second", 4, 20)
        hidden.rename(sock)
        until(lambda: inside.get(f"/v1/jobs/{two}")["state"] == "completed", "the second job does not end", 60)
        until(lambda: kinds(inside, one).count("epoch.resized") == 2, "not folded and unfolded", 30)
        until(lambda: inside.get(f"/v1/jobs/{one}")["state"] == "completed", "the first job does not end", 60)
        assert kinds(inside, one).count("epoch.launching") == 1, "no checkpoint"
        assert site.is_as_alone("first", 8, 120) and site.is_as_alone("second", 4, 20)
        site.ejb("pool", "stop", "play")
        assert json.loads(site.ejb("pool", "list", "--json")) == []


def test_what_a_pool_does_not_end_goes_on_in_another_allocation(tmp_path: Path) -> None:
    if os.environ.get("EJB_TEST_POOLS") != "all":
        pytest.skip("EJB_TEST_POOLS=all runs it: three minutes")
    with pool_site(tmp_path) as site:
        site.ejb("pool", "start", "-N", "1", "-t", "2", "play")
        until(lambda: bool(site.told()["runs"]), "the pool does not run", 180, site.says)
        inside, first = site.inside(), site.told()["batch_job"]
        job = site.submit("long", 4, 1300)
        late = site.submit("late", 2, 10, walltime="3")
        until(lambda: "epoch.running" in kinds(inside, job), "the job does not run", 60)
        until(lambda: site.told().get("batch_job") not in (None, first), "no other pool", 240, site.says)
        for one in (job, late):
            until(partial(completed, site, one), "it has not ended", 240, site.says)
        assert "decision.suspend" in kinds(site.inside(), job)
        assert site.is_as_alone("long", 4, 1300) and site.is_as_alone("late", 2, 10)
        site.ejb("pool", "stop", "play")
