"""What somebody who has no name here can cost: connections, time, memory, and what is kept of him."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ejbd.errors import EjbError
from ejbd.store.store import Store
from tests.fakes.api_server import ApiServer
from tests.fakes.live import LiveWorld

BOUND_S = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path)
    yield running
    running.close()


def connected(server: ApiServer) -> socket.socket:
    address = urlsplit(server.servers.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=BOUND_S)


def unix(server: ApiServer) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=BOUND_S)


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(0.01)
    try:
        return sock.recv(100) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_thousand_idle_connections_make_it_deaf_to_nobody(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ejbd.api.server.most_connections", lambda: 20)
    with unix(server) as local:
        token = local.post("/v1/tokens", json={}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.servers.url, timeout=BOUND_S, headers=headers) as known, unix(server) as local:
        assert known.get("/v1/jobs").status_code == 200
        idle = [connected(server) for _ in range(200)]
        assert known.get("/v1/jobs").status_code == 200  # on the connection that it has
        assert httpx.get(f"{server.servers.url}/v1/jobs", headers=headers, timeout=BOUND_S).status_code == 200
        assert local.get("/v1/jobs").status_code == 200
        until = time.monotonic() + BOUND_S
        while sum(not is_closed(sock) for sock in idle) > 20:
            assert time.monotonic() < until
        for sock in idle:
            sock.close()


@pytest.mark.parametrize("sent", [b"", b"GET /v1/health HT", b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: b\r\n"])
def test_headers_that_do_not_come_are_not_waited_for(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("ejbd.api.server.HEADERS_S", 0.3)
    monkeypatch.setattr("ejbd.api.server.SILENT_S", 0.3)
    with connected(server) as sock:
        sock.sendall(sent)
        assert sock.recv(100) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 200_000,
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 40_000 + b"\r\n",
        b"GET /v1/health?" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\n" + b"A" * 200_000,
    ],
    ids=["one without an end", "many", "address", "name"],
)
def test_a_head_that_is_too_long_is_not_taken(server: ApiServer, sent: bytes) -> None:
    with connected(server) as sock:
        told = b""
        with contextlib.suppress(ConnectionError):  # what it has not read is what it resets the connection for
            sock.sendall(sent)
            while piece := sock.recv(1000):
                told += piece
        assert told[:12] in (b"", b"HTTP/1.1 400")
    assert httpx.get(f"{server.servers.url}/v1/health", timeout=BOUND_S).status_code in (200, 401)


def test_headers_after_a_body_are_not_taken(server: ApiServer) -> None:
    with unix(server) as local:
        token = local.post("/v1/tokens", json={}).json()["token"]
    with connected(server) as sock:
        head = "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n2\r\n{{}}\r\n0\r\nA: b\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/jobs/plan", "/v1/tokens", "/v1/worker/reports", "/v1/worker/register"]
)
def test_nobody_is_answered_before_his_body_is_read(server: ApiServer, path: str) -> None:
    with connected(server) as sock:
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
        sock.sendall(head.encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 401")


def test_a_body_that_does_not_come_is_not_waited_for(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ejbd.api.server.BODY_S", 0.3)
    with unix(server) as local:
        token = local.post("/v1/tokens", json={}).json()["token"]
    with connected(server) as sock:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 60000\r\n\r\n{{"
        sock.sendall(head.encode())
        assert sock.recv(100) == b""


@pytest.mark.parametrize(
    "body", ["[" * 1_000_000, "[" + "[]," * 500_000 + "[]]", '{"a":' + "[" * 100 + "]" * 100 + "}"]
)
def test_nested_values_are_not_taken_apart(server: ApiServer, body: str) -> None:
    with unix(server) as local:
        answer = local.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
        assert "values" in answer.json()["detail"]


def test_a_route_takes_no_larger_body_than_it_can_need(server: ApiServer) -> None:
    with unix(server) as local:
        for path, status in (("/v1/tokens", 413), ("/v1/jobs", 422)):
            answer = local.post(path, content=json.dumps({"label": "x" * 100_000}))
            assert answer.status_code == status


async def test_nothing_is_kept_of_workers_that_nobody_knows(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    before = set(live.manager.world.memory.seen), set(live.manager.calls._waiting)
    for name in ("nobody", "x" * 200, f"{job}.1"):
        for subjob in ("none.1", f"{job}.1"):
            with pytest.raises(EjbError):
                await live.manager.worker_operations(subjob, name, 0, 0)
            with pytest.raises(EjbError):
                await live.manager.worker_reports(subjob, name, [])
    assert (set(live.manager.world.memory.seen), set(live.manager.calls._waiting)) == before


def test_no_answer_is_kept_on_its_way_or_taken_for_another_kind(server: ApiServer) -> None:
    with unix(server) as local:
        answers = [local.get("/v1/health"), local.get("/v1/jobs"), local.get("/v1/jobs/none"), local.get("/nowhere")]
        answers.append(local.post("/v1/jobs", content="{"))
        answers.append(httpx.get(f"{server.servers.url}/v1/jobs", timeout=BOUND_S))
    for answer in answers:
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
