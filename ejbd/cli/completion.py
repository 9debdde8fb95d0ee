"""What the shell offers while a line is typed. Whatever goes wrong, it offers nothing and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from ejbd.client.client import Client
from ejbd.client.messages import LostConnection
from ejbd.errors import EjbError
from ejbd.plugins.engines import known_engines
from ejbd.wire.states import JobState

ANSWER_S = 2.0  # no user waits longer for a line to be completed
OFFERED = 50

Offer = tuple[str, str]


def _daemon(context: typer.Context) -> Client:
    given = context.find_root().params
    daemon = Client(given.get("url"), given.get("socket"))
    daemon.answer_s = ANSWER_S
    return daemon


def _asked(look: Callable[[Client], Iterable[Offer]]) -> Callable[[typer.Context, str], list[Offer]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        try:
            return [offer for offer in look(_daemon(ctx)) if offer[0].startswith(incomplete)]
        except (EjbError, LostConnection, OSError, KeyError, TypeError):
            return []

    return complete


def _among(*words: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _jobs(daemon: Client) -> Iterable[Offer]:
    yield "last", "your newest job"
    for job in daemon.get("/v1/jobs", limit=OFFERED, mine="true")["jobs"]:
        yield job["id"], f"{job['name']}, {job['state']}"


def _queues(daemon: Client) -> Iterable[Offer]:
    for queue in daemon.get("/v1/queues")["queues"]:
        yield queue["name"], f"elasticity {queue['settings']['elasticity']}"


jobs = _asked(_jobs)
queues = _asked(_queues)
states = _among("living", "ended", *JobState)


def engines(incomplete: str) -> list[str]:
    """Those of packages are known where the daemon's are."""
    return _among(*known_engines())(incomplete)


elasticities = _among("on", "off", "auto")
mpis = _among("auto", "mpich", "openmpi", "none")
