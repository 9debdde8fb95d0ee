"""The workers' endpoints: the protocol's types are kept to, and only a subjob's own token opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from ejbd.api.app import create_app
from ejbd.config import Settings
from tests.fakes.port import WORKER_TOKEN, FakeManager, new_store

REGISTRATION = {
    "node": "n1",
    "processors": 4,
    "host": "h.example.org",
    "pid": 4711,
    "address": "127.0.0.1",
    "boot": "c0ffee",
    "engines": [],
}
HEADERS = {"Authorization": f"Bearer {WORKER_TOKEN}", "X-EJB-Protocol": "1"}
REPORTS: list[dict[str, Any]] = [
    {"n": 1, "kind": "result", "seq": 17, "ok": True, "error": "", "data": {"pids": {"0": 4711}}},
    {"n": 2, "kind": "rank-exit", "epoch": 1, "rank": 3, "code": 137},
    {"n": 3, "kind": "launch", "ordinal": 0, "size": 16, "file": "/spool/jobs/x/launches/0.json"},
    {"n": 4, "kind": "script-exit", "run": 1, "code": 0},
    {"n": 5, "kind": "log", "level": "warning", "message": "the spool is full\n"},
]


class World:
    def __init__(self, manager: FakeManager) -> None:
        self.manager = manager
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(manager)), base_url="http://ejbd", headers=HEADERS
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = new_store(tmp_path / "ejbd.sqlite")
    yield World(FakeManager(Settings(state_dir=tmp_path), store))
    store.close()


async def test_registering(world: World) -> None:
    answer = await world.client.post("/v1/worker/register", json=REGISTRATION)
    assert answer.json() == {"worker": "w1", "heartbeat_s": 5.0, "poll_s": 20.0}
    assert world.manager.registered == [REGISTRATION | {"dmtcp": None}]


@pytest.mark.parametrize("change", [{"processors": "4"}, {"processors": 0}, {"more": 1}, {"node": ""}, {"pid": None}])
async def test_registrations_that_break_the_protocol(world: World, change: dict[str, Any]) -> None:
    answer = await world.client.post("/v1/worker/register", json={**REGISTRATION, **change})
    assert answer.status_code == 422 and world.manager.registered == []


async def test_every_kind_of_report(world: World) -> None:
    answer = await world.client.post("/v1/worker/reports", json={"worker": "w1", "reports": REPORTS})
    assert answer.json() == {"accepted": 5}
    assert world.manager.reports == REPORTS
    heartbeat = await world.client.post("/v1/worker/reports", json={"worker": "w1", "reports": []})
    assert heartbeat.json() == {"accepted": 5}


@pytest.mark.parametrize(
    "report",
    [
        {"n": 1, "kind": "gossip"},
        {"n": 1},
        {"n": "1", "kind": "script-exit", "run": 1, "code": 0},
        {"n": 1, "kind": "script-exit", "run": 1},
        {"n": 1, "kind": "script-exit", "run": 1, "code": 0, "more": 0},
        {"n": 1, "kind": "rank-exit", "epoch": 1, "rank": -1, "code": 0},
        {"n": 1, "kind": "result", "seq": 1, "ok": "yes", "error": "", "data": {}},
    ],
)
async def test_reports_that_break_the_protocol(world: World, report: dict[str, Any]) -> None:
    answer = await world.client.post("/v1/worker/reports", json={"worker": "w1", "reports": [report]})
    assert answer.status_code == 422 and world.manager.reports == []


async def test_operations(world: World) -> None:
    world.manager.operations = [
        {"seq": 1, "kind": "checkpoint", "epoch": 2, "payload": {"epoch": 2, "timeout_s": 60}},
        {"seq": 2, "kind": "exit", "epoch": None, "payload": {}},
    ]
    answer = await world.client.get("/v1/worker/operations?worker=w1&after=1&wait=0")
    assert answer.json()["operations"] == world.manager.operations[1:]
    both = await world.client.get("/v1/worker/operations?worker=w1")
    assert both.json()["operations"] == world.manager.operations


async def test_an_operation_that_breaks_the_protocol_does_not_leave_the_house(world: World) -> None:
    world.manager.operations = [{"seq": 1, "kind": "checkpoint", "epoch": 2, "payload": {"epoch": "two"}}]
    with capture_logs() as logged:
        assert (await world.client.get("/v1/worker/operations?worker=w1")).status_code == 500
    assert [entry["event"] for entry in logged] == ["api.failed"]


@pytest.mark.parametrize("query", ["", "worker=w1&wait=-1", "worker=w1&wait=nan", "worker=w1&x=1", "worker=w1&after=x"])
async def test_questions_that_break_the_protocol(world: World, query: str) -> None:
    assert (await world.client.get(f"/v1/worker/operations?{query}")).status_code == 422


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer other.1:secret"}, 401),
        ({"Authorization": "Basic x"}, 401),
        ({"X-EJB-Protocol": "2"}, 422),
        ({"X-EJB-Protocol": ""}, 422),
    ],
)
async def test_another_subjobs_token_and_another_protocol(world: World, headers: dict[str, str], status: int) -> None:
    call = {"json": {"worker": "w1", "reports": []}, "headers": headers}
    assert (await world.client.post("/v1/worker/reports", **call)).status_code == status  # type: ignore[arg-type]
    without = httpx.AsyncClient(transport=world.client._transport, base_url="http://ejbd")
    assert (await without.post("/v1/worker/register", json=REGISTRATION)).status_code == 401


async def test_a_workers_token_is_no_users(world: World) -> None:
    assert (await world.client.get("/v1/jobs")).status_code == 401
