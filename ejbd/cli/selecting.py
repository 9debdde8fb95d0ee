"""Which jobs a command is about: ids, beginnings of ids, `last`, `last-2`, ranges (`A..B`) and `all`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ejbd.cli.client import Client, segment

PAGE = 200
_ALL, _RANGE = "all", ".."


def path(job: str, rest: str = "") -> str:
    """The address of what is at `rest` of a job."""
    return f"/v1/jobs/{segment(job)}{rest}"


def names_several(word: str) -> bool:
    """Whether a word stands for any number of jobs."""
    return word == _ALL or _RANGE in word


def pages(daemon: Client, limit: int | None = None, **query: Any) -> Iterator[dict[str, Any]]:
    """Jobs as the daemon lists them, newest first, at most `limit`."""
    before = None
    left = limit
    while left is None or left > 0:
        count = PAGE if left is None else min(PAGE, left)
        page = daemon.get("/v1/jobs", limit=count, before=before, **query)
        yield from page["jobs"]
        before = page["next"]
        if before is None:
            return
        left = None if left is None else left - len(page["jobs"])


def ids(daemon: Client, words: Sequence[str], *, alive: bool | None = None) -> list[str]:
    """What the words name, in their order, each job once. `all` and ranges are looked up, jobs of a range as they were
    submitted and, with `alive`, only those that have not ended; the rest is left to the request that uses it."""
    found: dict[str, None] = {}
    for word in words:
        if not names_several(word):
            found[word] = None
            continue
        only = True if word == _ALL else alive
        wanted = None if only is None else str(only).lower()
        jobs = pages(daemon, select=word, alive=wanted, mine="true" if word == _ALL else None)
        found.update(dict.fromkeys(reversed([job["id"] for job in jobs])))
    return list(found)
