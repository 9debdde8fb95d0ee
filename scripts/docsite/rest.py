"""docs/rest-operations.md: every operation of the REST API, from the OpenAPI document."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from docsite.pages import ROOT
from ejbd.api.app import create_app
from ejbd.config import Settings

PAGE = ROOT / "docs" / "rest-operations.md"
HEAD = """# REST operations

Made from the OpenAPI document by `scripts/docs --rest`; a test holds it. A running daemon has the document itself, with
every field, at `/v1/openapi.json`. [The REST API](rest.md) says how to sign in, what is stable, and what errors are.
"""


def page() -> str:
    """The page, a table for each group of operations."""
    document = create_app(cast(Any, SimpleNamespace(settings=Settings()))).openapi()
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, one in operations.items():
            asked = " ".join(f"`{p['name']}`" for p in one.get("parameters", []) if p["in"] == "query")
            said = " ".join(one.get("description", "").split("\n\n")[0].split()).replace("|", "\\|")
            body = "yes" if "requestBody" in one else ""
            groups.setdefault(one["tags"][0], []).append(f"| `{method.upper()} {path}` | {said} | {asked} | {body} |")
    parts = [HEAD]
    for name, rows in groups.items():
        parts.append(
            f"## {name.capitalize()}\n\n| operation | what it does | query | body |\n| --- | --- | --- | --- |"
        )
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts)
