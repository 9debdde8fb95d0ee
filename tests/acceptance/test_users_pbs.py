"""One daemon for several real users on a PBS (fake, but with real processes of real users): each as its own."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.test_users_slurm import Site, processes_of, uid
from tests.fakes.daemon import FAST, Daemon, until
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.fakes.socketunit import PYTHON, SocketUnit
from tests.integration.users import People, as_user, missing_users, people, skip_in_closed_folder

pytestmark = [
    pytest.mark.xdist_group("users-pbs"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
]


class PbsUsers(Site):
    """A daemon that runs as the service user in front of a PBS, and the helper behind root's socket."""

    def __init__(self, pbs: PbsSite, users: People) -> None:
        self.pbs, self.users = pbs, users
        self.unit = SocketUnit(users.folder, users.service, users.spool, batch=pbs.dialect, path=pbs.path)
        folder = users.home(users.service)
        toml = f"""batch = "pbs"
identity = "helper"
poll_s = 1.0
worker_python = "{PYTHON}"
{FAST}
[helper]
socket = "{self.unit.path}"
spool = "{users.spool}"
[pbs]
bin = "{pbs.bin}"
"""
        self.daemon = Daemon(folder, toml, user=users.service)
        folder.chmod(0o711)

    def jobs(self) -> list[dict[str, Any]]:
        """As the server has written them down."""
        return list(json.loads((self.pbs.folder / "state.json").read_text())["jobs"])

    def owners(self, job: str) -> set[str]:
        return {one["owner"] for one in self.jobs() if one["error"].startswith(f"/dev/null/ejb-{job}.")}

    def qdel(self, user: str, number: int) -> int:
        return as_user(user, [str(self.pbs.bin / "qdel"), str(number)]).returncode


@pytest.fixture(scope="module", params=["openpbs", "torque-maui"])
def site(request: pytest.FixtureRequest) -> Iterator[PbsUsers]:
    if request.param != "openpbs" and os.environ.get("EJB_TEST_PBS") != "all":
        pytest.skip("two users on a second dialect take half a minute: EJB_TEST_PBS=all runs it")
    dialect, _, maui = request.param.partition("-")
    skip_in_closed_folder()
    with people() as users, pbs_site(dialect, maui=bool(maui), nodes=4, cpus=2, users=True) as pbs:
        made = PbsUsers(pbs, users)
        made.daemon.start()
        try:
            yield made
        finally:
            made.daemon.stop()
            made.unit.close()


def processes_at(folder: Path) -> list[psutil.Process]:
    """Moms of jobs, and what they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[3:4] == [str(folder / "mom.py")]:
                found += [process, *process.children(recursive=True)]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_the_jobs_of_two_users_at_once_are_each_their_own(site: PbsUsers) -> None:
    """They start on what is free, grow when more is, and end, each as its user; and neither sees into the other's."""
    alice, bob, mallory = site.users.alice, site.users.bob, site.users.mallory
    block = site.pbs.run(
        "qsub",
        "-l",
        "nodes=2:ppn=2",
        "-l",
        "walltime=600",
        "-o",
        "/dev/null",
        "-j",
        "oe",
        stdin="sleep 600",
        user="somebody",
    )
    number = int(block.stdout.partition(".")[0])
    until(lambda: site.jobs()[0]["state"] == "R", "the background did not start", 60)
    jobs = {user: site.heat(user, 160) for user in (alice, bob)}
    uids: dict[str, set[int]] = {alice: set(), bob: set()}
    moms: set[int] = set()

    def running() -> bool:
        for user in jobs:
            for process in processes_of(site.users.home(user) / ".ejb"):
                try:
                    uids[user] |= set(process.uids())
                except psutil.NoSuchProcess:
                    continue
        for process in processes_at(site.pbs.folder):
            try:
                moms.update(process.uids())
            except psutil.NoSuchProcess:
                continue
        return all("epoch.running" in site.daemon.kinds(job) for job in jobs.values())

    until(running, "not both run", 120, site.daemon.trace(jobs[bob]))
    running()
    theirs = [one["number"] for one in site.jobs() if one["owner"] in (alice, bob) and one["state"] == "R"]
    assert theirs and site.qdel(mallory, theirs[-1]) == 159, "another user's job"
    site.pbs.run("qdel", str(number))
    for user, job in jobs.items():
        final = site.daemon.wait(job, timeout_s=180)
        assert final["state"] == "completed" and final["user"] == user, final
        assert uids[user] == {uid(user)}, "whatever ran for it"
        assert site.owners(job) == {user}
    assert moms == {uid(alice), uid(bob)}, "and of no other user, nor of root"
    for user, job in jobs.items():
        spool = site.users.home(user) / ".ejb"
        files = [spool, *spool.rglob("*"), *site.users.home(user).glob("heat*")]
        assert {path.lstat().st_uid for path in files} == {uid(user)} and (spool / "jobs" / job) in files
        assert all(path.stat().st_mode & 0o077 == 0 for path in files if path.is_relative_to(spool))
        other = bob if user == alice else alice
        assert site.ask(user, "GET", f"/v1/jobs/{job}/logs")[0] == 200
        assert site.ask(other, "GET", f"/v1/jobs/{job}/logs")[0] in (403, 404)
    service = {path.lstat().st_uid for path in site.daemon.state.rglob("*")}
    assert service == {uid(site.users.service)}, "the daemon has what is the daemon's"
    served = json.dumps([one["environment"] for one in specs(site)])
    assert site.users.service not in served, "nothing of the daemon's own reaches a job"


