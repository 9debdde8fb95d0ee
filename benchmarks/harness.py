"""What the benchmarks share: a daemon on a folder of its own, its clusters, and how figures are told."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from ejbd.batch.base import Identity  # noqa: E402
from ejbd.batch.local import LocalBatch  # noqa: E402
from tests.fakes.daemon import Daemon, ordinary  # noqa: E402

ELASTIC = """
[queues.default]
elasticity = "on"
"""
NODES, PROCESSORS = 8, 4
W = TypeVar("W")
F = TypeVar("F")


def machine() -> str:
    """Cores and the load of others, since figures mean nothing without them."""
    return f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median with the least and the greatest."""
    return f"{statistics.median(values):.4g}{unit} ({min(values):.4g} to {max(values):.4g})"


def by_turns(ways: Mapping[str, W], runs: int, measure: Callable[[str, W], F]) -> dict[str, list[F]]:
    """What each way comes to, so many times by turns; a round before that fills caches."""
    found: dict[str, list[F]] = {name: [] for name in ways}
    for number in range(runs + 1):
        for name, way in ways.items():
            figure = measure(name, way)
            if number:
                found[name].append(figure)
    return found


def _ended(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def leave_nothing_behind() -> None:
    """From now on TERM, HUP and INT leave every `with` on their way: daemons and clusters end with the benchmark.

    A shell starts what runs in its background with INT ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _ended)


@contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder for the length of a `with`; its path is short enough for a socket's. Signals leave it, too."""
    leave_nothing_behind()
    with tempfile.TemporaryDirectory(prefix="ejb-bench-", dir=parent, ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextmanager
def daemon_on_full_cluster(where: Path, toml: str = "", poll_s: float = 5.0) -> Iterator[Daemon]:
    """A real `ejbd` with the embedded cluster of 8 x 4, every processor of which is held by an ordinary job."""
    daemon = Daemon(where, f"poll_s = {poll_s}\n{toml}{ELASTIC}", as_program=True)
    cluster = daemon.state / "cluster"
    try:
        cluster.mkdir(parents=True)
        blocker = ordinary("blocker", NODES * PROCESSORS, 3600, where, "exec sleep 3600\n")
        asyncio.run(LocalBatch(cluster, NODES, PROCESSORS).submit(Identity.own(), blocker))
        daemon.start()
        if daemon.ended():
            raise RuntimeError(f"the daemon did not start: {daemon.log.read_text()}")
        yield daemon
    finally:
        daemon.client.close()
        daemon.stop()
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(cluster)]
        subprocess.run(down, cwd=ROOT, check=False, capture_output=True, timeout=90)
