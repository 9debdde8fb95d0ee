"""Browsers of a kind, and clusters to look at, for tests of the page."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.orm import Session

from ejbd.core.view import (
    BatchJobView,
    BatchState,
    ClusterView,
    NodeView,
    QueueView,
    Reservations,
    SiteReservation,
)
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.wire.rights import Scope
from tests.fakes.api_server import ApiServer
from tests.fakes.port import job_row, subjob_row

MARK = re.compile(r'name="mark" value="([0-9a-f]{32})"')


def link(server: ApiServer, user: str, scope: Scope = Scope.ADMIN) -> str:
    """The address that signs a browser in as this user, as `ejb web` would print it for that user."""
    key = server.servers.app.state.links.new(user, scope)
    return f"{server.servers.url}/web/in?key={key}"


@contextlib.contextmanager
def page_server(folder: Path) -> Iterator[ApiServer]:
    """A server with an operator, otto, and a small cluster; each look draws the picture anew."""
    made = ApiServer(folder, settings={"operators": ["otto"]})
    made.manager.view = cluster_view(jobs=(batch_job("77", ["n1", "n2"], 32),))
    state = made.servers.app.state
    state.pictures.most_s = state.lists.most_s = state.sites.most_s = 0.0
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def signed_in(server: ApiServer, user: str, scope: Scope = Scope.ADMIN) -> Iterator[httpx.Client]:
    """A client with that user's cookie."""
    with httpx.Client(base_url=server.servers.url, timeout=30) as client:
        assert client.get(link(server, user, scope)).status_code == 200
        yield client


def mark(client: httpx.Client) -> str:
    """What this browser's forms carry."""
    found = MARK.search(client.get("/web/jobs").text)
    assert found is not None
    return found[1]


def submit(server: ApiServer, user: str, name: str = "heat", cwd: str = "/", **values: Any) -> str:
    """A job of a user, as a row; `values` are columns of it. Its output is `out` in its directory."""
    wanted = Overrides(name=name, ntasks="8", time="10", output="out")
    request = JobRequest(cwd=cwd, command=("sleep", "1"), overrides=wanted)
    spec = read(request).elastic_spec()

    def add(session: Session) -> str:
        row = job_row(f"{abs(hash((user, name, time.time()))):x}"[:8], spec, user)
        row.name = name
        for key, value in values.items():
            setattr(row, key, value)
        session.add(row)
        session.flush()
        return row.id

    return server.run(server.store.write(add))


def runs(server: ApiServer, job: str, batch_id: str, nodes: list[str], processors: int) -> None:
    """A subjob of a job that runs."""
    values = {
        "batch_id": batch_id,
        "tag": f"of-{batch_id}",
        "nodes": nodes,
        "processors": processors,
        "start_s": time.time() - 600,
    }
    server.run(server.store.write(lambda session: session.add(subjob_row(job, 1, **values))))


def waits(server: ApiServer, job: str, batch_id: str, processors: int) -> None:
    """A J0 of a job that waits."""
    values = {
        "batch_id": batch_id,
        "tag": f"of-{batch_id}",
        "processors": processors,
        "role": "placeholder",
        "state": "pending",
    }
    server.run(server.store.write(lambda session: session.add(subjob_row(job, 0, **values))))


def cluster_view(nodes: int = 10, processors: int = 16, jobs: tuple[BatchJobView, ...] = ()) -> ClusterView:
    """A cluster of one queue, with maintenance of its last node in two hours."""
    now = time.time()
    names = [f"n{at}" for at in range(1, nodes + 1)]
    held = dict.fromkeys(names, 0)
    for job in jobs:
        for name in job.nodes if job.state.holds_processors else ():
            held[name] += job.processors // max(1, len(job.nodes))
    return ClusterView(
        time_s=now,
        nodes=tuple(NodeView(name, processors, max(0, processors - held[name]), True, ("main",)) for name in names),
        jobs=jobs,
        queues=(QueueView("main", True, None, 1, nodes * processors, default=True),),
        reservations=Reservations.NODES,
        site_reservations=(SiteReservation("m1", now + 7200, now + 10800, (names[-1],), what="maintenance"),),
    )


def batch_job(id: str, nodes: list[str], processors: int, **values: object) -> BatchJobView:
    """One that has run for ten minutes of an hour, of another user."""
    now = time.time()
    given: dict[str, object] = {
        "state": BatchState.RUNNING,
        "walltime_s": 3600.0,
        "start_s": now - 600,
        "end_s": now + 3000,
        "nodes": tuple(nodes),
        "tag": f"of-{id}",
    }
    return BatchJobView(id, f"secret-{id}", "eve", "main", processors=processors, **(given | values))  # type: ignore[arg-type]
