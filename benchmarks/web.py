"""What the page costs: 500 jobs on 5,000 nodes, until it is painted, and with many viewers.

    python benchmarks/web.py [--viewers 1 10 100] [--seconds 30]

The real API server over a real store, in a process of its own, with a manager of the tests that shows a cluster. Each
viewer does what the page's script does: it holds the stream of events and asks for the first page every three seconds,
as where something happens all the time. Told are the paint in Chromium (where there is one), the server's CPU time for
a viewer, and by how much a task of the server's event loop wakes too late: a poll waits for the same loop. Aims: first
paint under 1 s; under 1 % of a core for a viewer; 100 viewers do not hold a poll up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx
import psutil

from ejbd.wire.rights import Scope
from harness import folder, machine, spread
from tests.fakes.api_server import ApiServer
from tests.fakes.browser import chromium, missing_browser, reader
from tests.fakes.web import batch_job, cluster_view, link, runs, submit

NODES, JOBS = 5000, 500
LOOK_S = 3.0
BEAT_S = 0.02
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def serve(where: Path, told: Connection, end: Event) -> None:
    """A server with its jobs; each word that it is sent makes a link or tells the lateness since the last."""
    server = ApiServer(where, settings={"operators": ["otto"]})
    late: list[float] = []

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            late.append(time.perf_counter() - before - BEAT_S)

    try:
        jobs = []
        for at in range(JOBS):
            job = submit(server, f"user{at % 50}", f"job-{at}")
            runs(server, job, str(at), [f"n{at * 10 + 1}"], 8)
            jobs.append(batch_job(str(at), [f"n{at * 10 + 1}", f"n{at * 10 + 2}"], 32))
        server.manager.view = cluster_view(NODES, jobs=tuple(jobs))
        beating = asyncio.run_coroutine_threadsafe(beat(), server.loop)
        told.send(server.servers.url)
        while not end.is_set():
            if not told.poll(0.1):
                continue
            if told.recv() == "link":
                told.send(link(server, "otto", Scope.OPERATE))
            else:
                told.send(list(late))
                late.clear()
        beating.cancel()
    finally:
        server.close()


@contextlib.asynccontextmanager
async def viewer(address: str, base: str) -> AsyncIterator[None]:
    """A browser of a kind: signed in, listening, and looking every three seconds."""
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        await client.get(address)

        async def listen() -> None:
            async with client.stream("GET", "/v1/events/stream") as stream:
                async for _ in stream.aiter_raw():
                    pass

        async def look() -> None:
            while True:
                begun = time.monotonic()
                (await client.get("/")).raise_for_status()
                await asyncio.sleep(max(0.0, LOOK_S - (time.monotonic() - begun)))

        tasks = [asyncio.create_task(listen()), asyncio.create_task(look())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def watched(links: list[str], base: str, seconds: float) -> None:
    """So many viewers for a while."""
    async with contextlib.AsyncExitStack() as stack:
        for address in links:
            await stack.enter_async_context(viewer(address, base))
        await asyncio.sleep(seconds)


def paints(links: list[str], base: str) -> dict[str, list[float]]:
    """Milliseconds until something was painted, by page."""
    found: dict[str, list[float]] = {"/": [], "/web/jobs?limit=500": []}
    with chromium() as browser:
        for address in links:
            with reader(browser, address) as page:
                for path, times in found.items():
                    page.goto(base + path)
                    page.wait_for_function(f"{PAINT} > 0")
                    times.append(float(page.evaluate(PAINT)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    print(machine())
    context = multiprocessing.get_context("spawn")
    with folder() as where:
        ours, theirs = context.Pipe()
        end = context.Event()
        process = context.Process(target=serve, args=(where, theirs, end))
        process.start()
        try:
            base = str(ours.recv())

            def ask(word: str) -> object:
                ours.send(word)
                return ours.recv()

            sizes = {path: _size(str(ask("link")), base, path) for path in ("/", "/web/jobs?limit=500")}
            print(f"{NODES} nodes, {JOBS} jobs; pages: {json.dumps(sizes)} bytes")
            if reason := missing_browser():
                print(f"no paint: {reason}")
            else:
                for path, times in paints([str(ask("link")) for _ in range(5)], base).items():
                    print(f"first paint of {path}: {spread(times, ' ms')}")
            known = psutil.Process(process.pid)
            for count in (0, *options.viewers):
                links = [str(ask("link")) for _ in range(count)]
                ask("late")
                before, begun = sum(known.cpu_times()[:2]), time.monotonic()
                asyncio.run(watched(links, base, options.seconds))
                spent = (sum(known.cpu_times()[:2]) - before) / (time.monotonic() - begun)
                late = [one * 1e3 for one in ask("late")]  # type: ignore[attr-defined]
                each = f", {spent / count:.2%} a viewer" if count else ""
                worst = statistics.quantiles(late, n=100)[98]
                print(
                    f"{count:>4} viewers: {spent:.1%} of a core{each}; the loop wakes {statistics.median(late):.1f} ms "
                    f"late (99 of 100: {worst:.1f}, most {max(late):.1f})"
                )
        finally:
            end.set()
            process.join(30)


def _size(address: str, base: str, path: str) -> int:
    with httpx.Client(base_url=base, timeout=60) as client:
        client.get(address)
        return len(client.get(path).raise_for_status().content)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
