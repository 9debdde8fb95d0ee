"""What the page costs: how soon it is painted, what a viewer costs the daemon, and whether viewers slow its polls.

    python benchmarks/web.py [--jobs 500] [--nodes 4096] [--viewers 100] [--seconds 30] [--loads 5]

A real `ejbd` with an embedded cluster of `--nodes` nodes of 4 processors, all held by one ordinary job; `--jobs`
elastic jobs wait. First paint: Debian's Chromium loads the first page and the list of all jobs over loopback, and its
own `first-contentful-paint` is told (`--loads 0`: not). Then a daemon without a viewer is measured, one with a viewer,
and one with `--viewers`: CPU of its process, and seconds a poll by its own metrics. Where there is news a job is held
and released, once a second, without viewers, too. A viewer keeps the stream of news open. It asks for the
list and for the cluster in turns, as an open page does: every 3 s while there is news, or 150 times as long as
the last look took, and every 30 s without. Aims: first paint under 1 s, a viewer under 1 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from ejbd.batch.base import Identity
from ejbd.batch.local import LocalBatch
from harness import ELASTIC, ROOT, folder, machine, spread
from tests.fakes.browser import chromium, missing_browser
from tests.fakes.daemon import Daemon, ordinary, until

POLL_S = 5.0
NEWS_S = 1.0  # between two changes of a job, where there is news
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
BUSY_S, IDLE_S, SHARE = 3.0, 30.0, 150.0  # as in ejbd/web/static/page.js
SUM = re.compile(r'^ejb_poll_seconds_(sum|count)\{part="(\w+)"\} (\S+)$', re.M)
TOML = """
[limits]
user_requests_per_s = 10000
user_connections = 512
user_streams = 512
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of some seconds: CPU of the daemon as a share of a core and in seconds, and seconds a poll with its two parts."""

    core: float
    used_s: float
    poll_s: float
    answered: int
    slowest_s: float


def polls(daemon: Daemon) -> dict[str, float]:
    found = SUM.findall(daemon.client.get("/metrics").text)
    return {f"{part} {what}": float(value) for what, part, value in found}


def cpu_s(daemon: Daemon) -> float:
    assert daemon.process is not None
    times = psutil.Process(daemon.process.pid).cpu_times()
    return times.user + times.system


async def viewer(client: httpx.AsyncClient, paths: tuple[str, ...], every_s: float, end: float, at: int) -> list[float]:
    """One that looks until `end` (monotonic); how long each look took."""
    took: list[float] = []
    have: dict[str, str] = {}
    async with client.stream("GET", "/web/news") as news:
        news.raise_for_status()
        await asyncio.sleep(every_s * (at % 97) / 97)
        while time.monotonic() < end:
            begun = time.monotonic()
            path = paths[len(took) % len(paths)]
            answer = await client.get(path, headers={"HX-Request": "true", "X-EJB-Have": have.get(path, "")})
            answer.raise_for_status()
            have[path] = answer.headers["X-EJB-Is"]
            took.append(time.monotonic() - begun)
            cost_s = took[-1] - float(answer.headers.get("X-EJB-Waited", "0"))
            rest = min(IDLE_S, max(every_s, SHARE * cost_s))
            await asyncio.sleep(max(0.0, begun + rest - time.monotonic()))
    return took


async def look(
    base: str,
    cookies: dict[str, str],
    paths: tuple[str, ...],
    options: argparse.Namespace,
    viewers: int,
    every_s: float,
) -> list[float]:
    end = time.monotonic() + options.seconds
    limits = httpx.Limits(max_connections=2 * viewers + 8)
    async with httpx.AsyncClient(base_url=base, cookies=cookies, timeout=60, limits=limits) as client:
        found = await asyncio.gather(*(viewer(client, paths, every_s, end, at) for at in range(viewers)))
    return [one for each in found for one in each]


@contextlib.contextmanager
def happening(daemon: Daemon) -> Iterator[None]:
    """News all the while: a job is held and released in turns."""
    over = threading.Event()
    job = daemon.client.get("/v1/jobs", params={"limit": "1"}).json()["jobs"][0]["id"]

    def go_on() -> None:
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(daemon.state / "ejbd.sock")), base_url="http://ejbd", timeout=60
        ) as own:
            act = "hold"
            while not over.wait(NEWS_S):
                own.post(f"/v1/jobs/{job}/{act}").raise_for_status()
                act = "release" if act == "hold" else "hold"

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cost(
    daemon: Daemon,
    base: str,
    cookies: dict[str, str],
    paths: tuple[str, ...],
    options: argparse.Namespace,
    viewers: int,
    every_s: float,
) -> Cost:
    before, cpu, begun = polls(daemon), cpu_s(daemon), time.monotonic()
    took: list[float] = []
    with happening(daemon) if every_s == BUSY_S else contextlib.nullcontext():
        if viewers:
            took = asyncio.run(look(base, cookies, paths, options, viewers, every_s))
        else:
            time.sleep(options.seconds)
    length, used, after = time.monotonic() - begun, cpu_s(daemon) - cpu, polls(daemon)
    count = after["store count"] - before["store count"]
    whole = sum(after[f"{part} sum"] - before[f"{part} sum"] for part in ("observe", "store"))
    return Cost(used / length, used, whole / max(1.0, count), len(took), max(took, default=0.0))


def signed_in(daemon: Daemon) -> tuple[str, dict[str, str]]:
    url = daemon.client.post("/v1/web", json={}).json()["url"]
    base = str(url).partition("/web/")[0]
    with httpx.Client() as browser:
        browser.get(url).raise_for_status()
        return base, dict(browser.cookies)


def painted(daemon: Daemon, paths: tuple[str, ...], loads: int) -> None:
    with chromium() as browser:
        context = browser.new_context()
        page = context.new_page()
        url = daemon.client.post("/v1/web", json={}).json()["url"]
        page.goto(url)
        page.wait_for_url("**/")
        for path in paths:
            found, sizes = [], []
            for _ in range(loads):
                page.goto(url.partition("/web/")[0] + path, wait_until="load")
                # Not by wait_for_function: the page's policy lets no text be run.
                until(lambda: page.evaluate(PAINT) is not None, "nothing is painted", 30)
                found.append(page.evaluate(PAINT) / 1e3)
                sizes.append(page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize"))
            print(f"first paint of {path:<24} {spread(found, ' s')}, {max(sizes) / 1024:.0f} KiB")


def measure(where: Path, options: argparse.Namespace) -> None:
    local = f"[local]\nnodes = {options.nodes}\nprocessors_per_node = 4\n"
    daemon = Daemon(where, f"poll_s = {POLL_S}\n{ELASTIC}{TOML}{local}", as_program=True)
    cluster = daemon.state / "cluster"
    cluster.mkdir(parents=True)
    batch = LocalBatch(cluster, options.nodes, 4)
    try:
        blocker = ordinary("blocker", options.nodes * 4, 3600, where, "exec sleep 3600\n")
        asyncio.run(batch.submit(Identity.own(), blocker))
        daemon.start()
        if daemon.ended():
            raise RuntimeError(f"the daemon did not start: {daemon.log.read_text()}")
        for at in range(options.jobs):
            daemon.submit("sleep", "60", ranks=8 + at % 64, time="60", overrides={"name": f"job-{at}"})
        query = {"state": "waiting", "limit": "1000"}
        until(
            lambda: len(daemon.client.get("/v1/jobs", params=query).json()["jobs"]) == options.jobs,
            "the jobs do not wait",
            300,
        )
        time.sleep(2 * POLL_S)
        paths = (f"/web/jobs?limit={max(1, options.jobs)}", "/")
        if not options.loads:
            pass
        elif reason := missing_browser():
            print(f"first paint is not measured: {reason}")
        else:
            painted(daemon, paths, options.loads)
        base, cookies = signed_in(daemon)
        rest = {every_s: cost(daemon, base, cookies, paths, options, 0, every_s) for every_s in (IDLE_S, BUSY_S)}
        for every_s, one in rest.items():
            word = "with news" if every_s == BUSY_S else "at rest"
            print(f"no viewer, {word}: {one.core:.2%} of a core, {one.poll_s:.3f} s a poll")
        for viewers, every_s, word in (
            (1, BUSY_S, "with news"),
            (options.viewers, IDLE_S, "without news"),
            (options.viewers, BUSY_S, "with news"),
        ):
            found = cost(daemon, base, cookies, paths, options, viewers, every_s)
            more = found.core - rest[every_s].core
            print(
                f"{viewers} viewers {word}: {more:.1%} of a core more, {more / viewers:.2%} a viewer, "
                f"{1e3 * more * found.used_s / found.core / max(1, found.answered):.1f} ms of CPU a look; a poll "
                f"{found.poll_s / rest[every_s].poll_s:.2f} times as long ({found.poll_s:.3f} s); "
                f"{found.answered} looks, slowest {found.slowest_s:.2f} s"
            )
    finally:
        daemon.client.close()
        daemon.stop()
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(cluster)]
        subprocess.run(down, cwd=ROOT, check=False, capture_output=True, timeout=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=4096, help="4096 at most: the embedded cluster has no more")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--loads", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.jobs} jobs, {options.nodes} nodes; {machine()}")
    with folder() as where:
        measure(where, options)


if __name__ == "__main__":
    main()
