"""From a daemon of one user's to one for all, by the steps of docs/operators.md: what waits and what runs goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_users_slurm import Site, processes_of, uid
from tests.fakes.daemon import FAST, Daemon
from tests.fakes.socketunit import PYTHON
from tests.integration.slurm_clusters import missing_slurm, shared_cluster
from tests.integration.users import missing_users, people, skip_in_closed_folder

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("users-slurm"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
]


class Alone(Site):
    """The site before: a daemon that alice has started, with a spool where the site's daemon will look for it."""

    def one_user(self) -> Daemon:
        home = self.users.home(self.users.alice)
        folder = home / "own"
        folder.mkdir(mode=0o700)
        toml = f"""batch = "slurm"
spool = "{home}/.ejb"
poll_s = 1.0
worker_python = "{PYTHON}"
{FAST}"""
        daemon = Daemon(folder, toml, {"SLURM_CONF": str(self.cluster.conf)}, user=self.users.alice)
        for path in (folder, daemon.config):
            os.chown(path, uid(self.users.alice), -1)
        return daemon


@pytest.fixture
def site() -> Iterator[Alone]:
    if reason := missing_slurm():
        pytest.skip(reason)
    skip_in_closed_folder()
    with people() as users, shared_cluster(4, 2, "--profile=multiuser") as cluster:
        made = Alone(cluster, users)
        try:
            yield made
        finally:
            made.daemon.stop()
            made.unit.close()
            cluster.empty()


def test_the_jobs_of_a_single_users_daemon_go_on_under_the_one_for_all(site: Alone) -> None:
    alice, bob = site.users.alice, site.users.bob
    later, site.daemon = site.daemon, site.one_user()
    site.daemon.start()
    runs = site.heat(alice, 240)
    site.daemon.wait_event(runs, "epoch.running")
    block = site.cluster.sbatch("--ntasks=4", "--time=10", script="sleep 600")
    site.cluster.until(lambda: site.cluster.states().get(block) == "RUNNING", "the background did not start", 60)
    waits = site.submit(alice, "sh", "-c", "id -u", ntasks=8, elastic="off")
    site.daemon.wait_event(waits, "subjob.pending")
    before = {process.pid for process in processes_of(site.users.home(alice) / ".ejb")}
    assert before

    # -- the steps: stop it; give its state to the service user; start the one for all
    site.daemon.stop()
    site.daemon.client.close()
    given(site.daemon.state, later.state, site.users.service)
    site.daemon = later
    site.daemon.start()
    assert not site.daemon.ended(), site.daemon.log.read_text(errors="replace")[-3000:]
    assert before <= {process.pid for process in processes_of(site.users.home(alice) / ".ejb")}, "nothing is begun anew"
    told = {job["id"]: job["user"] for job in site.ask(alice, "GET", "/v1/jobs")[1]["jobs"]}
    assert told == {runs: alice, waits: alice}, "what was known is known"
    assert site.ask(bob, "GET", "/v1/jobs")[1]["jobs"] == []

    others = site.submit(bob, "sh", "-c", "id -u", ntasks=1, elastic="off")
    site.cluster.run("scancel", block)
    for job in (others, waits, runs):
        final = site.daemon.wait(job, timeout_s=180)
        assert final["state"] == "completed", final
    bad = {"job.again", "epoch.lost", "epoch.failed", "subjob.lost", "intent.failed"}
    assert not bad & set(site.daemon.kinds(runs)), "what ran was neither lost nor begun again"
    for user, job in ((alice, waits), (bob, others)):
        assert str(uid(user)) in str(site.ask(user, "GET", f"/v1/jobs/{job}/logs")[1])
    assert (site.users.home(alice) / "heat").stat().st_uid == uid(alice)


def given(own: Path, state: Path, service: str) -> None:
    """`cp -a ... && chown -R ejb: ...`, as root."""
    shutil.rmtree(state, ignore_errors=True)
    subprocess.run(["cp", "-a", str(own), str(state)], check=True, timeout=180)
    subprocess.run(["chown", "-R", f"{service}:", str(state)], check=True, timeout=180)
