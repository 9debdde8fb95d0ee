"""A job runs with the group of the process that submits it, or is refused in a sentence (newgrp)."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ejbd.api.access.groups import refuse_another_group
from ejbd.api.auth import Principal
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Proof, Role, Scope
from tests.fakes.api_server import ApiServer
from tests.unit.test_api_access import JOB

ME = pwd.getpwuid(os.geteuid())


def caller(gid: int | None, user: str = ME.pw_name) -> Principal:
    return Principal(user, Role.USER, Proof.PEER, Scope.SUBMIT, gid=gid)


def test_jobs_run_with_the_daemons_group_or_with_the_users_own() -> None:
    own, helped = Settings(), Settings(batch="slurm", identity="helper", helper={"spool": "/scratch/%u/.ejb"})
    refuse_another_group(caller(os.getegid()), own)
    refuse_another_group(caller(ME.pw_gid), helped)
    for settings in (own, helped):
        refuse_another_group(caller(None), settings)
        with pytest.raises(EjbError) as refused:
            refuse_another_group(caller(54321), settings)
        assert refused.value.code is Code.UNSUPPORTED
        assert "this process has group 54321, and jobs of EJB run with group " in refused.value.sentence()
        assert "leave the shell of newgrp" in refused.value.sentence()
    refuse_another_group(caller(54321, "no-such-user-here"), helped)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can take any group")
def test_a_submission_under_another_group_is_refused_and_looks_are_not(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    other = next(one for one in grp.getgrall() if one.gr_gid not in (0, os.getegid()))
    ask = "import http.client, json, socket, sys\n" + (
        "c = http.client.HTTPConnection('ejbd', timeout=180)\n"
        "c.sock = socket.socket(socket.AF_UNIX)\n"
        "c.sock.connect(sys.argv[1])\n"
        "c.request(sys.argv[2], sys.argv[3], sys.argv[4], {'Content-Type': 'application/json'})\n"
        "a = c.getresponse()\n"
        "print(a.status, json.loads(a.read()).get('detail', ''))\n"
    )
    flow = '{"plan": "x", "file": "p", "cwd": "/"}'
    try:
        for method, path, body, said in (
            ("POST", "/v1/jobs", httpx.Request("POST", "http://x", json=JOB).content.decode(), "422 this process has "),
            ("POST", "/v1/workflows", flow, "422 this process has group "),
            ("GET", "/v1/jobs", "", "200"),
        ):
            argv = [sys.executable, "-c", ask, server.socket, method, path, body]
            done = subprocess.run(argv, group=other.gr_gid, capture_output=True, text=True, timeout=180, check=False)
            assert done.stdout.startswith(said), (done.stdout, done.stderr)
            assert method == "GET" or f"group {other.gr_name}," in done.stdout
    finally:
        server.close()
