"""The real server: who is at the other end of the socket, and how it begins and ends."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ejbd.api.app import create_app
from ejbd.api.server import serve
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from tests.fakes.api_server import ApiServer
from tests.fakes.port import WORKER_SECRET, WORKER_SUBJOB
from tests.fakes.proving import Proving

JOB = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path)
    yield running
    running.close()


def unix(server: ApiServer) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=20)


def test_the_peer_of_the_unix_socket_is_known(server: ApiServer) -> None:
    with unix(server) as client:
        assert client.post("/v1/jobs", json=JOB).status_code == 201
        assert client.get("/v1/jobs/last").json()["user"] == pwd.getpwuid(os.geteuid()).pw_name


def test_another_user_is_another_user(server: ApiServer) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with unix(server) as client:
        client.post("/v1/jobs", json=JOB)
    for folder in (server.settings.state_dir, *server.settings.state_dir.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    other = pwd.getpwnam("daemon")  # not nobody, which all users of other namespaces are
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(other.pw_gid)
            os.setuid(other.pw_uid)
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(server.socket)
            sock.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = b""
            while part := sock.recv(65536):
                data += part
            os.write(writer, data)
        finally:
            os._exit(0)
    os.close(writer)
    answer = b""
    while part := os.read(reader, 65536):
        answer += part
    os.close(reader)
    os.waitpid(child, 0)
    assert b" 200 " in answer.split(b"\r\n")[0] and b'{"jobs":[],"next":null}' in answer


def test_tcp_needs_a_token(server: ApiServer) -> None:
    assert server.servers.url.startswith("http://127.0.0.1:") and not server.servers.url.endswith(":0")
    with httpx.Client(base_url=server.servers.url, timeout=20) as tcp, unix(server) as local:
        assert tcp.get("/v1/jobs").status_code == 401
        token = local.post("/v1/tokens", json={}).json()["token"]
        assert tcp.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert local.get("/v1/jobs", headers={"Authorization": "Bearer nonsense"}).status_code == 401


def test_a_body_of_a_hundred_megabytes_is_refused(server: ApiServer) -> None:
    piece = b"x" * (1024 * 1024)
    for headers in ({"Content-Length": str(100 * len(piece))}, {}):
        with unix(server) as client:
            answer = client.post("/v1/jobs", content=(piece for _ in range(100)), headers=headers)
        assert answer.status_code == 413 and answer.json()["code"] == "too-large"


def test_the_server_ends_soon_whatever_waits(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    auth = Proving(WORKER_SUBJOB, WORKER_SECRET)
    with unix(server) as client, unix(server) as other:
        id = client.post("/v1/jobs", json=JOB).json()["id"]
        with client.stream("GET", f"/v1/jobs/{id}/events/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"

            waits, plain = asyncio.Event(), server.manager.worker_operations

            async def operations(*given: Any) -> Any:
                waits.set()
                return await plain(*given)

            monkeypatch.setattr(server.manager, "worker_operations", operations)

            async def poll() -> int:
                async with httpx.AsyncClient(
                    transport=httpx.AsyncHTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=180
                ) as waiting:
                    query = {"worker": "w1", "wait": "50"}
                    task = asyncio.create_task(waiting.get("/v1/worker/operations", params=query, auth=auth))
                    await asyncio.wait_for(waits.wait(), 60)
                    await server.servers.stop()
                    return (await task).status_code

            begun = time.monotonic()
            assert server.run(poll()) == 200
            list(lines)
        assert time.monotonic() - begun < 20
        assert not Path(server.socket).exists()
        with pytest.raises(httpx.ConnectError):
            other.get("/v1/health")
    server.listen_again()


def test_the_socket_may_be_used_by_everybody_and_its_folder_not_be_read(tmp_path: Path) -> None:
    running = ApiServer(tmp_path)
    try:
        assert stat.S_IMODE(Path(running.socket).stat().st_mode) == 0o666
    finally:
        running.close()

    async def elsewhere() -> int:
        settings = Settings(state_dir=tmp_path, socket=tmp_path / "new" / "ejbd.sock")
        servers = await serve(create_app(running.manager), settings)
        mode = stat.S_IMODE((tmp_path / "new").stat().st_mode)
        await servers.stop()
        return mode

    assert asyncio.run(elsewhere()) == 0o711


def test_a_stale_socket_is_replaced_and_a_live_one_refused(server: ApiServer, tmp_path: Path) -> None:
    async def second(path: Path) -> None:
        servers = await serve(create_app(server.manager), Settings(state_dir=tmp_path, socket=path))
        await servers.stop()

    with pytest.raises(EjbError, match="another daemon") as caught:
        asyncio.run(second(Path(server.socket)))
    assert caught.value.code is Code.CONFLICT
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    asyncio.run(second(stale))
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(EjbError, match="something else than a socket"):
        asyncio.run(second(plain))
    with pytest.raises(EjbError, match="bytes; 103 is the most"):
        asyncio.run(second(tmp_path / ("x" * 120)))
    with unix(server) as client:
        assert client.get("/v1/health").status_code == 200


@pytest.mark.parametrize("listen", ["", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":80", "no.such.host.invalid:0"])
def test_addresses_that_cannot_be_used(server: ApiServer, tmp_path: Path, listen: str) -> None:
    settings = Settings(state_dir=tmp_path, socket=tmp_path / "b.sock", listen=listen)
    with pytest.raises(EjbError) as caught:
        asyncio.run(serve(create_app(server.manager), settings))
    assert caught.value.code is Code.INVALID
    assert not (tmp_path / "b.sock").exists()


def test_a_port_that_is_taken(server: ApiServer, tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path, socket=tmp_path / "b.sock", listen=server.servers.url.removeprefix("http://")
    )
    with pytest.raises(EjbError, match="cannot listen") as caught:
        asyncio.run(serve(create_app(server.manager), settings))
    assert caught.value.code is Code.CONFLICT
