"""The OpenAPI document tells the truth: schemathesis sends what it allows and what it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ejbd.api.app import create_app
from ejbd.config import Settings
from tests.fakes.api_server import ApiServer
from tests.fakes.port import WORKER_TOKEN

EXAMPLES = 12
# What does not end by itself is tested elsewhere.
ENDLESS = re.compile(r"/stream$|/worker/operations$|/logs$")
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
DOCUMENT: dict[str, Any] = create_app(cast(Any, SimpleNamespace(settings=Settings()))).openapi()
OPERATIONS = [
    (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods if not ENDLESS.search(path)
]


class World:
    """A server with one job, and an administrator's token."""

    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder)
        with httpx.Client(transport=httpx.HTTPTransport(uds=self.server.socket), base_url="http://ejbd") as client:
            job = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}
            assert client.post("/v1/jobs", json=job).status_code == 201
            self.token = str(client.post("/v1/tokens", json={}).json()["token"])
        self.schema: Any = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("schema"))
    yield made
    made.server.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_operation_answers_as_the_document_says(world: World, path: str, method: str, mode: Any) -> None:
    operation = world.schema[path][method]
    if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()) and not operation.body:
        return  # nothing that could be wrong
    token = WORKER_TOKEN if "/worker/" in path else world.token
    checks = [*CHECKS, negative_data_rejection] if mode is GenerationMode.NEGATIVE else CHECKS

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        case.call_and_validate(base_url=world.server.servers.url, headers=headers, checks=checks)

    ask()


def test_every_error_is_declared_as_a_problem() -> None:
    assert "HTTPValidationError" not in json.dumps(DOCUMENT)
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if status == "default" or status.startswith("4"):
                    assert list(response["content"]) == ["application/problem+json"], (path, method, status)
            assert operation.get("security") or path in ("/v1/health", "/v1/version") or "/worker/" in path
