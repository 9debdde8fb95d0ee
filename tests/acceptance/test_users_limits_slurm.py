"""Limits of real users on a real Slurm with accounting, and users that kill what runs for them: others go on."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.test_users_slurm import _ASK, Site, uid
from tests.fakes.daemon import until
from tests.fakes.socketunit import PYTHON
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster
from tests.integration.users import as_user, change, missing_users, people

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("users-slurm"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
]
_KILLS = """
import os, signal, time
for _ in range(1500):
    try:
        os.kill(-1, signal.SIGKILL)  # every process of this user's but this one
    except ProcessLookupError:
        pass
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if reason := missing_slurm(accounting=True):
        pytest.skip(reason)
    enforced = "AccountingStorageEnforce=associations,limits,qos\n"
    with people() as users, slurm_cluster(4, 4, "--profile=acct", more=enforced) as cluster:
        cluster.directory.chmod(0o711)
        cluster.run("sacctmgr", "-i", "add", "account", "shared")
        for user in (users.alice, users.bob, users.mallory):
            cluster.run("sacctmgr", "-i", "add", "user", user, "account=shared")
        made = Site(cluster, users)
        made.daemon.start()
        try:
            yield made
        finally:
            made.daemon.stop()
            made.unit.close()


def paused(site: Site) -> set[str]:
    """For which users and accounts ("": all) a queue is paused."""
    told = site.daemon.client.get("/v1/queues").json()["queues"]
    return {one["whose"] for queue in told for one in queue["paused"]}


def ordinary(site: Site, user: str, *argv: str, **more: Any) -> str:
    return site.submit(user, *argv, ntasks=1, elastic="off", **more)


def now_of(site: Site, user: str, job: str) -> str:
    """What `ejb explain` says of a job now."""
    return str(site.ask(user, "GET", f"/v1/jobs/{job}/explain")[1]["now"])


@pytest.mark.nightly(
    "unit/test_manager_queue_pause.py has the limit of one account; test_users_slurm.py two users at once"
)
def test_one_users_limit_keeps_no_other_user_waiting(site: Site) -> None:
    alice, bob, where = site.users.alice, site.users.bob, "where"
    site.cluster.run("sacctmgr", "-i", "modify", "user", where, f"name={alice}", "set", "MaxSubmitJobs=2")
    theirs = [ordinary(site, alice, "sleep", "600") for _ in range(6)]
    until(lambda: paused(site) == {f"{alice}//"}, "it is not paused for that user", 60, lambda: str(paused(site)))
    job = ordinary(site, bob, "sh", "-c", "id -u; id -g; echo $SLURM_JOB_GID")
    assert site.daemon.wait(job, timeout_s=60)["state"] == "completed"
    entry = pwd.getpwnam(bob)
    status, text = site.ask(bob, "GET", f"/v1/jobs/{job}/logs")
    assert (status, text.split()) == (200, [str(entry.pw_uid), str(entry.pw_gid), str(entry.pw_gid)])
    assert paused(site) == {f"{alice}//"}
    site.cluster.run("sacctmgr", "-i", "modify", "user", where, f"name={alice}", "set", "MaxSubmitJobs=-1")
    site.daemon.client.post("/v1/queues/batch/resume").raise_for_status()
    for job in theirs:
        site.daemon.wait(job, "running", timeout_s=90)
    for job in theirs:
        site.ask(alice, "POST", f"/v1/jobs/{job}/cancel")
        assert site.daemon.wait(job, timeout_s=60)["state"] == "cancelled"


