"""How long a submission takes in a flood beside the polls of a daemon in which thousands of elastic jobs wait.

    python benchmarks/flood.py [--elastic 10000] [--queued 10000] [--nodes 4096] [--clients 32] [--a-second 0]
                               [--seconds 12] [--rounds 3] [--directory DIR]

The world is that of `tick.py`: `--elastic` jobs wait in a real store (SQLite, synchronous=FULL), their J0 pending at a
batch system in memory where `--queued` others wait, too; no processor is free. The daemon's manager polls it every 5 s,
hands on new jobs' J0 and serves its API on a unix socket, in a process of its own; `--clients` processes submit over
one kept connection each, as fast as they are answered, or `--a-second` submissions all together. Told are submissions
a second, their median and 99th percentile, the longest, and the server's CPU time for each. Aim: a p99 under 0.2 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pwd
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from ejbd.api.app import create_app
from ejbd.api.server import serve
from ejbd.batch.base import Identity
from ejbd.batch.reading import beside
from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.core.view import ClusterView, Reservations
from ejbd.daemon import freeze
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.manager import Manager
from ejbd.manager.world import World
from ejbd.store.store import Store
from harness import ROOT, folder, machine, spread
from planning import NOW, make_view
from rest_rate import SCRIPT, Load, Target, load
from tests.fakes.batch import Clock, MemoryBatch
from tick import busy, fill, listed

START_S = 600.0  # in which thousands of jobs are stored


class Passing(Clock):
    """Time that goes on by itself, from the moment at which the view was made."""

    def __init__(self) -> None:
        super().__init__(NOW - time.monotonic())

    def __call__(self) -> float:
        return self.now + time.monotonic()


class Listed(MemoryBatch):
    """Shows `view` as it would be listed again, and what is submitted."""

    view: ClusterView

    async def observe(self) -> ClusterView:
        def read() -> ClusterView:
            jobs = (*map(replace, self.view.jobs), *self.jobs.values())
            return replace(self.view, time_s=self.clock(), jobs=jobs)

        return await beside(read)

    def _call(self, what: str, identity: Identity | None = None) -> None:
        """Called with what the benchmark does now."""


async def server(where: Path, elastic: int, queued: int, nodes: int) -> None:
    """Until it is terminated; says `ready` once it answers."""
    dice, clock = random.Random(1), Passing()
    settings = Settings(state_dir=where, queues={"default": QueueSettings(elasticity=Elasticity.ON)})
    store = Store(settings.url_of_database)
    store.upgrade()
    batch = Listed(clock)
    user = pwd.getpwuid(os.geteuid()).pw_name
    first, manager = (Manager(World(settings, store, batch, SteadyClock(clock, clock), runs_as=user)) for _ in range(2))
    batch.view = ClusterView(NOW, (), (), (), Reservations.NODES)
    await first.start()  # the spool is made for an empty database
    await first.stop()
    empty = busy(make_view(nodes, queued, Reservations.NODES, dice))
    fill(manager, empty, elastic, dice)
    batch.view = listed(manager, empty)
    await manager.start()
    await manager.poller.poll()  # the first one stores a decision about every job
    await manager.poller.poll()
    await serve(create_app(manager), settings)
    freeze()
    print("ready", flush=True)
    await asyncio.Event().wait()


def run(where: Path, options: argparse.Namespace) -> None:
    shape = [str(value) for value in (options.elastic, options.queued, options.nodes)]
    command = [sys.executable, __file__, "--serve", str(where), *shape]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if "ready\n" not in iter(process.stdout.readline, ""):
                raise RuntimeError("the server did not start")
            tell(where, options, psutil.Process(process.pid))
        finally:
            process.terminate()


def tell(where: Path, options: argparse.Namespace, process: psutil.Process) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}
    body = json.dumps({"cwd": "/tmp", "script": SCRIPT, "script_name": "heat.sh", "env": env}).encode()
    target = Target(str(Settings(state_dir=where).socket_path))
    load(target, body, options.clients, 1.0, process)
    loads: Sequence[Load] = [
        load(target, body, options.clients, options.seconds, process, options.a_second) for _ in range(options.rounds)
    ]
    shape = f"{options.elastic} elastic jobs wait x {options.queued} queued x {options.nodes} nodes"
    print(f"{shape}, {options.clients} clients")
    print(f"submissions a second  {spread([one.rate for one in loads])}")
    print(f"median                {spread([one.p50_s * 1e3 for one in loads], ' ms')}")
    print(f"99th percentile       {spread([one.p99_s * 1e3 for one in loads], ' ms')}")
    print(f"the longest           {spread([one.longest_s * 1e3 for one in loads], ' ms')}")
    print(f"CPU of the server     {spread([one.cpu_ms for one in loads], ' ms')} each")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(server(Path(sys.argv[2]), *map(int, sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elastic", type=int, default=10_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--a-second", type=float, default=0.0, help="of all clients together; 0: as many as go")
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a round: some polls")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(machine())
    with folder(options.directory) as where:
        run(where, options)


if __name__ == "__main__":
    main()
