"""The OpenAPI document tells the truth: schemathesis sends what it allows and what it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import func, select

from ejbd.api.app import create_app
from ejbd.api.declared import Declared
from ejbd.config import Settings
from ejbd.store.models import Job
from tests.fakes.api_server import ApiServer
from tests.fakes.port import WORKER_SECRET, WORKER_SUBJOB
from tests.fakes.proving import Proving
from tests.fakes.web import cluster_view
from tests.nightly import everything

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("api-schema")]  # a server and a document for all

EXAMPLES = 12 if everything() else 3  # of an operation and a mode
# What does not end by itself is tested elsewhere.
ENDLESS = re.compile(r"/stream$|/worker/operations$|/logs$")
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
# As the document has them, by the page made from it: to make the document takes seconds in each process that collects.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "rest-operations.md"
OPERATIONS = [
    (path, method.lower())
    for method, path in re.findall(r"^\| `([A-Z]+) (\S+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    if not ENDLESS.search(path)
]


@cache
def application() -> FastAPI:
    return create_app(cast(Any, SimpleNamespace(settings=Settings())))


@cache
def document() -> dict[str, Any]:
    return application().openapi()


BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc"]), max_size=20)
COMMANDS = st.lists(PRINTABLE.filter(str.strip), min_size=1, max_size=4)
SCRIPTS = st.builds(
    "#!/bin/sh\n#SBATCH -n {} -t {}\n{}srun ./app\n".format,
    st.integers(1, 16),
    st.integers(1, 600),
    st.sampled_from(["", "#EJB restartable\n", "echo $PWD\n", "#SBATCH -J name\n"]),
)
# What people send: the schema's own strategy hardly ever makes a body from which a job is made.
SUBMISSIONS = st.fixed_dictionaries(
    {"cwd": st.just("/"), "overrides": st.fixed_dictionaries({"time": st.sampled_from(["5", "1:00:00", "1-0"])})},
    optional={"env": st.dictionaries(st.from_regex("[A-Z_]{1,8}", fullmatch=True), PRINTABLE, max_size=3)},
).flatmap(
    lambda body: st.one_of(
        COMMANDS.map(lambda command: {**body, "command": command}),
        SCRIPTS.map(lambda script: {**body, "script": script}),
    )
)


class World:
    """A server with one job, and an administrator's token."""

    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder)
        self.server.manager.view = cluster_view()
        with httpx.Client(transport=httpx.HTTPTransport(uds=self.server.socket), base_url="http://ejbd") as client:
            job = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}
            assert client.post("/v1/jobs", json=job).status_code == 201
            self.token = str(client.post("/v1/tokens", json={}).json()["token"])
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.schema: Any = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("schema"))
    yield made
    made.server.close()


def test_every_operation_of_the_document_is_asked() -> None:
    told = [(path, method) for path, methods in document()["paths"].items() for method in methods]
    assert sorted(OPERATIONS) == sorted((path, method) for path, method in told if not ENDLESS.search(path))


@pytest.mark.sampled(4, by=("method", "mode"))
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_operation_answers_as_the_document_says(world: World, path: str, method: str, mode: Any) -> None:
    operation = world.schema[path][method]
    if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()) and not operation.body:
        return  # nothing that could be wrong
    how: dict[str, Any] = {"headers": world.headers}
    if "/worker/" in path:
        proving = Proving(WORKER_SUBJOB, WORKER_SECRET)
        url = f"{world.server.servers.url}/v1/worker/operations?worker=w1"
        assert httpx.get(url, auth=proving).status_code == 200  # it has a session now
        how = {"auth": proving}
    checks = [*CHECKS, negative_data_rejection] if mode is GenerationMode.NEGATIVE else CHECKS

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=world.server.servers.url, checks=checks, **how)

    ask()


def jobs_made(world: World) -> int:
    return int(world.server.store.read_sync(lambda session: session.scalar(select(func.count()).select_from(Job)) or 0))


def test_the_examples_of_the_document_are_jobs(world: World) -> None:
    examples = document()["components"]["schemas"]["JobSubmission"]["examples"]
    before = jobs_made(world)
    for example in examples:
        answer = httpx.post(f"{world.server.servers.url}/v1/jobs", json=example, headers=world.headers)
        assert answer.status_code == 201, answer.text
    assert jobs_made(world) - before == len(examples) == 2


def test_jobs_are_really_made_and_every_address_of_theirs_answers(world: World) -> None:
    """No answer of 5xx, and what is answered is as the document says, for jobs that are there."""
    before = jobs_made(world)
    made: list[str] = []
    addresses = [
        (path, method) for path, method in OPERATIONS if path.startswith("/v1/jobs/{job}") and method in ("get", "post")
    ]

    @BOUNDED
    @given(body=SUBMISSIONS, address=st.sampled_from(addresses))
    def ask(body: dict[str, Any], address: tuple[str, str]) -> None:
        for path in ("/v1/jobs/plan", "/v1/jobs"):
            case = world.schema[path]["post"].Case(body=body, media_type="application/json")
            answer = case.call_and_validate(base_url=world.server.servers.url, headers=world.headers, checks=CHECKS)
            assert answer.status_code in (200, 201), (body, answer.text)
        made.append(answer.json()["id"])
        path, method = address
        case = world.schema[path][method].Case(path_parameters={"job": made[-1]})
        case.call_and_validate(base_url=world.server.servers.url, headers=world.headers, checks=CHECKS)

    ask()
    assert len(set(made)) == jobs_made(world) - before >= EXAMPLES


def test_every_error_is_declared_as_a_problem() -> None:
    assert "HTTPValidationError" not in json.dumps(document())
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if status == "default" or status.startswith("4"):
                    assert list(response["content"]) == ["application/problem+json"], (path, method, status)
            assert operation.get("security") or path in ("/v1/health", "/v1/version") or "/worker/" in path


def test_what_is_read_off_the_routes_is_what_the_document_says() -> None:
    declared: Declared = application().state.declared
    assert len(declared.addresses) == len(document()["paths"])
    for path, operations in document()["paths"].items():
        address = declared.at(path.translate({ord("{"): None, ord("}"): None}))
        assert address is not None, path
        assert address.queries == {
            method.upper(): {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            for method, operation in operations.items()
        }, path
