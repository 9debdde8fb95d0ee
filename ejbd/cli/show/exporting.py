"""The log of all one's jobs as a file: a header, then every event, one JSON object a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from ejbd.cli.output import json_text
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError

PAGE = 1000


def export(client: Client, file: str) -> int:
    """Write the log to `file` (- is standard output); how many events it has."""
    lines = _lines(client)
    if file == "-":
        return sum(1 for line in lines if sys.stdout.write(line + "\n")) - 1
    try:
        with open(file, "w", encoding="utf-8") as out:
            return sum(1 for line in lines if out.write(line + "\n")) - 1
    except OSError as error:
        raise EjbError(Code.INVALID, f"cannot write the log: {error.strerror}", where=file) from None


def _lines(client: Client) -> Iterator[str]:
    version = client.get("/v1/version")["version"]
    header = {"kind": "ejb.log", "format": 1, "version": version, "exported_s": time.time(), "queues": _queues(client)}
    yield json_text(header)
    after = 0
    while True:
        page: list[dict[str, Any]] = client.get("/v1/events", after=after, limit=PAGE)["events"]
        yield from map(json_text, page)
        if len(page) < PAGE:
            return
        after = page[-1]["id"]


def _queues(client: Client) -> list[dict[str, Any]]:
    """The queues with their sizes; none while the batch system does not answer."""
    try:
        found = client.get("/v1/windows")["windows"]
    except EjbError as error:
        if error.code is not Code.BATCH_UNAVAILABLE:
            raise
        return []
    return [{"name": window["queue"], "processors": window["total"]} for window in found]
