"""What the OpenAPI document declares, asked of a request: which methods an address has, which query parameters."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

_PARAMETER = re.compile(r"\\\{\w+\\\}")  # `{job}`, as re.escape leaves it


@dataclass(frozen=True, slots=True)
class Address:
    """One path of the document: method -> names of its query parameters."""

    pattern: re.Pattern[str]
    queries: dict[str, frozenset[str]]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are possible there, HEAD wherever GET is."""
        found = set(self.queries)
        return tuple(sorted(found | {"HEAD"} if "GET" in found else found))


class Declared:
    """The addresses of an application, read once from its document."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._addresses: list[Address] | None = None
        self._reading: asyncio.Task[list[Address]] | None = None

    async def read(self) -> list[Address]:
        """To make the document takes a second and more. A thread does it: other requests are answered meanwhile."""
        if self._addresses is None:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(asyncio.to_thread(self._read), name="openapi-document")
            self._addresses = await asyncio.shield(self._reading)
        return self._addresses

    async def at(self, path: str) -> Address | None:
        """The address that a path belongs to, None where there is none."""
        matching = [address for address in await self.read() if address.pattern.fullmatch(path)]
        # A path without a parameter goes before one with: `/v1/jobs/plan` is no job.
        return min(matching, key=lambda address: address.pattern.groups, default=None)

    def _read(self) -> list[Address]:
        return [_address(path, operations) for path, operations in self._app.openapi()["paths"].items()]


def _address(path: str, operations: dict[str, Any]) -> Address:
    pattern = re.compile(_PARAMETER.sub("([^/]+)", re.escape(path)))
    queries = {
        method.upper(): frozenset(p["name"] for p in operation.get("parameters", ()) if p["in"] == "query")
        for method, operation in operations.items()
    }
    return Address(pattern, queries)
