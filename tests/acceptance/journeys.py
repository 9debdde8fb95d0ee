"""What journeys share: an undisturbed result to compare with, a watch over ranks, and what must hold at the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.sites import BatchJob, Site
from tests.fakes.daemon import HEAT, Daemon, until


def undisturbed(folder: Path, steps: int, ranks: int) -> bytes:
    """The result of the same computation without EJB, on ranks that nobody moves."""
    result = folder / "undisturbed"
    options = ["--steps", str(steps), "--size", "32", "--result", str(result), "--spawn", str(ranks)]
    subprocess.run([sys.executable, str(HEAT), *options], check=True, capture_output=True, timeout=120)
    return result.read_bytes()


def ranks_of(job: str) -> dict[int, int]:
    """Process id -> rank of every live rank of a job, by the processes' environments."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environment = dict(
                item.split(b"=", 1) for item in (entry / "environ").read_bytes().split(b"\0") if b"=" in item
            )
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if environment.get(b"EJB_JOB_ID") == job.encode() and b"EJB_RANK" in environment and state not in "ZX":
            found[int(entry.name)] = int(environment[b"EJB_RANK"])
    return found


@contextmanager
def one_copy_only(job: str) -> Iterator[None]:
    """Look at a job's ranks again and again; AssertionError at the end if one was ever seen twice at a time."""
    doubled: list[str] = []
    seen: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            # Looked at twice: while a scan goes on one rank may end and its successor start.
            for rank, count in Counter(ranks_of(job).values()).items():
                seen.add(rank)
                again = ranks_of(job) if count > 1 else {}
                if list(again.values()).count(rank) > 1:
                    doubled.append(f"rank {rank}: processes {[pid for pid, r in again.items() if r == rank]}")

    watcher = threading.Thread(target=watch, name="one-copy-only")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert not doubled, f"two live copies of the application: {doubled[:5]}"
    assert seen, "no rank was ever seen"


@contextmanager
def daemon_on(site: Site, folder: Path, **limits: float) -> Iterator[Daemon]:
    """The background, and a daemon that runs, with some of its limits changed. Both are ended at the end."""
    environment = {f"EJBD_LIMITS__{name.upper()}": str(value) for name, value in limits.items()}
    daemon = Daemon(folder, site.toml, {**site.environment, **environment})
    try:
        site.fill()
        daemon.start()
        yield daemon
    finally:
        daemon.stop()
        site.close()


def ours(site: Site, job: str) -> list[BatchJob]:
    """The batch jobs under the tags of one elastic job."""
    return [row for row in site.jobs() if row.name.startswith(f"ejb-{job}.")]


def nothing_left(daemon: Daemon, site: Site, job: str) -> None:
    """Wait until no batch job, worker or rank of the job is left."""
    until(lambda: not any(row.live for row in ours(site, job)), "a batch job is left", 40, lambda: str(ours(site, job)))
    until(lambda: not daemon.processes(), "a worker or a rank is left", 30, lambda: str(daemon.processes()))
    assert ranks_of(job) == {}


def each_tag_once(daemon: Daemon, site: Site, job: str) -> None:
    """Every subjob that was submitted is one batch job, and there is no batch job that is no subjob's."""
    rows = ours(site, job)
    doubled = {name: count for name, count in Counter(row.name for row in rows).items() if count > 1}
    assert not doubled, f"more than one batch job under one tag: {rows}"
    subjobs = {f"ejb-{s['id']}": s["batch_id"] for s in daemon.job(job)["subjobs"] if s["batch_id"] is not None}
    assert {row.name: row.id for row in rows} == subjobs