def specs(site: PbsUsers) -> list[dict[str, Any]]:
    """What each job of a real user was started with."""
    found = []
    for path in (site.pbs.folder / "jobs").glob("*.json"):
        if pwd.getpwuid(path.stat().st_uid).pw_name in (site.users.alice, site.users.bob):
            found.append(json.loads(path.read_text()))
    assert found
    return found


@pytest.mark.nightly("test_users_slurm.py has the same acts; the one before has users of a PBS")
def test_what_is_done_to_a_job_is_done_as_its_user_and_by_no_other(site: PbsUsers) -> None:
    """Held, released and cancelled by way of the helper; and mallory's batch job with its tag is a stranger's."""
    bob, mallory = site.users.bob, site.users.mallory
    job = site.submit(bob, "sh", "-c", "id -u; touch made; sleep 600", ntasks=1)
    site.daemon.wait(job, "running", timeout_s=60)
    until(lambda: (site.users.home(bob) / "made").exists(), "the script did not come so far", 30)
    assert (site.users.home(bob) / "made").stat().st_uid == uid(bob)
    tag = next(event["subjob"] for event in site.daemon.events(job) if event.get("subjob"))
    forged = as_user(
        mallory,
        ["sh", "-c", f"echo sleep 600 | {site.pbs.bin}/qsub -N x -j oe -o /dev/null -e /dev/null/ejb-{tag}"],
    )
    assert forged.returncode == 0, forged.stderr
    number = int(forged.stdout.partition(".")[0])
    for method, path in (("POST", "/cancel"), ("POST", "/hold"), ("GET", "/logs"), ("GET", "/explain"), ("GET", "")):
        assert site.ask(mallory, method, f"/v1/jobs/{job}{path}")[0] in (403, 404), (method, path)
    polls = int(site.daemon.client.get("/v1/health").json()["polls"])
    until(lambda: int(site.daemon.client.get("/v1/health").json()["polls"]) > polls + 3, "no polls", 60)
    status, text = site.ask(bob, "GET", f"/v1/jobs/{job}/logs")
    assert (status, text.strip()) == (200, str(uid(bob)))
    site.unit.kill()
    assert site.ask(bob, "POST", f"/v1/jobs/{job}/cancel")[0] in (200, 202, 204)
    site.daemon.wait(job, "cancelled", timeout_s=60)
    states = {one["number"]: (one["owner"], one["state"]) for one in site.jobs()}
    assert states[number] == (mallory, "R"), "it is neither adopted nor cancelled"
    assert not {"subjob.stray", "subjob.lookalike"} & set(site.daemon.kinds(job))
    assert as_user(mallory, [str(site.pbs.bin / "qdel"), str(number)]).returncode == 0
