"""Pools as users ask for them: which there are, whose they are, and how a pool's own daemon is reached."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.cli import pool_door
from ejbd.cli.own_daemon import own_daemon
from ejbd.client import pools
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.store.models import Job
from tests.fakes.api_server import ApiServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    (tmp_path / "site").mkdir()
    running = ApiServer(tmp_path / "site", "auto", {"batch": "slurm"})
    yield running
    running.close()


def test_a_pool_is_started_once_listed_and_stopped(server: ApiServer) -> None:
    client = Client(socket=server.socket)
    made = client.start_pool("play", nodes=3, time="8:00:00")
    (told,) = client.pools()
    assert told == made and (told["name"], told["state"]) == ("play", "received")
    job = client.get(f"/v1/jobs/{made['job']}")
    assert (job["name"], job["elastic"], job["walltime_s"]) == ("ejb-pool-play", False, 8 * 3600.0)
    with pytest.raises(EjbError, match="there is a pool play already"):
        client.start_pool("play")
    with pytest.raises(EjbError, match="does not run yet"):
        client.pool("play")
    client.stop_pool("play")
    with pytest.raises(EjbError) as caught:
        client.stop_pool("none")
    assert caught.value.code is Code.NOT_FOUND


def test_of_requests_at_the_same_moment_one_begins_a_pool(server: ApiServer) -> None:
    body, key = {"name": "play", "nodes": 2, "time": "10"}, {"Idempotency-Key": "k"}

    async def ask() -> list[httpx.Response]:
        transport = httpx.AsyncHTTPTransport(uds=server.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://ejbd", timeout=180) as client:
            plain = [client.post("/v1/pools", json=body) for _ in range(6)]
            return await asyncio.gather(*plain)

    answers = asyncio.run(ask())
    assert sorted(one.status_code for one in answers) == [201, *[409] * 5]
    jobs = list(Client(socket=server.socket).jobs())
    assert len(jobs) == 1
    with httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=180) as client:
        other = {**body, "name": "work"}
        first, again = (client.post("/v1/pools", json=other, headers=key) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 200) and first.json() == again.json()
        assert client.post("/v1/pools", json={**other, "nodes": 3}, headers=key).status_code == 409
        assert client.delete("/v1/pools/work").status_code == 200
        after = {**other, "after": first.json()["job"]}
        assert client.post("/v1/pools", json=after).status_code == 201


def test_a_job_of_a_pools_name_is_no_pool(server: ApiServer) -> None:
    client = Client(socket=server.socket)
    job = client.submit(["true"], name="ejb-pool-play", time="5", elastic="off")
    assert client.pools() == []
    with pytest.raises(EjbError, match="there is no pool play"):
        client.stop_pool("play")
    client.start_pool("play")
    assert job.status()["state"] == "received"


def test_one_that_is_refused_leaves_no_folder(server: ApiServer) -> None:
    server.settings.batch = "local"
    with pytest.raises(EjbError, match="a pool is an allocation of Slurm"):
        Client(socket=server.socket).start_pool("play")
    assert pools.names() == []


def test_one_that_has_ended_is_started_again_for_the_jobs_that_it_has_left(server: ApiServer) -> None:
    folder = pools.folder_of("play")
    folder.mkdir(parents=True)
    (folder / pools.LEFT).write_text(json.dumps({"jobs": ["aaaa"]}))
    made = Client(socket=server.socket).start_pool("play")
    assert pools.job_of("play") == made["job"]


def test_those_of_others_are_for_operators(server: ApiServer) -> None:
    client = Client(socket=server.socket)
    job = client.start_pool("play")["job"]

    def give(session: Session) -> None:
        session.scalars(select(Job).where(Job.id == job)).one().user = "eve"

    server.store.write_sync(give)
    assert [one["user"] for one in client.pools()] == ["eve"], "an administrator sees all"
    with pytest.raises(EjbError, match="there is no pool play"):
        client.stop_pool("play")
    assert client.get("/v1/pools/play", user="eve")["job"] == job


@pytest.mark.slow
def test_its_daemon_is_reached_by_its_socket_and_from_other_hosts_by_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = pools.folder_of("play")
    folder.mkdir(parents=True, mode=0o700)
    if not pool_door.certificate(folder, "localhost", "127.0.0.1"):
        pytest.skip("no openssl")
    files = {"certificate": folder / pools.CERTIFICATE, "key": folder / "key.pem"}
    (folder / "state").mkdir()
    tls = {"listen": "127.0.0.1:0", **{name: str(path) for name, path in files.items()}}
    running = ApiServer(folder / "state", settings={"tls": tls})
    try:
        assert files["key"].stat().st_mode & 0o077 == 0
        url = pool_door.open_door(folder, "127.0.0.1", Client(socket=running.socket))
        assert url == running.servers.tls_url
        assert (folder / pools.TOKEN).stat().st_mode & 0o777 == 0o600
        told = {"socket": running.socket, "host": socket.gethostname(), "url": url, "batch_job": "7"}
        (folder / pools.FILE).write_text(json.dumps(told))
        assert Client().pool("play").place.url is None
        (folder / pools.FILE).write_text(json.dumps(told | {"host": "elsewhere"}))
        there = Client().pool("play")
        assert there.place.url == url and list(there.jobs()) == []
        assert there.place.for_jobs() == {"EJB_URL": url, "EJB_CA": str(folder / pools.CERTIFICATE)}
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{url}/v1/health", timeout=180)
        (folder / pools.FILE).write_text(json.dumps(told | {"host": "elsewhere", "url": None}))
        with pytest.raises(EjbError, match="answers on elsewhere alone"):
            Client().pool("play")
    finally:
        running.close()


@pytest.mark.slow
def test_a_daemon_of_a_deep_folder_has_a_socket_apart(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    down = [sys.executable, "-m", "ejbd.batch.local", "down", str(folder / "state" / "cluster")]
    with ExitStack() as stack:
        stack.callback(subprocess.run, down, check=False, capture_output=True, timeout=180)  # it outlives its daemon
        daemon = stack.enter_context(own_daemon(folder, "", {}))
        place = Path(daemon.place.socket)
        assert place.parent.parent != folder and place.parent.stat().st_mode & 0o777 == 0o700
        assert daemon.get("/v1/health")["ok"]
    assert not place.parent.exists()
