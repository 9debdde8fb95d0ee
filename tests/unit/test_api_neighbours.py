"""What a user of the machine can cost the others through the API."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.api import auth
from ejbd.api.access.roles import Roles
from ejbd.api.bodies import MOST_VALUES, Values
from ejbd.api.history import RunColumns
from ejbd.api.models import JobSubmission
from ejbd.api.shares import ADMINISTRATORS, WORKERS, Shares, Use
from ejbd.store.models import Event
from ejbd.store.store import Store
from ejbd.wire.rights import Role
from tests.fakes.api_server import ApiServer
from tests.fakes.live import LiveWorld

BOUND_S = 30.0
MANY = 100_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path)
    yield running
    running.close()


async def plain_user(roles: Roles, user: str) -> Role:
    return Role.USER


def unix(server: ApiServer) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=BOUND_S)


NUMBERS = {str(n): 1 for n in range(MANY)}
HOSTILE = {
    "words": {"cwd": "/", "command": [1] * MANY},
    "arguments": {"cwd": "/", "command": ["a"], "args": [1] * MANY},
    "variables": {"cwd": "/", "command": ["a"], "env": NUMBERS},
    "more variables than any process has": {"cwd": "/", "env": {str(n): "" for n in range(MANY)}},
    "limits": {"cwd": "/", "command": ["a"], "limits": NUMBERS},
    "unknown fields": {"cwd": "/", "command": ["a"], **NUMBERS},
    "unknown overrides": {"cwd": "/", "command": ["a"], "overrides": NUMBERS},
    "options": {"cwd": "/", "command": ["a"], "overrides": {"options": [1] * MANY}},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_body_of_many_faults_ends_at_the_first(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        JobSubmission.model_validate(body)
    assert refused.value.error_count() <= 21


def test_runs_of_many_faults_end_at_the_first() -> None:
    columns: dict[str, Any] = dict.fromkeys(RunColumns.model_fields, [{}] * MANY)
    with pytest.raises(ValidationError) as refused:
        RunColumns.model_validate(columns)
    assert refused.value.error_count() <= len(columns)


def test_a_field_that_is_not_known_is_still_named() -> None:
    with pytest.raises(ValidationError) as refused:
        JobSubmission.model_validate({"cwd": "/", "command": ["a"], "comand": ["b"]})
    assert [one["loc"] for one in refused.value.errors()] == [("comand",)]


def test_a_submission_of_every_field_is_taken_whole() -> None:
    body = {"cwd": "/", "command": ["a"], "env": {f"V{n}": "x" for n in range(5000)}}
    assert len(JobSubmission.model_validate(body).env) == 5000


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_values_are_counted_alike_in_whatever_pieces_they_come(size: int) -> None:
    draw = random.Random(size)
    for _ in range(50):
        words = ["".join(draw.choice('\\",[{}]x') for _ in range(draw.randrange(9))) for _ in range(5)]
        text = json.dumps({"words": words, "more": [1, {"a": 2}]}).encode()
        values = Values()
        for at in range(0, len(text), size):
            values.feed(text[at : at + size])
        assert (values.count, values.too_many) == (10, ""), text


@pytest.mark.parametrize("unit", [r"\"", r"\\", r"\\\"", "x"])
def test_a_long_text_is_counted_in_one_pass(unit: str) -> None:
    body = ('{"script": "' + unit * (400_000 // len(unit)) + '"}').encode()
    values = Values()
    begun = time.thread_time()
    for at in range(0, len(body), 65_536):
        values.feed(body[at : at + 65_536])
    assert (values.count, values.too_many) == (1, "")
    assert time.thread_time() - begun < BOUND_S / 10, "looked at again for each quote in it: minutes"


@pytest.mark.parametrize("size", [1, 64, 1_000_000])
@pytest.mark.parametrize(
    ("text", "why"), [('["a",' * 65, "inside each other"), ('""' * 9, "no JSON"), ("[1,2]" * 65, "")]
)
def test_depth_and_texts_are_counted_alike_in_whatever_pieces_they_come(text: str, why: str, size: int) -> None:
    values = Values()
    for at in range(0, len(text), size):
        values.feed(text.encode()[at : at + size])
    assert why in values.too_many and bool(why) == bool(values.too_many)


def test_a_body_of_more_values_than_any_request_has_is_refused(server: ApiServer) -> None:
    with unix(server) as local:
        body = '{"cwd": "/", "command": [' + "1," * (MOST_VALUES + 10) + "1]}"
        answer = local.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and "values" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/plan", "/v1/history"])
def test_a_user_whose_jobs_are_not_run_here_is_refused_before_the_body(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    server.manager.runs_as = "somebody-else"
    monkeypatch.setattr(Roles, "of", plain_user)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 6000000\r\n\r\n{{"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(BOUND_S)
        sock.connect(server.socket)
        sock.sendall(head.encode())  # the body never comes
        told = b""
        while piece := sock.recv(10_000):
            told += piece
    assert told.startswith(b"HTTP/1.1 403") and b"runs jobs as" in told


def test_a_token_for_looking_plans_no_huge_job(server: ApiServer) -> None:
    with unix(server) as local:
        token = local.post("/v1/tokens", json={"scope": "read"}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.servers.url, timeout=BOUND_S, headers=headers) as known:
        script = "#!/bin/sh\n#SBATCH -n 4 -t 5\nsrun x\n"
        assert known.post("/v1/jobs/plan", json={"cwd": "/", "script": script}).status_code == 200
        assert known.post("/v1/jobs/plan", json={"cwd": "/", "script": script + "#" * 300_000}).status_code == 413


@pytest.mark.parametrize("header", ["Idempotency-Key", "Authorization", "Last-Event-ID"])
def test_a_header_with_two_values_is_refused(server: ApiServer, header: str) -> None:
    with unix(server) as local:
        two = [(header, "a"), (header, "b"), ("Content-Type", "application/json")]
        body = json.dumps({"cwd": "/", "command": ["hostname"]})
        answer = local.post("/v1/jobs", content=body, headers=two)
        assert answer.status_code == 422 and answer.json()["where"] == header.title()
        twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "a"), ("Content-Type", "application/json")]
        assert local.post("/v1/jobs", content=body, headers=twice).status_code != 422


@pytest.mark.parametrize("how", ["revoked", "run out"])
@pytest.mark.parametrize("what", ["events", "log"])
def test_a_stream_ends_with_its_token(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, what: str
) -> None:
    monkeypatch.setattr("ejbd.api.events.KEEP_ALIVE_S", 0.2)  # between two looks of a stream without news
    with unix(server) as local:
        path = "events/stream"
        if what == "log":
            job = local.post("/v1/jobs", json={"cwd": str(tmp_path), "command": ["true"], "overrides": {"time": "1"}})
            path = f"jobs/{job.json()['id']}/logs?follow=true"
        made = local.post("/v1/tokens", json={"scope": "read", "expires_in_s": 600}).json()
        headers = {"Authorization": f"Bearer {made['token']}"}
        with httpx.stream("GET", f"{server.servers.url}/v1/{path}", headers=headers, timeout=BOUND_S) as stream:
            assert stream.status_code == 200
            if how == "revoked":
                assert local.delete(f"/v1/tokens/{made['id']}").status_code == 204
            else:
                monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: time.time() + 601))
            server.run(server.manager.announce())
            assert "data: " not in "".join(stream.iter_lines())  # and it ends


# -- whose connections there are --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Connection:
    party: str
    since: float
    use: Use = Use.IDLE
    cuts: list[Connection] = field(default_factory=list, repr=False)

    def cut(self) -> None:
        self.cuts.append(self)


class Door:
    """Connections that come one after the other; `cut` those that went for them."""

    def __init__(self, most: int) -> None:
        self.shares, self.most, self.cut = Shares(), most, list[Connection]()

    def comes(self, party: str, use: Use = Use.IDLE) -> Connection:
        one = Connection(party, time.monotonic(), use, self.cut)
        self.shares.enter(one, self.most)
        return one


def test_a_user_who_takes_every_connection_locks_out_nobody_else() -> None:
    door = Door(40)
    worker, admin, other = door.comes(WORKERS), door.comes(ADMINISTRATORS), door.comes("user ann")
    for _ in range(500):
        door.comes("user bob", Use.STREAM)
    newcomers = [door.comes("address 10.0.0.1"), door.comes("user cyd"), door.comes(WORKERS)]
    assert {one.party for one in door.cut} == {"user bob"} and len(door.cut) == 490
    assert not {worker, admin, other, *newcomers} & set(door.cut)


def test_the_oldest_idle_stream_of_the_greediest_goes_first() -> None:
    door = Door(40)
    busy = door.comes("user bob", Use.REQUEST)
    streams = [door.comes("user bob", Use.STREAM) for _ in range(9)]
    door.comes("user bob", Use.REQUEST)
    assert door.cut == streams[:1] and busy not in door.cut
    for user in range(4):  # nobody above a share of their own, and all of them together above what is theirs
        for _ in range(8):
            door.comes(f"user u{user}", Use.STREAM)
    assert door.cut[1] is streams[1]


def test_a_quarter_is_kept_for_workers_and_administrators() -> None:
    door = Door(40)
    for address in range(30):
        for _ in range(10):
            door.comes(f"address 10.0.0.{address}")
    for _ in range(10):
        door.comes(WORKERS)
    kept = len(door.cut)
    assert 30 * 10 - kept <= 30
    assert all(one.party.startswith("address") for one in door.cut)


def test_a_connection_counts_for_whom_it_turns_out_to_be() -> None:
    door = Door(40)
    for n in range(100):
        one = door.comes(f"address 10.0.0.{n}")
        door.shares.move(one, "user bob", 40)
    assert len(door.cut) == 90
    for one in [*door.cut]:
        door.shares.leave(one)  # as its end does, once more
    assert door.comes("user ann") not in door.cut


def test_those_of_many_addresses_leave_a_quarter_to_users() -> None:
    door = Door(40)
    users = [door.comes(f"user u{n}") for n in range(10)]
    strangers = [door.comes(f"address 10.0.{n}.1") for n in range(300)]
    assert not {*users} & {*door.cut} and len(door.cut) == 280
    assert door.cut == strangers[:280], "the first that came, and no newcomer"


def test_a_job_that_opens_every_connection_as_its_workers_leaves_a_quarter_to_users_and_others_workers() -> None:
    door = Door(40)
    users, other = [door.comes(f"user u{n}") for n in range(9)], door.comes(WORKERS + "b-1")
    for _ in range(500):
        door.comes(WORKERS + "a-1", Use.REQUEST)
    assert not {*users, other, door.comes("user late"), door.comes(WORKERS + "c-1")} & {*door.cut}
    assert {one.party for one in door.cut} == {WORKERS + "a-1"}


@pytest.mark.slow
def test_hundreds_of_silent_connections_keep_no_other_user_away(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.api.server.most_connections", lambda: 64)
    monkeypatch.setattr("ejbd.api.server.SILENT_S", 2.0)
    monkeypatch.setattr("ejbd.api.connections.find_socket_owner", lambda *_: None)  # as from other machines
    with unix(server) as local:
        token = local.post("/v1/tokens", json={"scope": "read"}).json()["token"]
    address = ("127.0.0.1", int(server.servers.url.rpartition(":")[2]))
    with ExitStack() as stack:
        silent = []
        for n in range(400):
            silent.append(stack.enter_context(socket.socket()))
            silent[-1].settimeout(BOUND_S)
            silent[-1].bind((f"127.1.{n % 250}.{n // 250 + 1}", 0))
            silent[-1].connect(address)
            if n % 40 == 39:
                headers = {"Authorization": f"Bearer {token}"}
                assert httpx.get(f"{server.servers.url}/v1/jobs", headers=headers, timeout=BOUND_S).status_code == 200
                assert httpx.get(f"{server.servers.url}/v1/version", timeout=BOUND_S).status_code == 200
        for one in silent:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b"", "closed, since nothing was said"


def test_thousands_of_streams_of_one_user_leave_room_for_workers(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.api.server.most_connections", lambda: 16)
    monkeypatch.setattr(Roles, "of", plain_user)
    with unix(server) as local:
        token = local.post("/v1/tokens", json={"scope": "read"}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}

    async def attack() -> int:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(
            base_url=server.servers.url, headers=headers, limits=limits, timeout=BOUND_S
        ) as client:
            requests = [client.build_request("GET", "/v1/events/stream") for _ in range(60)]
            answers = await asyncio.gather(*(client.send(one, stream=True) for one in requests), return_exceptions=True)
            answered = 0
            for _ in range(20):  # others, one after the other, on new connections
                async with httpx.AsyncClient(base_url=server.servers.url, timeout=BOUND_S) as other:
                    answered += (await other.get("/v1/health")).status_code in (200, 401)
            for one in answers:
                if isinstance(one, httpx.Response):
                    await one.aclose()
            return answered

    assert asyncio.run(attack()) == 20


# -- a stop -----------------------------------------------------------------------------------------------------------


async def test_many_streams_end_when_they_are_told_to(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    await live.submit()
    waiting = [asyncio.create_task(live.manager.wait_for_events(2**40, 600.0)) for _ in range(60)]
    await asyncio.sleep(0.1)
    for task in waiting:
        task.cancel()
    done, late = await asyncio.wait(waiting, timeout=BOUND_S)
    assert not late and all(task.cancelled() for task in done)


async def test_an_event_between_the_look_and_the_wait_is_not_missed(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveWorld(tmp_path, store)
    read = store.read

    async def read_before_an_event(look: Callable[[Session], Any]) -> Any:
        found = await read(look)
        monkeypatch.undo()
        await live.submit()
        live.manager.woken(frozenset({"events"}))  # as the store tells of a commit
        return found

    newest = await read(lambda session: session.scalar(select(func.max(Event.id)))) or 0
    monkeypatch.setattr(store, "read", read_before_an_event)
    await asyncio.wait_for(live.manager.wait_for_events(newest, 600.0), BOUND_S)


@pytest.mark.slow
def test_a_stop_is_bounded_whatever_hangs(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio, sys
        from ejbd import daemon
        from ejbd.api.server import Servers

        async def hangs(self):
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass

        Servers.stop = hangs
        daemon.STOP_BOUND_S = 1.0
        sys.exit(daemon.main([]))
    """)
    # A batch system that is not there: the embedded cluster would outlive the daemon.
    batch = {"EJBD_BATCH": "slurm", "EJBD_SLURM__BIN": str(tmp_path)}
    environment = {**os.environ, "EJBD_STATE_DIR": str(tmp_path / "state"), **batch}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True) as ejbd:
        assert ejbd.stderr is not None
        try:
            for line in ejbd.stderr:
                if "listening" in line and "socket" in line and "api." not in line:
                    break
            ejbd.send_signal(signal.SIGTERM)
            told = ejbd.stderr.read()
            assert ejbd.wait(BOUND_S) not in (0, -signal.SIGKILL)
        finally:
            ejbd.kill()
    assert "stopped-hard" in told
