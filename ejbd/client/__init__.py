"""A Python client of EJB: submit jobs, wait for them, ask why. docs/client.md has examples.

`import ejbd.client` loads nothing but this; each name brings what it needs when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ejbd.client.aio import AsyncClient as AsyncClient
    from ejbd.client.aio import AsyncJob as AsyncJob
    from ejbd.client.client import Client as Client
    from ejbd.client.job import Job as Job
    from ejbd.client.job import as_completed as as_completed
    from ejbd.client.outcome import JobFailed as JobFailed
    from ejbd.client.outcome import Outcome as Outcome
    from ejbd.errors import Code as Code
    from ejbd.errors import EjbError as EjbError

_FROM = {
    "AsyncClient": "ejbd.client.aio",
    "AsyncJob": "ejbd.client.aio",
    "Client": "ejbd.client.client",
    "Code": "ejbd.errors",
    "EjbError": "ejbd.errors",
    "Job": "ejbd.client.job",
    "JobFailed": "ejbd.client.outcome",
    "Outcome": "ejbd.client.outcome",
    "as_completed": "ejbd.client.job",
}
__all__ = ["AsyncClient", "AsyncJob", "Client", "Code", "EjbError", "Job", "JobFailed", "Outcome", "as_completed"]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_FROM[name]), name)
