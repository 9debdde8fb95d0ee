"""What the routes of REST declare, asked of a request: which methods an address has, which query parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

_PARAMETER = re.compile(r"\\\{\w+\\\}")  # `{job}`, as re.escape leaves it


@dataclass(frozen=True, slots=True)
class Address:
    """One path of the routes: method -> names of its query parameters."""

    pattern: re.Pattern[str]
    queries: dict[str, frozenset[str]]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are possible there, HEAD wherever GET is."""
        found = set(self.queries)
        return tuple(sorted(found | {"HEAD"} if "GET" in found else found))


class Declared:
    """The addresses of routers, read from their routes: the OpenAPI document has the same, and takes a second."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        found: dict[str, Address] = {}
        for router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute) and route.include_in_schema:
                    address = found.setdefault(route.path, Address(_pattern(route.path), {}))
                    names = frozenset(_queries(route.dependant))
                    address.queries.update(dict.fromkeys(route.methods or (), names))
        self.addresses = list(found.values())

    def at(self, path: str) -> Address | None:
        """The address that a path belongs to, None where there is none."""
        matching = [address for address in self.addresses if address.pattern.fullmatch(path)]
        # A path without a parameter goes before one with: `/v1/jobs/plan` is no job.
        return min(matching, key=lambda address: address.pattern.groups, default=None)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("([^/]+)", re.escape(path)))


def _queries(dependant: Dependant) -> Iterator[str]:
    """Names of the query parameters of a route and of what it depends on; of one that is a model, its fields'."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (one.alias or name for name, one in model.model_fields.items())
        else:
            yield field.alias
    for other in dependant.dependencies:
        yield from _queries(other)
