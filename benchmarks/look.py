"""What a look at the daemon's page costs in CPU, made anew, shared with others, and where nothing has changed.

    python benchmarks/look.py [--jobs 500] [--nodes 5000] [--queued 500] [--runs 20] [--directory DIR]

The daemon's application over a real store (SQLite) and a fake batch system, in one process with its client. `--jobs`
elastic jobs wait at `--nodes` nodes of 32 processors, all of them held by `--queued` batch jobs that run. Told is CPU
(user and system) of the whole process for each look, with what the client itself takes of it, so that other programs
on the machine disturb it little. Statements are counted at the driver.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import Engine, event

from ejbd.api.app import create_app
from ejbd.api.models import TokenRequest
from ejbd.api.tokens import minted
from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.core.view import BatchState, Reservations
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.manager import Manager
from ejbd.manager.world import World
from ejbd.store.store import Store
from ejbd.web.app import install
from ejbd.wire.rights import Scope
from harness import folder, machine, spread
from planning import make_view
from tests.fakes.batch import Clock, MemoryBatch
from tick import busy, fill, listed

USER = "ada"  # all jobs are of this user
PAGE = {"HX-Request": "true", "Accept-Encoding": "gzip"}  # as the page asks by itself


def daemon(where: Path, options: argparse.Namespace) -> Manager:
    dice = random.Random(1)
    clock = Clock(time.time())
    settings = Settings(state_dir=where, queues={"default": QueueSettings(elasticity=Elasticity.ON)})
    store = Store(settings.url_of_database)
    store.upgrade()
    manager = Manager(World(settings, store, MemoryBatch(clock), SteadyClock(clock, clock)))
    view = busy(make_view(options.nodes, options.queued, Reservations.NODES, dice))
    each = max(1, options.nodes // max(1, options.queued))
    running = tuple(
        replace(
            job,
            state=BatchState.RUNNING,
            start_s=clock.now - 600,
            end_s=clock.now + dice.randint(600, 36000),
            nodes=tuple(node.name for node in view.nodes[at * each : (at + 1) * each]),
        )
        for at, job in enumerate(view.jobs)
    )
    fill(manager, replace(view, jobs=running, time_s=clock.now), options.jobs, dice)
    manager.world.view = listed(manager, replace(view, jobs=running, time_s=clock.now))
    return manager


async def measure(manager: Manager, options: argparse.Namespace) -> None:
    async def examine(build_plugin: bool, mpi: bool) -> list[dict[str, Any]]:
        return []

    app: FastAPI = create_app(manager, examine)
    install(app)
    statements = 0

    @event.listens_for(Engine, "before_cursor_execute")
    def counted(*_: object) -> None:
        nonlocal statements
        statements += 1

    token, _ = await minted(manager, USER, TokenRequest(label="look", scope=Scope.READ))
    headers = {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        for path in (f"/web/jobs?limit={options.jobs}", "/", "/web/queues"):
            for word in ("made", "shared"):
                for kept in (app.state.pictures, app.state.lists, app.state.sites):
                    kept.most_s = 0.0 if word == "made" else 3600.0
                (await client.get(path, headers=PAGE)).raise_for_status()
                costs, before, answer = [], statements, None
                for _ in range(options.runs):
                    begun = time.process_time()
                    answer = await client.get(path, headers=PAGE)
                    costs.append((time.process_time() - begun) * 1e3)
                assert answer is not None
                size = int(answer.headers["content-length"]) / 1024
                each = (statements - before) / options.runs
                told = f"{size:.1f} KiB of {len(answer.content) / 1024:.1f}, {each:g} statements"
                print(f"{path:<22} {word:<8} {spread(costs, ' ms of CPU')}, {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--queued", type=int, default=500)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(f"{options.jobs} jobs, {options.queued} others, {options.nodes} nodes; {machine()}")
    with folder(options.directory) as where:
        manager = daemon(where, options)
        try:
            asyncio.run(measure(manager, options))
        finally:
            manager.store.close()


if __name__ == "__main__":
    main()
