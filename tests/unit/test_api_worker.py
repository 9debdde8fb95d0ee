"""The workers' endpoints: the protocol's types are kept to, and only a subjob's own token opens them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from ejbd.api.app import create_app
from ejbd.api.shares import WORKERS
from ejbd.api.worker_door import AT_ONCE, MOST_BYTES
from ejbd.config import Settings
from ejbd.manager.protocol import proofs
from ejbd.store.turns import ASKER
from tests.fakes.port import WORKER_SECRET, WORKER_SUBJOB, FakeManager, new_store
from tests.fakes.proving import Proving

REGISTRATION = {
    "node": "n1",
    "processors": 4,
    "host": "h.example.org",
    "pid": 4711,
    "address": "127.0.0.1",
    "boot": "c0ffee",
    "engines": [],
}
REPORTS: list[dict[str, Any]] = [
    {"n": 1, "kind": "result", "seq": 17, "ok": True, "error": "", "data": {"pids": {"0": 4711}}},
    {"n": 2, "kind": "rank-exit", "epoch": 1, "rank": 3, "code": 137, "memory": True},
    {
        "n": 3,
        "kind": "launch",
        "ordinal": 0,
        "size": 16,
        "file": "/spool/jobs/x/launches/0.json",
        "together": False,
        "time": "",
        "program": "",
    },
    {"n": 4, "kind": "script-exit", "run": 1, "code": 0, "signal": None},
    {"n": 5, "kind": "log", "level": "warning", "message": "the spool is full\n"},
]


class World:
    def __init__(self, manager: FakeManager) -> None:
        self.manager = manager
        self.proving = Proving(WORKER_SUBJOB, WORKER_SECRET)
        self.transport = httpx.ASGITransport(create_app(manager))
        self.client = httpx.AsyncClient(transport=self.transport, base_url="http://ejbd", auth=self.proving)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = new_store(tmp_path / "ejbd.sqlite")
    yield World(FakeManager(Settings(state_dir=tmp_path), store))
    store.close()


async def test_registering(world: World) -> None:
    answer = await world.client.post("/v1/worker/register", json=REGISTRATION)
    assert answer.json() == {"worker": "w1", "heartbeat_s": 5.0, "poll_s": 20.0}
    assert world.manager.registered == [REGISTRATION | {"dmtcp": None, "age_s": None, "accepted": 0}]


@pytest.mark.parametrize("change", [{"processors": "4"}, {"processors": 0}, {"more": 1}, {"node": ""}, {"pid": None}])
async def test_registrations_that_break_the_protocol(world: World, change: dict[str, Any]) -> None:
    answer = await world.client.post("/v1/worker/register", json={**REGISTRATION, **change})
    assert answer.status_code == 422 and world.manager.registered == []


async def test_every_kind_of_report(world: World) -> None:
    answer = await world.client.post("/v1/worker/reports", json={"worker": "w1", "reports": REPORTS})
    assert answer.json() == {"accepted": 5}
    assert world.manager.reports == [{**report, "told_s": None} for report in REPORTS]
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


async def test_a_process_of_the_job_asks_for_another_width(world: World) -> None:
    answer = await world.client.post("/v1/worker/elastic", json={"call": "resize", "to": 16})
    assert (answer.status_code, answer.json()["held"]) == (200, 16)
    assert world.manager.elastic_calls == [{"subjob": WORKER_SUBJOB, "call": "resize", "to": 16, "by": None, "key": ""}]
    for wrong in ({"call": "grow"}, {"call": "resize", "to": 0}, {"call": "resize", "to": "16"}, {}):
        assert (await world.client.post("/v1/worker/elastic", json=wrong)).status_code == 422


async def test_operations(world: World) -> None:
    world.manager.operations = [
        {"seq": 1, "kind": "checkpoint", "epoch": 2, "payload": {"epoch": 2, "timeout_s": 60}},
        {"seq": 2, "kind": "exit", "epoch": None, "payload": {"code": 0}},
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


async def test_every_answer_to_a_proved_request_is_proved(world: World) -> None:
    calls = {
        ("POST", "/v1/worker/register"): 200,
        ("GET", "/v1/worker/operations?worker=w1&wait=0&after=9"): 200,
        ("GET", "/v1/worker/operations?worker=w1&wait=x"): 422,
        ("GET", "/v1/worker/nothing"): 404,
        ("DELETE", "/v1/worker/reports"): 405,
    }
    for (method, path), status in calls.items():
        answer = await world.client.request(method, path, json=REGISTRATION if method == "POST" else None)
        assert (answer.status_code, world.proving.believed) == (status, True), path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer abc.1:worker-secret"}, 401),
        ({"Authorization": "Basic x"}, 401),
        ({"Authorization": f"EJB-HMAC-SHA256 abc.1 - 1 {'0' * 64} {'0' * 64}"}, 401),
        ({"Authorization": f"EJB-HMAC-SHA256 other.1 - 1 {'0' * 64} {'0' * 64}"}, 401),
        ({"X-EJB-Protocol": "1", "Authorization": "Bearer abc.1:worker-secret"}, 422),
    ],
)
async def test_who_proves_nothing_comes_in_nowhere(world: World, headers: dict[str, str], status: int) -> None:
    anybody = httpx.AsyncClient(transport=world.transport, base_url="http://ejbd", headers=headers)
    for method, path in (("POST", "register"), ("GET", "operations?worker=w1"), ("POST", "reports"), ("GET", "x")):
        answer = await anybody.request(method, f"/v1/worker/{path}")
        assert answer.status_code == status
        assert proofs.PROOF_HEADER not in answer.headers
    assert world.manager.registered == []


async def test_a_worker_of_an_earlier_version_is_told_so_in_one_sentence(world: World) -> None:
    old = {"X-EJB-Protocol": "1", "Authorization": "Bearer abc.1:worker-secret"}
    anybody = httpx.AsyncClient(transport=world.transport, base_url="http://ejbd", headers=old)
    told = (await anybody.post("/v1/worker/register", json=REGISTRATION)).json()
    assert "speaks worker protocol 2" in told["detail"] and "speaks '1'" in told["detail"]


async def test_a_request_that_was_overheard_is_worth_nothing(world: World) -> None:
    assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 200
    last = world.proving.session, world.proving.count
    header = world.proving.header("POST", "/v1/worker/register", b"{}")
    anybody = httpx.AsyncClient(transport=world.transport, base_url="http://ejbd")
    headers = {"Authorization": header, "X-EJB-Protocol": "2"}
    first = await anybody.post("/v1/worker/register", content=b"{}", headers=headers)
    again = await anybody.post("/v1/worker/register", content=b"{}", headers=headers)
    changed = await anybody.post("/v1/worker/register", content=b"{ }", headers=headers)
    elsewhere = await anybody.post("/v1/worker/reports", content=b"{}", headers=headers)
    assert [r.status_code for r in (first, again, changed, elsewhere)] == [422, 401, 401, 401]
    assert len(world.manager.registered) == 1
    # A daemon that was restarted has never offered that session.
    restarted = httpx.ASGITransport(create_app(world.manager))
    other = httpx.AsyncClient(transport=restarted, base_url="http://ejbd")
    world.proving.session, world.proving.count = last
    fresh = world.proving.header("POST", "/v1/worker/register", b"{}")
    refused = await other.post("/v1/worker/register", content=b"{}", headers={**headers, "Authorization": fresh})
    assert refused.status_code == 401 and refused.headers[proofs.SESSION_HEADER] != last[0]


async def test_another_body_on_the_way_is_not_taken_and_costs_the_worker_nothing(world: World) -> None:
    """Whoever is in between may have a fresh header before the daemon has: of the body it holds for one alone."""
    assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 200
    meant = json.dumps({"worker": "w1", "reports": REPORTS[:1]}).encode()
    forged = json.dumps({"worker": "w1", "reports": REPORTS[1:2]}).encode()
    header = world.proving.header("POST", "/v1/worker/reports", meant)
    between = httpx.AsyncClient(transport=world.transport, base_url="http://ejbd")
    headers = {"Authorization": header, "X-EJB-Protocol": "2", "Content-Type": "application/json"}
    refused = await between.post("/v1/worker/reports", content=forged, headers=headers)
    assert refused.status_code == 401 and proofs.PROOF_HEADER not in refused.headers
    assert world.manager.reports == []
    taken = await between.post("/v1/worker/reports", content=meant, headers=headers)
    assert taken.status_code == 200 and world.manager.reports == [{**REPORTS[0], "told_s": None}]


async def test_a_secret_that_held_is_looked_up_again_where_it_holds_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subjob that is submitted once more has another: the cases are a worker of either."""
    asked: list[str] = []

    async def secret(subjob: str) -> str | None:
        asked.append(subjob)
        return secrets[subjob]

    secrets: dict[str, str | None] = {"abc.1": world.proving.secret}
    monkeypatch.setattr(world.manager, "subjob_secret", secret)
    for _ in range(3):
        assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 200
    assert asked == ["abc.1"]
    world.proving.secret = secrets["abc.1"] = "another"
    assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 200
    world.proving.secret = "a third"
    assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 401
    secrets["abc.1"] = None
    assert (await world.client.post("/v1/worker/register", json=REGISTRATION)).status_code == 401
    assert asked == ["abc.1"] * 4


