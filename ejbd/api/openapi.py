"""The OpenAPI document, with errors declared as they are answered."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from ejbd.api.problems import MEDIA_TYPE, Problem, UnhealthyProblem

_OPEN = frozenset({"/v1/health", "/v1/version"})
_ERRORS = {
    "401": "The request does not say which user sends it",
    "403": "Not allowed",
    "404": "There is no such thing, or it belongs to another user",
    "409": "Not in the present state",
    "413": "The body is too large",
    "429": "More than one user may have at a time; `Retry-After` says when to try again",
    "422": "The request cannot be right, or cannot be done here",
}


ADDRESS = "/v1/openapi.json"


def install(app: FastAPI) -> None:
    """Have `app.openapi()` declare the errors that there are, and serve it."""
    making = asyncio.Lock()

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    async def answer(_: Request) -> JSONResponse:
        """To make the document takes a second and more. A thread does it: other requests are answered meanwhile."""
        async with making:
            return JSONResponse(await asyncio.to_thread(app.openapi))

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way
    app.add_route(ADDRESS, answer, include_in_schema=False)


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, routes=app.routes, description=app.description)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for model in (Problem, UnhealthyProblem):
        problem = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas[model.__name__] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            for status in _statuses(path, method):
                responses[status] = {"description": _ERRORS[status], "content": content}
            responses["default"] = {"description": "Any other error", "content": content}
    return found


def _statuses(path: str, method: str) -> list[str]:
    if path in _OPEN:
        return []
    found = ["401", "403", "422", "429"]
    if "{" in path:
        found += ["404", "409"]
    if method in ("post", "patch", "put"):
        found += ["409", "413"]
    return sorted(set(found))
