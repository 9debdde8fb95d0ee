"""What a sender of a wrong request reads, and what each address says that it can do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from fastapi.openapi.utils import get_openapi
from pydantic_core import core_schema

from ejbd.api import openapi
from ejbd.api.sentences import SENTENCES
from tests.fakes.api_server import ApiServer

JOB = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    server = ApiServer(tmp_path_factory.mktemp("words"))
    transport = httpx.HTTPTransport(uds=server.socket)
    with httpx.Client(transport=transport, base_url="http://ejbd", timeout=20) as one:
        assert one.post("/v1/jobs", json=JOB).status_code == 201
        yield one
    server.close()


@pytest.mark.parametrize(
    ("query", "where", "sentence"),
    [
        ("state=asleep", "query.state", "'asleep' is none of: received, waiting, running, ending, unknown,"),
        ("limit=many", "query.limit", "'many' is not a whole number"),
        ("limit=0", "query.limit", "'0' is not at least 1"),
        ("limit=2000", "query.limit", "'2000' is not at most 1000"),
        ("mine=perhaps", "query.mine", "'perhaps' is not true or false"),
        ("colour=red", "query.'colour'", "there is no such query parameter here"),
    ],
)
def test_a_wrong_query_is_told_in_a_sentence(client: httpx.Client, query: str, where: str, sentence: str) -> None:
    answer = client.get(f"/v1/jobs?{query}")
    found = answer.json()
    assert answer.status_code == 422 and found["where"] == where and found["detail"].startswith(sentence)
    assert "Input should" not in answer.text


@pytest.mark.parametrize(
    ("change", "where", "sentence"),
    [
        ({"cwd": None}, "body.cwd", "None is not text"),
        ({"colour": 1}, "body.colour", "there is no such field"),
        ({"args": "x"}, "body.args", "'x' is not a list"),
        ({"overrides": {"omax": "a"}}, "body.overrides.omax", "'a' is not a whole number"),
        ({"overrides": {"engine": "steam"}}, "body.overrides.engine", "'steam' is none of: auto, application, dmtcp"),
    ],
)
def test_a_wrong_body_is_told_in_a_sentence(
    client: httpx.Client, change: dict[str, object], where: str, sentence: str
) -> None:
    found = client.post("/v1/jobs", json={**JOB, **change}).json()
    assert found["where"] == where and found["detail"].startswith(sentence)


def test_other_requests_are_answered_while_the_document_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second and more. No request needs it but that for itself."""
    made, asked = threading.Event(), threading.Event()

    def slow(**words: Any) -> dict[str, Any]:
        asked.set()
        assert made.wait(60)
        return get_openapi(**words)

    monkeypatch.setattr(openapi, "get_openapi", slow)
    server = ApiServer(tmp_path)
    transport = httpx.HTTPTransport(uds=server.socket)
    with httpx.Client(transport=transport, base_url="http://ejbd", timeout=20) as one, ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.get, openapi.ADDRESS)
        assert asked.wait(60)
        assert one.get("/v1/jobs?colour=red").status_code == 422 and not first.done()
        made.set()
        assert "/v1/jobs" in first.result(60).json()["paths"]
    server.close()


def test_words_are_only_for_kinds_of_fault_that_there_are() -> None:
    assert set(SENTENCES) <= set(get_args(core_schema.ErrorType))


@pytest.mark.parametrize(
    "path", ["/v1/jobs/last", "/v1/jobs/last/explain", "/v1/queues", "/v1/queues/main", "/v1/health"]
)
def test_an_unknown_query_parameter_never_passes_in_silence(client: httpx.Client, path: str) -> None:
    answer = client.get(f"{path}?colour=red")
    assert answer.status_code == 422 and answer.json()["hint"] == "this address has none"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/jobs/plan", "POST"),
        ("/v1/jobs/last/cancel", "POST"),
        ("/v1/queues/main", "GET, HEAD, PATCH"),
        ("/v1/tokens", "GET, HEAD, POST"),
        ("/v1/tokens/0123456789abcdef", "DELETE"),
    ],
)
def test_405_names_every_method_that_is_possible(client: httpx.Client, path: str, allowed: str) -> None:
    answer = client.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/jobs/last", "/v1/health", "/v1/jobs/none", "/metrics", "/v1/openapi.json"]
)
def test_head_is_get_without_a_body(client: httpx.Client, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code and head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


def test_head_of_a_stream_ends(client: httpx.Client) -> None:
    answer = client.head("/v1/jobs/last/events/stream")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert client.get("/v1/jobs/last").status_code == 200