async def test_many_requests_of_one_subjob_keep_no_other_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty at once, none of which comes to an end, are eight for the manager; another subjob's goes on."""
    released, begun = asyncio.Event(), list[str]()

    async def reports(subjob: str, worker: str, told: list[dict[str, Any]]) -> int:
        begun.append(subjob)
        assert ASKER.get() == WORKERS + subjob, "what it reads and writes takes turns, too (test_users_turns.py)"
        if subjob == WORKER_SUBJOB:
            await released.wait()
        return 1

    async def secret(subjob: str) -> str:
        return WORKER_SECRET

    monkeypatch.setattr(world.manager, "worker_reports", reports)
    monkeypatch.setattr(world.manager, "subjob_secret", secret)

    async def send(subjob: str) -> int:
        auth = Proving(subjob, WORKER_SECRET)
        async with httpx.AsyncClient(transport=world.transport, base_url="http://ejbd", auth=auth) as client:
            body = {"worker": "w1", "reports": REPORTS}
            return (await client.post("/v1/worker/reports", json=body)).status_code

    flood = [asyncio.create_task(send(WORKER_SUBJOB)) for _ in range(30)]
    assert await asyncio.wait_for(send("another.1"), 30) == 200
    async with asyncio.timeout(60):
        while begun.count(WORKER_SUBJOB) < AT_ONCE:  # noqa: ASYNC110  # requests set no event
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert begun.count(WORKER_SUBJOB) == AT_ONCE
    released.set()
    assert await asyncio.gather(*flood) == [200] * 30
    large = await world.client.post("/v1/worker/reports", content=b" " * (MOST_BYTES + 1))
    assert large.status_code == 413


async def test_the_workers_proof_is_no_users(world: World) -> None:
    assert (await world.client.get("/v1/jobs")).status_code == 401


def test_no_more_sessions_are_kept_than_wanted_and_those_forgotten_stay_dead() -> None:
    sessions = proofs.Sessions(most=3)

    def claim(session: str, count: int) -> proofs.Claim:
        return proofs.Claim("a.1", session, count, "", "")

    offered = [sessions.offer("a.1") for _ in range(6)]
    assert all(sessions.accept(claim(session, 1)) for session in offered[:4])
    assert len(sessions._counts) == 3
    assert not sessions.accept(claim(offered[0], 2)) and not sessions.accept(claim(offered[0], 1))
    assert sessions.accept(claim(offered[1], 2)) and not sessions.accept(claim(offered[1], 2))
    assert sessions.accept(claim(offered[5], 1))
    assert not sessions.accept(claim("-", 1)) and not sessions.accept(claim("7-abc", 1))
    assert not sessions.accept(proofs.Claim("b.1", offered[4], 1, "", ""))  # it was another subjob's
