"""A submission that takes the short way is answered as by the framework, word for word."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ejbd.api import submission, submission_door
from ejbd.api.models import JobSubmission
from tests.fakes.api_server import ApiServer

SCRIPT = "#!/bin/bash\n#SBATCH -n 16 -t 10\nsrun ./app\n"
BODY: dict[str, Any] = {"cwd": "/", "script": SCRIPT, "script_name": "heat.sh", "env": {"X": "1"}}
LONG_WAY = "application/json; charset=utf-8"
SHORT_WAY = "application/json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("api"))
    yield running
    running.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that went the short way."""
    found: list[str] = []
    submitted = submission.submitted

    async def noted(manager: Any, allowances: Any, caller: Any, body: JobSubmission, key: str | None) -> Any:
        found.append(body.script_name)
        return await submitted(manager, allowances, caller, body, key)

    monkeypatch.setattr(submission_door, "submitted", noted)
    return found


def client(server: ApiServer) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd", timeout=180)


def post(to: httpx.Client, text: bytes, kind: str, **headers: str) -> httpx.Response:
    return to.post("/v1/jobs", content=text, headers={"Content-Type": kind, **headers})


def told(answer: httpx.Response) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and body without what is another's with each job."""
    body = answer.json()
    id = body.pop("id", "none")
    kept = {name: value.replace(id, "ID") for name, value in answer.headers.items() if name not in ("date", "server")}
    return answer.status_code, kept, body


REQUESTS: dict[str, bytes] = {
    "in order": json.dumps(BODY).encode(),
    "a command with a note": json.dumps(
        {"cwd": "/", "command": ["hostname"], "overrides": {"ntasks": 2, "time": "5", "options": ["--mail-type=END"]}}
    ).encode(),
    "passed through": json.dumps({**BODY, "overrides": {"elastic": "off"}}).encode(),
    "another encoding": json.dumps(BODY).encode("utf-16"),
    "refused by the reader": json.dumps({**BODY, "script": "no script"}).encode(),
    "not a number": json.dumps({**BODY, "umask": float("nan")}).encode(),
    "a field too many": json.dumps({**BODY, "more": 1}).encode(),
    "half a character": json.dumps({**BODY, "script_name": "\ud800"}).encode(),
    "no object": b"[1, 2]",
    "no JSON": b'{"cwd": ',
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
    "deep": b'{"args":' + b"[" * 5000,
    "too large": b" " * (9 * 1024 * 1024),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_both_ways_answer_alike(server: ApiServer, what: str, short: list[str]) -> None:
    with client(server) as to:
        answers = [told(post(to, REQUESTS[what], kind)) for kind in (SHORT_WAY, LONG_WAY)]
    assert answers[0] == answers[1]
    assert len(short) <= 1
    if answers[0][0] == 201:
        assert len(short) == 1


def test_a_body_in_pieces_is_one_body(server: ApiServer, short: list[str]) -> None:
    text = json.dumps(BODY).encode()
    with client(server) as to:
        for kind in (SHORT_WAY, LONG_WAY):
            pieces = (text[i : i + 40] for i in range(0, len(text), 40))
            answer = to.post("/v1/jobs", content=pieces, headers={"Content-Type": kind})
            assert answer.status_code == 201, answer.text
    assert short == ["heat.sh"]


def test_a_key_is_one_key_whichever_way_it_comes(server: ApiServer) -> None:
    text = json.dumps(BODY).encode()
    with client(server) as to:
        first, *others = (
            post(to, text, kind, **{"Idempotency-Key": "k"}) for kind in (SHORT_WAY, LONG_WAY, SHORT_WAY, LONG_WAY)
        )
        assert first.status_code == 201
        assert {(one.status_code, one.json()["id"]) for one in others} == {(200, first.json()["id"])}
        other = json.dumps({**BODY, "env": {}}).encode()
        refused = [told(post(to, other, kind, **{"Idempotency-Key": "k"})) for kind in (SHORT_WAY, LONG_WAY)]
        assert refused[0] == refused[1] and refused[0][2]["code"] == "idempotency-key-reused"


@pytest.mark.parametrize("key", ["", "with blank", "x" * 256, "\u00e9"])
def test_a_key_that_is_none_is_refused_on_both_ways(server: ApiServer, key: str, short: list[str]) -> None:
    text = json.dumps(BODY).encode()
    with client(server) as to:
        answers = [
            told(
                to.post(
                    "/v1/jobs",
                    content=text,
                    headers=[(b"Content-Type", kind.encode()), (b"Idempotency-Key", key.encode())],
                )
            )
            for kind in (SHORT_WAY, LONG_WAY)
        ]
    assert answers[0] == answers[1] and answers[0][0] == 422
    assert not short


def test_who_is_nobody_goes_neither_way(server: ApiServer, short: list[str]) -> None:
    text = json.dumps(BODY).encode()
    with httpx.Client(base_url=server.servers.url, timeout=180) as to:
        for kind in (SHORT_WAY, LONG_WAY):
            assert post(to, text, kind).status_code == 401
            assert post(to, text, kind, Authorization="Bearer ejb_wrong").status_code == 401
    with client(server) as to:
        answer = to.post("/v1/jobs?elastic=off", content=text, headers={"Content-Type": SHORT_WAY})
        assert answer.status_code == 422 and answer.json()["where"] == "query.'elastic'"
        token = to.post("/v1/tokens", json={"scope": "read"}).json()["token"]
        assert post(to, text, SHORT_WAY, Authorization=f"Bearer {token}").status_code == 403
    assert not short


def test_a_job_is_the_users_who_asks(server: ApiServer, short: list[str]) -> None:
    with client(server) as to:
        found = to.get(post(to, json.dumps(BODY).encode(), SHORT_WAY).headers["location"]).json()
    assert found["user"] == getpass.getuser() and short == ["heat.sh"]
