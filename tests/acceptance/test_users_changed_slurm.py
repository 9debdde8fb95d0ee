"""Accounts that change under a whole daemon and a real Slurm, while jobs of theirs wait and run (docs/threat-model.md).

`integration/test_ejb_as_accounts.py` has what the helper alone makes of accounts of every kind.
"""

from __future__ import annotations

import grp
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_users_slurm import Site, site, uid  # noqa: F401
from tests.fakes.daemon import until
from tests.integration.users import as_user, change, missing_users

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("users-slurm"),
    pytest.mark.skipif(bool(missing_users()), reason=missing_users()),
    pytest.mark.nightly("integration/test_ejb_as_accounts.py has accounts of every kind at the helper"),
]
A_MINUTE_S = 120  # a session lasts for one, on a machine that is busy


@contextmanager
def team(user: str) -> Iterator[int]:
    """A group that `user` is in; its number."""
    name = f"{user}t"
    subprocess.run(["groupadd", "-f", name], check=True, timeout=180)
    try:
        change(user, "--append", "--groups", name)
        yield grp.getgrnam(name).gr_gid
    finally:
        subprocess.run(["groupdel", "-f", name], check=False, timeout=180)


def groups_of_sessions(site: Site, user: str) -> list[set[int]]:  # noqa: F811
    found = []
    for one in site.unit.sessions():
        lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines)
        if told["Uid"].split()[0] == str(uid(user)):
            found.append({int(group) for group in told["Groups"].split()})
    return found


def plan(site: Site, user: str, **overrides: Any) -> tuple[int, str]:  # noqa: F811
    """What a dry run answers, of a shape that no answer is known for."""
    asked = {"time": "2", "ntasks": 1, "elastic": "off", **overrides}
    body = {"command": ["true"], "cwd": str(site.users.home(user)), "env": {"PATH": os.defpath}, "overrides": asked}
    status, answer = site.ask(user, "POST", "/v1/jobs/plan", body)
    return status, json.dumps(answer)


def test_a_group_that_is_lost_is_lost_to_what_is_submitted_from_then_on(site: Site) -> None:  # noqa: F811
    alice = site.users.alice
    with team(alice) as number:
        running = site.submit(alice, "sleep", "600", ntasks=1, elastic="off")
        site.daemon.wait(running, "running", timeout_s=60)
        until(lambda: plan(site, alice)[0] == 200 and {number} <= groups_of_sessions(site, alice)[0], "no such group")
        change(alice, "--groups", "")

        def lost() -> bool:
            sessions = plan(site, alice)[0] == 200 and groups_of_sessions(site, alice)
            return bool(sessions) and all(number not in groups for groups in sessions or ())

        until(lost, "the group is still there", A_MINUTE_S, lambda: str(groups_of_sessions(site, alice)))
    assert site.daemon.job(running)["state"] == "running", "what runs goes on"
    assert site.ask(alice, "POST", f"/v1/jobs/{running}/cancel")[0] in (200, 202, 204)
    site.daemon.wait(running, "cancelled", timeout_s=60)
    later = site.submit(alice, "id", "-G", ntasks=1, elastic="off")
    assert site.daemon.wait(later, timeout_s=60)["state"] == "completed"


def test_a_user_without_a_shell_is_not_acted_for_and_what_runs_goes_on(site: Site) -> None:  # noqa: F811
    """Until the shell is back: one job of alice's runs, and one waits. What is to be done for it waits, too."""
    alice, bob, why = site.users.alice, site.users.bob, "has no shell to log in with"
    go = site.users.home(alice) / "go"
    running = site.submit(alice, "sh", "-c", "until [ -e go ]; do sleep .2; done; echo ran on", ntasks=1, elastic="off")
    site.daemon.wait(running, "running", timeout_s=60)
    block = site.cluster.sbatch("--ntasks=6", "--time=10", script="sleep 600")
    site.cluster.until(lambda: site.cluster.states().get(block) == "RUNNING", "the block did not start", 60)
    waiting = site.submit(alice, "sleep", "600", ntasks=4, elastic="off")
    site.daemon.wait(waiting, "waiting", timeout_s=60)
    until(lambda: any(e["kind"] == "subjob.pending" for e in site.daemon.events(waiting)), "it is not at Slurm", 60)
    change(alice, "--shell", "/usr/sbin/nologin")
    try:
        refused = "alice is acted for all the same"
        until(lambda: why in plan(site, alice)[1], refused, A_MINUTE_S, lambda: plan(site, alice)[1])
        job = site.submit(bob, "true", ntasks=1, elastic="off")
        assert site.daemon.wait(job, timeout_s=60)["state"] == "completed", "others go on"
        as_user(alice, ["touch", str(go)])
        assert site.daemon.wait(running, timeout_s=60)["state"] == "completed", "what ran goes on to its end"
        assert site.ask(alice, "POST", f"/v1/jobs/{waiting}/cancel")[0] in (200, 202, 204)

        def told() -> str:
            return json.dumps(site.daemon.explain(waiting))

        until(lambda: why in told(), "it is not said why it waits", 60, told)
        rows = dict(row.split() for row in site.cluster.run("squeue", "-h", "-t", "PD", "-o", "%u %i").splitlines())
        site.cluster.run("scancel", rows[alice])  # what an operator does then
        site.daemon.wait(waiting, "cancelled", timeout_s=60)
    finally:
        change(alice, "--shell", "/bin/bash")
        site.cluster.run("scancel", block)
    again = site.submit(alice, "true", ntasks=1, elastic="off")
    assert site.daemon.wait(again, timeout_s=A_MINUTE_S)["state"] == "completed"
    assert "ran on" in str(site.ask(alice, "GET", f"/v1/jobs/{running}/logs")[1])
