"""One daemon for several real users on a real Slurm: every process, file and batch job of a user's is that user's."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes import field_profile
from tests.fakes.daemon import FAST, HEAT, Daemon, until
from tests.fakes.socketunit import PYTHON, SocketUnit
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster
from tests.integration.users import People, as_user, missing_users, people, skip_in_closed_folder

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("users-slurm"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
]

_ASK = """
import http.client, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
c = Connection("ejbd", timeout=180)
body = sys.argv[4].encode() if len(sys.argv) > 4 else None
c.request(sys.argv[2], sys.argv[3], body, {"Content-Type": "application/json"} if body else {})
a = c.getresponse()
print(a.status)
sys.stdout.write(a.read().decode())
"""


class Site:
    """A daemon that runs as the service user, and the helper behind root's socket."""

    def __init__(self, cluster: SlurmCluster, users: People) -> None:
        self.cluster, self.users = cluster, users
        programs = {"path": os.environ["PATH"], "environment": {"SLURM_CONF": str(cluster.conf)}}
        self.unit = SocketUnit(users.folder, users.service, users.spool, **programs)
        folder = users.home(users.service)
        toml = f"""batch = "slurm"
identity = "helper"
poll_s = 1.0
worker_python = "{PYTHON}"
{FAST}
[helper]
socket = "{self.unit.path}"
spool = "{users.spool}"
"""
        self.daemon = Daemon(folder, toml, {"SLURM_CONF": str(cluster.conf)}, user=users.service)
        folder.chmod(0o711)

    @property
    def socket(self) -> str:
        return str(self.daemon.state / "ejbd.sock")

    def ask(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """As that user, by the unix socket."""
        words = [] if body is None else [json.dumps(body)]
        done = as_user(user, [PYTHON, "-IS", "-c", _ASK, self.socket, method, path, *words])
        assert done.returncode == 0, done.stderr
        status, _, text = done.stdout.partition("\n")
        return int(status), json.loads(text) if text.startswith(("{", "[")) else text

    def submit(self, user: str, *argv: str, **overrides: Any) -> str:
        body = {"command": list(argv), "cwd": str(self.users.home(user)), "env": {"PATH": os.defpath}}
        status, answer = self.ask(user, "POST", "/v1/jobs", {**body, "overrides": {"time": "2", **overrides}})
        assert status in (200, 201), answer
        return str(answer["id"])

    def field(self, user: str, steps: int, *, engine: str = "auto", **body: Any) -> tuple[int, Any]:
        """The program of the profile's tests, with whatever else of a submission."""
        words = {"command": [PYTHON, str(field_profile.PROGRAM), str(steps), "0.4"], "env": {"PATH": os.defpath}}
        asked = {"time": "2", "ntasks": 4, "engine": engine}
        return self.ask(
            user, "POST", "/v1/jobs", {**words, "cwd": str(self.users.home(user)), "overrides": asked, **body}
        )

    def heat(self, user: str, steps: int) -> str:
        options = ["--steps", str(steps), "--size", "32", "--pace", "50ms", "--result", "heat"]
        return self.submit(user, PYTHON, str(HEAT), *options, ntasks=4, engine="application")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if reason := missing_slurm():
        pytest.skip(reason)
    skip_in_closed_folder()
    with people() as users, shared_cluster(4, 2, "--profile=multiuser") as cluster:
        made = Site(cluster, users)
        made.daemon.start()
        try:
            yield made
        finally:
            made.daemon.stop()
            made.unit.close()
            cluster.empty()


def uid(user: str) -> int:
    return pwd.getpwnam(user).pw_uid


def processes_of(spool: Path) -> list[psutil.Process]:
    """Workers, scripts and ranks of jobs with files there."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if f"{spool}/" in words or process.environ().get("EJB_RENDEZVOUS", "").startswith(f"{spool}/"):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_the_jobs_of_two_users_at_once_are_each_their_own(site: Site) -> None:
    """They start on what is free, grow when more is, and end, each as its user; and neither sees into the other's."""
    alice, bob = site.users.alice, site.users.bob
    block = site.cluster.sbatch("--ntasks=4", "--time=10", script="sleep 600")
    site.cluster.until(lambda: site.cluster.states().get(block) == "RUNNING", "the background did not start", 60)
    jobs = {user: site.heat(user, 160) for user in (alice, bob)}
    uids: dict[str, set[int]] = {alice: set(), bob: set()}

    def running() -> bool:
        for user in jobs:
            for process in processes_of(site.users.home(user) / ".ejb"):
                try:
                    uids[user] |= set(process.uids())
                except psutil.NoSuchProcess:
                    continue
        return all("epoch.running" in site.daemon.kinds(job) for job in jobs.values())

    until(running, "not both run", 120, site.daemon.trace(jobs[bob]))
    running()
    site.cluster.run("scancel", block)
    for user, job in jobs.items():
        final = site.daemon.wait(job, timeout_s=180)
        assert final["state"] == "completed" and final["user"] == user, final
        assert uids[user] == {uid(user)}, "whatever ran for it"
    rows = site.cluster.run("squeue", "--noheader", "--states=all", "--format=%k %u").splitlines()
    owners = {
        tag.removeprefix("ejb-").partition(".")[0]: user for tag, user in (r.split() for r in rows if "ejb-" in r)
    }
    assert owners == {jobs[alice]: alice, jobs[bob]: bob}
    for user, job in jobs.items():
        spool = site.users.home(user) / ".ejb"
        files = [spool, *spool.rglob("*"), *site.users.home(user).glob("heat*")]
        assert {path.lstat().st_uid for path in files} == {uid(user)} and (spool / "jobs" / job) in files
        assert all(path.stat().st_mode & 0o077 == 0 for path in files if path.is_relative_to(spool))
        status, text = site.ask(user, "GET", f"/v1/jobs/{job}/logs")
        assert status == 200, text
    service = {path.lstat().st_uid for path in site.daemon.state.rglob("*")}
    assert service == {uid(site.users.service)}, "the daemon has what is the daemon's"
    database = list(site.daemon.state.glob("ejbd.sqlite*"))
    assert database and all(path.stat().st_mode & 0o077 == 0 for path in database)


_STREAMS = """
import socket, sys, time
held = []
for _ in range(32):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    held[-1].sendall(b"GET /v1/jobs/%s/logs?follow=true HTTP/1.1\\r\\nHost: ejbd\\r\\n\\r\\n" % sys.argv[2].encode())
print("open", flush=True)
time.sleep(600)
"""


def test_workflows_stopped_sessions_and_streams_of_one_user_keep_no_other_waiting(site: Site) -> None:
    """Mallory's eight workflows look through a tree without end; 32 streams wait behind sessions that are stopped.
    Bob's home is closed to the daemon, and the inputs of bob's workflow are in it."""
    bob, mallory = site.users.bob, site.users.mallory
    plan = "workflow: {stages: {a: {command: %s, tasks: 1, walltime: 1, inputs: ['%s'], elastic: false}}}"

    def send(user: str, command: str, inputs: str) -> str:
        body = {"plan": plan % (command, inputs), "cwd": str(site.users.home(user)), "env": {"PATH": os.defpath}}
        status, answer = site.ask(user, "POST", "/v1/workflows", body)
        assert status in (200, 201), answer
        return str(answer["id"])

    def state() -> tuple[str, str]:
        answer = site.ask(bob, "GET", f"/v1/workflows/{flow}")[1]
        return answer["state"], answer["reason"]

    home = site.users.home(mallory)
    as_user(mallory, ["sh", "-c", f"cd {home} && mkdir -p t && for n in $(seq 40); do ln -s . t/$n; done"])
    for _ in range(8):
        send(mallory, "'true'", "t/*/*/*/*/*/*/nomatch")
    as_user(bob, ["touch", str(site.users.home(bob) / "input.txt")])
    flow = send(bob, "'echo done'", "in*.txt")
    until(lambda: state()[0] == "completed", f"bob's has not ended: {state()}", 60)
    job = site.submit(bob, "echo", "of bob's", ntasks=1, elastic="off")
    site.daemon.wait(job, timeout_s=120)
    endless = site.submit(mallory, "sleep", "600", ntasks=1, elastic="off")
    words = [PYTHON, "-IS", "-c", _STREAMS, site.socket, endless]
    found = pwd.getpwnam(mallory)
    with subprocess.Popen(words, stdout=subprocess.PIPE, user=found.pw_uid, group=found.pw_gid, env={}) as streams:
        try:
            assert streams.stdout is not None and streams.stdout.readline() == b"open\n"
            answers, end_s = [], time.monotonic() + 8.0
            while time.monotonic() < end_s:
                mine = [str(one.pid) for one in site.unit.sessions() if one.uids().real == found.pw_uid]
                as_user(mallory, ["kill", "-STOP", *mine]) if mine else None
                answers.append(site.ask(bob, "GET", f"/v1/jobs/{job}/logs"))
            assert mine, "none was stopped"
            assert set(answers) == {(200, "of bob's\n")}
        finally:
            streams.kill()
    site.ask(mallory, "DELETE", f"/v1/jobs/{endless}")


@pytest.mark.nightly("unit/test_manager_profile.py has profiles that are sent in the fake world")
def test_a_profile_that_a_user_sends_acts_for_that_users_jobs_alone_and_as_that_user(site: Site) -> None:
    """Alice's job is stopped, prepared and resumed by it at another width, as alice. Bob's is not run by it, and can
    read nothing of it. What mallory's asks for is done as mallory, and gets nothing of alice's."""
    alice, bob, mallory = site.users.alice, site.users.bob, site.users.mallory
    text = field_profile.TEXT.replace("echo {before} to {ranks} >> prepared", "id -un >> prepared")
    folder = site.users.home(alice) / ".config" / "ejb" / "profiles"
    as_user(alice, ["sh", "-c", f"umask 077; mkdir -p {folder}; cat > {folder}/mine.toml <<'E'\n{text}\nE"])
    block = site.cluster.sbatch("--ntasks=6", "--time=10", script="sleep 600")
    site.cluster.until(lambda: site.cluster.states().get(block) == "RUNNING", "the background did not start", 60)
    status, refused = site.field(bob, 10, engine="profile")
    assert status >= 400 and "no profile is for" in refused["detail"], refused
    takes = f"cp {folder}/mine.toml stolen; id -un > whoami"
    wants = text.replace("id -un >> prepared", takes).replace("prepare =", "fresh = true, prepare =")
    status, wrong = site.field(mallory, 10, engine="profile", profiles={"m.toml": text.replace("state =", "states =")})
    assert status >= 400 and "state: Field required" in wrong["detail"], wrong
    status, made = site.field(alice, 300, profiles={"mine.toml": text})
    assert status in (200, 201), made
    job = made["id"]
    assert site.ask(alice, "GET", f"/v1/jobs/{job}")[1]["engine"] == "profile"
    site.daemon.wait_event(job, "epoch.running", 1, 120)
    for method, path in (("GET", ""), ("GET", "/explain"), ("GET", "/logs"), ("GET", "/timeline")):
        status, _ = site.ask(bob, method, f"/v1/jobs/{job}{path}")
        assert status in (403, 404), (path, status)
    spool = site.users.home(alice) / ".ejb"
    assert as_user(bob, ["ls", str(spool)]).returncode and as_user(bob, ["cat", f"{folder}/mine.toml"]).returncode
    far = "it does not get on, so that it would begin anew on J0"
    until(lambda: site.daemon.job(job)["progress"] > 0.06, far, 120, site.daemon.trace(job))
    site.cluster.run("scancel", block)
    site.daemon.wait_event(job, "epoch.running", 2, 120)
    final = site.daemon.wait(job, timeout_s=180)
    assert (final["state"], final["user"]) == ("completed", alice), final
    widths = [e["data"]["ranks"] for e in site.daemon.events(job) if e["kind"] == "epoch.launching"]
    assert len(set(widths)) > 1, site.daemon.trace(job)()
    home = site.users.home(alice)
    assert (home / "result.txt").read_text() == field_profile.total(300)
    assert (home / "prepared").read_text().split() == [alice], "once, and as alice"
    assert {(home / name).stat().st_uid for name in ("result.txt", "prepared")} == {uid(alice)}
    status, made = site.field(mallory, 20, profiles={"m.toml": wants})
    assert status in (200, 201), made
    assert site.daemon.wait(made["id"], timeout_s=180)["state"] == "completed"
    home = site.users.home(mallory)
    assert (home / "whoami").read_text().split() == [mallory] and not (home / "stolen").exists()


@pytest.mark.nightly("unit/test_manager_fairly.py has the turns of users in the fake world")
def test_one_job_of_a_user_is_not_behind_the_many_of_another(site: Site) -> None:
    """Two processors of eight are left to windows. Thirty jobs of alice's wait for them; then comes one of bob's."""
    alice, bob = site.users.alice, site.users.bob
    block = site.cluster.sbatch("--ntasks=6", "--time=10", script="sleep 600")
    site.cluster.until(lambda: site.cluster.states().get(block) == "RUNNING", "the background did not start", 60)
    many = [site.heat(alice, 16) for _ in range(30)]

    def begun() -> int:
        return sum("epoch.running" in site.daemon.kinds(job) for job in many)

    until(lambda: begun() > 0, "none of alice's runs", 120, site.daemon.trace(many[0]))
    one = site.heat(bob, 16)
    before = begun()
    assert before < 15, "enough of them wait"
    final = site.daemon.wait(one, timeout_s=180)
    assert final["state"] == "completed", final
    between = begun() - before
    for job in many:
        site.ask(alice, "POST", f"/v1/jobs/{job}/cancel")
    site.cluster.run("scancel", block)
    ended = [site.daemon.wait(job, timeout_s=120)["state"] for job in many]
    assert between <= 3, "what had room already, and one of alice's turns beside bob's"
    assert ended.count("cancelled") >= 10 and set(ended) <= {"cancelled", "completed"}


def test_an_ordinary_job_and_what_is_done_to_it_is_its_users(site: Site) -> None:
    job = site.submit(site.users.bob, "sh", "-c", "id -u; touch made; sleep 600", ntasks=1)
    site.daemon.wait(job, "running", timeout_s=60)
    until(lambda: (site.users.home(site.users.bob) / "made").exists(), "the script did not come so far", 30)
    assert (site.users.home(site.users.bob) / "made").stat().st_uid == uid(site.users.bob)
    for method, path in (("POST", "/cancel"), ("POST", "/hold"), ("GET", "/logs"), ("GET", "/explain"), ("GET", "")):
        status, _ = site.ask(site.users.mallory, method, f"/v1/jobs/{job}{path}")
        assert status in (403, 404), (method, path, status)
    status, text = site.ask(site.users.bob, "GET", f"/v1/jobs/{job}/logs")
    assert (status, text.strip()) == (200, str(uid(site.users.bob)))
    assert site.ask(site.users.bob, "POST", f"/v1/jobs/{job}/cancel")[0] in (200, 202, 204)
    site.daemon.wait(job, "cancelled", timeout_s=60)


@pytest.mark.nightly("unit/test_manager_journey.py leaves alone what another user has named so")
def test_a_tag_that_another_user_writes_is_nothing_but_a_comment(site: Site) -> None:
    """Mallory names a batch job like a subjob of alice's: it is not taken for that, and not cancelled as its double."""
    job = site.submit(site.users.alice, "sleep", "600", ntasks=1)
    site.daemon.wait(job, "running", timeout_s=60)
    tag = next(event["subjob"] for event in site.daemon.events(job) if event.get("subjob"))
    argv = ["env", f"SLURM_CONF={site.cluster.conf}", "sbatch", "--parsable", "--output=/dev/null"]
    own = as_user(site.users.mallory, [*argv, f"--comment=ejb-{tag}", "--wrap=sleep 600"]).stdout.strip()
    site.cluster.until(lambda: site.cluster.states().get(own) == "RUNNING", "mallory's job did not start", 60)
    polls = int(site.daemon.client.get("/v1/health").json()["polls"])
    until(lambda: int(site.daemon.client.get("/v1/health").json()["polls"]) > polls + 3, "no polls", 60)
    assert site.cluster.states()[own] == "RUNNING"
    assert not {"subjob.stray", "subjob.lookalike"} & set(site.daemon.kinds(job))
    site.ask(site.users.alice, "POST", f"/v1/jobs/{job}/cancel")
    assert site.daemon.wait(job, timeout_s=60)["state"] == "cancelled"
    assert site.cluster.states()[own] == "RUNNING"
    site.cluster.run("scancel", own)


@pytest.mark.nightly(
    "integration/test_ejb_as_users.py kills the helper at a verb; unit/test_manager_users_crashes.py the daemon"
)
def test_users_go_on_where_the_helper_and_the_daemon_are_killed(site: Site) -> None:
    jobs = {user: site.heat(user, 150) for user in (site.users.alice, site.users.bob)}
    for round in range(3):
        site.unit.kill()
        until(lambda: any("epoch.running" in site.daemon.kinds(job) for job in jobs.values()), "none runs", 60)
        if round == 1:
            site.daemon.kill()
            site.daemon.start()
    for user, job in jobs.items():
        assert site.daemon.wait(job, timeout_s=180)["state"] == "completed"
        assert (site.users.home(user) / "heat").stat().st_uid == uid(user)


def test_a_user_that_is_not_acted_for_is_refused_in_a_sentence(site: Site) -> None:
    body = {"command": ["true"], "cwd": "/", "env": {}, "overrides": {"time": "1", "ntasks": 1}}
    status, answer = site.ask(site.users.service, "POST", "/v1/jobs", body)
    assert status == 502 and "ejb-as does not act for" in answer["detail"], answer
