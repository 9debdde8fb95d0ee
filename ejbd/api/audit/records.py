"""One line of the audit: what stands in it, and how lines are read again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.types import Scope

from ejbd.api.auth import ID_LENGTH, Peer, Principal

MOST_FAILURES_S = 10  # requests of unknown users that are kept a second
MOST_SCANNED = 256 * 1024 * 1024  # bytes from the file's end that one question reads
_BLOCK = 256 * 1024
_LONGEST_TEXT = 512


def line(
    scope: Scope, status: int, code: str, location: str, *, act: str | None = None, left_out: int = 0
) -> dict[str, Any]:
    """What happened. `on_behalf_of`: the user that owns what it was done to, where that is another one."""
    state = scope.get("state", {})
    principal: Principal | None = state.get("asker")
    peer: Peer | None = state.get("peer")
    touched = principal.touched if principal is not None else None
    job = (touched.job if touched is not None else None) or _job_at(location)
    owner = touched.user if touched is not None else None
    client = scope.get("client")
    found: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "user": principal.user if principal is not None else None,
        "proof": principal.proof.value if principal is not None else None,
        "scope": principal.scope.value if principal is not None else None,
        "act": act or f"{scope['method']} {_shown(scope['path'])}",
        "job": job,
        "on_behalf_of": owner if principal is not None and owner != principal.user else None,
        "outcome": _outcome(status),
        "status": status,
        "code": code,
        "token": principal.token[:ID_LENGTH] if principal is not None and principal.token is not None else None,
        "uid": peer.uid if peer is not None else None,
        "pid": peer.pid if peer is not None else None,
        "address": client[0] if client else None,
    }
    if left_out:
        found["left_out"] = left_out  # refusals of unknown users since the last line
    return found


def _outcome(status: int) -> str:
    if status == 0:
        return "unanswered"
    if status < 400:
        return "done"
    return "refused" if status < 500 else "failed"


def _job_at(location: str) -> str | None:
    return location.removeprefix("/v1/jobs/") if location.startswith("/v1/jobs/") else None


def _shown(path: str) -> str:
    """A path comes from the client and may hold anything."""
    return path.encode("ascii", "backslashreplace").decode()[:_LONGEST_TEXT]


def read_back(
    path: Path, most: int, *, since_s: float | None = None, until_s: float | None = None, **wanted: str | None
) -> list[dict[str, Any]]:
    """The newest `most` lines of the file with these values, the oldest first. `user` also finds what was done for it.

    A line that cannot be read is left out: it is not one of ours. Raises OSError.
    """
    found: list[dict[str, Any]] = []
    for text in _backwards(path):
        try:
            record = json.loads(text)
            at_s = datetime.fromisoformat(record["at"]).timestamp()
        except (ValueError, KeyError, TypeError):
            continue
        if since_s is not None and at_s < since_s:
            break
        if (until_s is None or at_s <= until_s) and _fits(record, wanted):
            found.append(record)
            if len(found) >= most:
                break
    return found[::-1]


def _fits(record: dict[str, Any], wanted: dict[str, str | None]) -> bool:
    for name, value in wanted.items():
        values = {record.get(name)} | ({record.get("on_behalf_of")} if name == "user" else set())
        if value is not None and value not in values:
            return False
    return True


def _backwards(path: Path) -> Iterator[bytes]:
    """The lines of a file from its end."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        last = max(0, at - MOST_SCANNED)
        rest = b""
        while at > last:
            size = min(_BLOCK, at - last)
            at -= size
            file.seek(at)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            yield from (text for text in reversed(lines) if text)
        if rest and at == 0:
            yield rest
