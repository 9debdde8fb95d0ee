"""Which jobs a command is about: ids, beginnings of ids, `last`, `last-2`, ranges (`A..B`) and `all`."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.client.client import Client
from ejbd.client.messages import job_path

path = job_path  # of what is at an address of a job
_ALL, _RANGE = "all", ".."


def names_several(word: str) -> bool:
    """Whether a word stands for any number of jobs."""
    return word == _ALL or _RANGE in word


def ids(daemon: Client, words: Sequence[str], *, alive: bool | None = None) -> list[str]:
    """What the words name, in their order, each job once. `all` and ranges are looked up, jobs of a range as they were
    submitted and, with `alive`, only those that have not ended. The rest is left to the request that uses it."""
    found: dict[str, None] = {}
    for word in words:
        if not names_several(word):
            found[word] = None
            continue
        only = True if word == _ALL else alive
        wanted = None if only is None else str(only).lower()
        jobs = daemon.jobs(select=word, alive=wanted, mine="true" if word == _ALL else None)
        found.update(dict.fromkeys(reversed([job["id"] for job in jobs])))
    return list(found)
