"""How much one user may take of the daemon, and that it is no other's."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from ejbd.api.access.allowance import BURST_S, Allowances, Rates
from ejbd.api.auth import Principal
from ejbd.api.shares import Shares, Use
from ejbd.client import AsyncClient, Client
from ejbd.config import Limits
from ejbd.errors import EjbError
from ejbd.wire.rights import Proof, Role
from tests.fakes.api_server import ApiServer
from tests.unit.test_api_access import JOB, as_user
from tests.unit.test_api_neighbours import Connection

LIMITS = Limits(user_requests_per_s=2, user_streams=2, user_waiting_jobs=3, user_script_bytes=2000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path, settings={"admins": ["ada"], "limits": LIMITS})
    yield running
    running.close()


def too_many(answer: httpx.Response, detail: str, again_s: range) -> None:
    told = answer.json()
    assert answer.status_code == 429 and told["code"] == "too-many" and told["transient"]
    assert detail in told["detail"] and int(answer.headers["retry-after"]) == told["details"]["retry_after_s"]
    assert told["details"]["retry_after_s"] in again_s


def test_a_bucket_fills_by_its_rate_up_to_a_burst() -> None:
    now = [0.0]
    rates = Rates(2.0, lambda: now[0])
    burst = int(2 * BURST_S)
    assert [rates.take("ulla") for _ in range(burst)] == [0.0] * burst
    assert rates.take("ulla") == pytest.approx(0.5) and rates.take("uwe") == 0.0
    now[0] += 0.5
    assert rates.take("ulla") == 0.0 and rates.take("ulla") > 0
    now[0] += 3600
    assert [rates.take("ulla") for _ in range(burst + 1)].count(0.0) == burst


def test_beyond_its_rate_a_turn_is_waited_for_but_not_for_long() -> None:
    now = [0.0]
    rates = Rates(2.0, lambda: now[0], at_once=3)
    assert [rates.take_turn("ulla", 1.0) for _ in range(6)] == pytest.approx([0.0, 0.0, 0.0, 0.5, 1.0, 1.5])
    now[0] += 0.5
    assert rates.take_turn("ulla", 1.0) == pytest.approx(1.0) and rates.take_turn("uwe", 1.0) == 0.0


def test_buckets_that_are_full_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ejbd.api.access.allowance.MOST_KNOWN", 10)
    now = [0.0]
    rates = Rates(2.0, lambda: now[0])
    for n in range(1000):
        now[0] += BURST_S
        rates.take(f"u{n}")
    assert len(rates._left) <= 11


@pytest.mark.slow
def test_too_many_requests_are_refused_to_the_one_that_sends_them(server: ApiServer) -> None:
    server.servers.app.state.allowances._rates = Rates(2.0, lambda: 0.0)
    burst = int(2 * BURST_S)
    with as_user(server, "ulla", "read") as ulla, as_user(server, "uwe", "read") as uwe:
        assert [ulla.get("/v1/version").status_code for _ in range(burst)] == [200] * burst  # needs no name
        assert [ulla.get("/v1/jobs").status_code for _ in range(burst)] == [200] * burst
        too_many(ulla.get("/v1/jobs"), "2 requests a second", range(1, 2))
        assert uwe.get("/v1/jobs").status_code == 200
    with as_user(server, "ada", "admin") as ada:
        assert [ada.get("/v1/jobs").status_code for _ in range(burst + 1)] == [200] * (burst + 1)


async def test_a_user_that_submits_too_much_waits_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def count(_: object) -> int:
        return 0

    monkeypatch.setattr(asyncio, "sleep", sleep)
    allowances = Allowances(Limits(user_submissions_per_s=1, user_waiting_jobs=1000))
    manager: Any = SimpleNamespace(store=SimpleNamespace(read=count))
    ulla, uwe = (Principal(user, Role.USER, Proof.PEER, Role.USER.scope) for user in ("ulla", "uwe"))
    for _ in range(34):
        await allowances.workflow(ulla, manager)
    assert slept[:5] == [0.0] * 4 + [pytest.approx(1.0, abs=0.5)] and slept[-1] == pytest.approx(30.0, abs=0.5)
    with pytest.raises(EjbError, match="submits more than 1 jobs a second"):
        await allowances.workflow(ulla, manager)
    await allowances.workflow(uwe, manager)
    assert slept[-1] == 0.0


@pytest.mark.slow
def test_the_client_waits_where_that_is_soon(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [0.0], list[float]()
    rates = server.servers.app.state.allowances._rates = Rates(2.0, lambda: now[0])
    with as_user(server, "ulla", "read") as ulla:
        token = ulla.headers["authorization"].removeprefix("Bearer ")
    while not rates.take("ulla"):
        pass

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("ejbd.client.client.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with Client(url=server.servers.url, token=token) as client:
        assert client.get("/v1/jobs")["jobs"] == [] and waited == [1.0]

    async def asked() -> Any:
        async with AsyncClient(url=server.servers.url, token=token) as client:
            return await client.get("/v1/jobs")

    monkeypatch.setattr("ejbd.client.messages.LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(rates, "take", lambda user: 0.5)
    with pytest.raises(EjbError, match="2 requests a second"):
        asyncio.run(asked())


def test_a_user_has_so_many_waiting_jobs(server: ApiServer) -> None:
    with as_user(server, "ulla", "submit") as ulla, as_user(server, "uwe", "submit") as uwe:
        assert [ulla.post("/v1/jobs", json=JOB).status_code for _ in range(3)] == [201] * 3
        too_many(ulla.post("/v1/jobs", json=JOB), "3 jobs of ulla wait already", range(30, 100))
        assert uwe.post("/v1/jobs", json=JOB).status_code == 201
        assert ulla.post("/v1/jobs/last/cancel").status_code == 200
        assert ulla.post("/v1/jobs", json=JOB).status_code == 201


def test_a_workflow_counts_until_it_is_over(server: ApiServer) -> None:
    plan = "workflow:\n  stages:\n    wide: {command: wide, tasks: 8, walltime: 5}\n"
    flow = {"plan": plan, "file": "plan.yaml", "cwd": "/"}
    with as_user(server, "ulla", "submit") as ulla, as_user(server, "uwe", "submit") as uwe:
        assert [ulla.post("/v1/workflows", json=flow).status_code for _ in range(2)] == [201] * 2
        assert ulla.post("/v1/jobs", json=JOB).status_code == 201
        too_many(ulla.post("/v1/workflows", json=flow), "3 jobs of ulla wait already", range(30, 100))
        too_many(ulla.post("/v1/jobs", json=JOB), "3 jobs of ulla wait already", range(30, 100))
        assert uwe.post("/v1/workflows", json=flow).status_code == 201
    with as_user(server, "ada", "admin") as ada:
        assert [ada.post("/v1/workflows", json=flow).status_code for _ in range(4)] == [201] * 4


def test_a_script_may_be_so_long(server: ApiServer) -> None:
    head = "#!/bin/sh\n#SBATCH -n 4 -t 5\nsrun x\n"
    with as_user(server, "ulla", "submit") as ulla, as_user(server, "ada", "admin") as ada:
        fits = {"cwd": "/", "script": head + "#" * (2000 - len(head))}
        assert ulla.post("/v1/jobs", json=fits).status_code == 201
        longer = {**fits, "script": fits["script"] + "#"}
        told = ulla.post("/v1/jobs", json=longer)
        assert told.status_code == 413 and "2000 bytes" in told.json()["detail"]
        assert ulla.post("/v1/jobs", json={**fits, "script": head + "é" * 990}).status_code == 413
        assert ada.post("/v1/jobs", json=longer).status_code == 201


def test_streams_count_until_they_end(server: ApiServer) -> None:
    with as_user(server, "ulla", "read") as ulla, as_user(server, "uwe", "read") as uwe:
        with ulla.stream("GET", "/v1/events/stream") as one, ulla.stream("GET", "/v1/events/stream"):
            lines = one.iter_lines()  # kept: an iterator that is let go closes its stream
            assert one.status_code == 200 and next(lines) == "retry: 1000"
            with ulla.stream("GET", "/v1/events/stream") as third:  # one that is not refused has no end to be read
                assert third.status_code == 429 and int(third.headers["retry-after"]) in range(30, 100)
            with uwe.stream("GET", "/v1/events/stream") as other:
                assert other.status_code == 200
        until = time.monotonic() + 20
        while server.servers.app.state.allowances._streams:
            server.run(server.manager.announce())
            assert time.monotonic() < until
            time.sleep(0.05)
        with ulla.stream("GET", "/v1/events/stream") as again:
            assert again.status_code == 200


def test_a_user_has_so_many_connections_and_an_address_has_its_share() -> None:
    shares, cut = Shares(most_of_user=3), list[Connection]()
    for party in ("user ulla", "uid 1000", "address 10.0.0.1"):
        for _ in range(6):
            shares.enter(Connection(party, time.monotonic(), Use.IDLE, cut), 100)
    assert [one.party for one in cut] == ["user ulla"] * 3 + ["uid 1000"] * 3


def test_of_one_users_bodies_that_never_end_two_are_read(tmp_path: Path) -> None:
    """Of the others no more than a beginning is taken in. That user's short requests go on, and others' long ones."""
    server = ApiServer(tmp_path)
    address = ("127.0.0.1", int(server.servers.url.rpartition(":")[2]))
    long = {"cwd": "/", "script": "#!/bin/sh\n#SBATCH --time=5\n" + "true\n" * 20_000}
    try:
        with as_user(server, "ulla", "submit") as ulla, as_user(server, "uwe", "submit") as uwe, ExitStack() as stack:
            head = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n"
            head += f"Authorization: {ulla.headers['authorization']}\r\n\r\n"
            words = head.encode() + b'{"cwd": "/' + b"x" * 7_900_000
            sent = {stack.enter_context(socket.create_connection(address, timeout=30)): 0 for _ in range(4)}
            for one in sent:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
                one.setblocking(False)
            until = time.monotonic() + 120  # however busy the machine is

            def whole() -> int:
                return sum(done == len(words) for done in sent.values())

            while whole() < 2:
                assert time.monotonic() < until
                for one in select.select([], [one for one in sent if sent[one] < len(words)], [], 0.1)[1]:
                    sent[one] += one.send(words[sent[one] : sent[one] + 100_000])
            assert ulla.post("/v1/jobs", json=JOB).status_code == 201
            assert uwe.post("/v1/jobs", json=long).is_success
            assert whole() == 2 and min(sent.values()) < len(words)
            for one in sent:
                one.close()
            assert ulla.post("/v1/jobs", json=long).is_success
    finally:
        server.close()