@pytest.mark.nightly("unit/test_manager_queue_pause.py has it")
def test_the_limit_of_one_qos_keeps_the_same_users_other_qos_not_waiting(site: Site) -> None:
    """One user, two QOS beside the default one: of `short` one job is taken, of `narrow` one runs."""
    alice = site.users.alice
    for qos, limit in (("short", "MaxSubmitJobsPerUser=1"), ("narrow", "MaxJobsPerUser=1"), ("long", "Priority=1")):
        site.cluster.run("sacctmgr", "-i", "add", "qos", qos, limit)
    site.cluster.run("sacctmgr", "-i", "modify", "user", "where", f"name={alice}", "set", "qos+=short,narrow,long")
    held = [ordinary(site, alice, "sleep", "600", qos="short") for _ in range(5)]
    until(lambda: paused(site) == {f"{alice}//short"}, "that QOS is not paused", 60, lambda: str(paused(site)))
    held += [ordinary(site, alice, "sleep", "600", qos="narrow") for _ in range(2)]
    for others in ({"qos": "long"}, {}):
        job = ordinary(site, alice, "true", **others)
        assert site.daemon.wait(job, timeout_s=60)["state"] == "completed"
    site.daemon.wait(held[-2], "running", timeout_s=60)
    limited = "QOSMaxJobsPerUserLimit"
    until(lambda: limited in now_of(site, alice, held[-1]), limited, 60, lambda: now_of(site, alice, held[-1]))
    assert f"is paused for {alice} in the default account and QOS short" in now_of(site, alice, held[1])
    assert paused(site) == {f"{alice}//short"}
    for job in held:
        site.ask(alice, "POST", f"/v1/jobs/{job}/cancel")
    site.daemon.client.post("/v1/queues/batch/resume").raise_for_status()
    for job in held:
        assert site.daemon.wait(job, timeout_s=60)["state"] == "cancelled"


@pytest.mark.nightly("integration/test_ejb_as_users.py kills the helper at each verb")
def test_a_user_that_kills_what_runs_for_it_keeps_no_other_user_waiting(site: Site) -> None:
    """Mallory kills every process of the own ones, 50 times a second: sessions of `ejb-as`, and sbatch."""
    bob, mallory = site.users.bob, site.users.mallory
    token = site.ask(mallory, "POST", "/v1/tokens", {})[1]["token"]
    body: dict[str, Any] = {"command": ["true"], "cwd": str(site.users.home(mallory)), "env": {"PATH": os.defpath}}
    body["overrides"] = {"time": "2", "ntasks": 1, "elastic": "off"}
    killing = subprocess.Popen([PYTHON, "-IS", "-c", _KILLS], user=uid(mallory), group=pwd.getpwnam(mallory).pw_gid)
    try:
        lost = []
        for _ in range(5):
            answer = site.daemon.client.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {token}"})
            lost.append(answer.raise_for_status().json()["id"])
        for _ in range(3):
            job = ordinary(site, bob, "true")
            assert site.daemon.wait(job, timeout_s=60)["state"] == "completed"
        assert "" not in paused(site)
    finally:
        killing.kill()
        killing.wait()
    if paused(site):
        site.daemon.client.post("/v1/queues/batch/resume").raise_for_status()
    for job in lost:
        ended = site.daemon.wait(job, timeout_s=180)
        assert ended["state"] in ("completed", "failed"), "each has an end: it ran, or its own processes were killed"
    tags = site.cluster.run("squeue", "--noheader", "--states=all", "--format=%k").split()
    assert len(tags) == len(set(tags)), "none was submitted twice"


@pytest.mark.nightly("unit/test_api_groups.py refuses it")
def test_a_job_submitted_under_another_group_is_refused_in_a_sentence(site: Site) -> None:
    """What newgrp does: the process has another of the user's groups."""
    bob = site.users.bob
    other, body = f"{bob}x", {"command": ["true"], "cwd": "/", "env": {}, "overrides": {"time": "1", "ntasks": 1}}
    subprocess.run(["groupadd", "-f", other], check=True, timeout=180)
    try:
        change(bob, "--append", "--groups", other)
        argv = [PYTHON, "-IS", "-c", _ASK, site.socket, "POST", "/v1/jobs", json.dumps(body)]
        done = as_user(bob, ["sg", other, "-c", shlex.join(argv)])
        assert done.stdout.startswith("422\n"), (done.stdout, done.stderr)
        assert f"this process has group {other}, and jobs of EJB run with group {bob}" in done.stdout
    finally:
        subprocess.run(["groupdel", "-f", other], check=False, timeout=180)
