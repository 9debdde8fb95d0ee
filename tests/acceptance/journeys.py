"""What journeys share: an undisturbed result to compare with, a watch over ranks, and what must hold at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.acceptance.sites import BatchJob, Site
from tests.fakes.daemon import HEAT, Daemon, until

_UNDISTURBED: dict[tuple[int, int], bytes] = {}


def undisturbed(folder: Path, steps: int, size: int = 32) -> bytes:
    """The result of the same computation without EJB, by one rank that nobody moves; computed once in a process.

    On any number of ranks it is the same to the bit (integration/test_heat.py), and on one it costs an eighth.
    """
    if (steps, size) in _UNDISTURBED:
        return _UNDISTURBED[steps, size]
    result = folder / "undisturbed"
    options = ["--steps", str(steps), "--size", str(size), "--result", str(result)]
    subprocess.run([sys.executable, str(HEAT), *options], check=True, capture_output=True, timeout=120)
    return _UNDISTURBED.setdefault((steps, size), result.read_bytes())


_WRITTEN = re.compile(r"/([^/]+)/epochs/\d+/output/(\d+)\.out$")


def ranks_of(job: str, forks: bool = False) -> dict[int, int]:
    """Process id -> rank of every live rank of a job; see :func:`ranks_of_all`."""
    return ranks_of_all(forks).get(job, {})


class NoRanks:
    """Processes that need no second look: they were no ranks when they had been there for a while.

    What is to be a rank has the environment of one once it is begun as that, hence the while. Every second all are
    looked at again.
    """

    SETTLED_S, ANEW_S = 3.0, 1.0

    def __init__(self) -> None:
        self._met_s: dict[str, float] = {}
        self._settled: set[str] = set()
        self._next_s = 0.0

    def to_look_at(self, names: list[str]) -> list[str]:
        now = time.monotonic()
        if now >= self._next_s:
            there = set(names)
            self._met_s = {name: since for name, since in self._met_s.items() if name in there}
            self._settled.clear()
            self._next_s = now + self.ANEW_S
        return [name for name in names if name not in self._settled]

    def is_none(self, name: str) -> None:
        now = time.monotonic()
        if self._met_s.setdefault(name, now) <= now - self.SETTLED_S:
            self._settled.add(name)


def ranks_of_all(forks: bool = False, others: NoRanks | None = None) -> dict[str, dict[int, int]]:
    """Job -> process id -> rank of every live rank, by the processes' environments, or by where they write to.

    What /proc shows as the environment of a process that DMTCP has restored may be anything. The fake of dmtcp_launch,
    which in truth becomes the rank, is not one, nor, unless `forks`, is what a rank has forked (DMTCP does, at a
    checkpoint). `others`: what looks before this one have seen to be none.
    """
    found: dict[int, tuple[str, int]] = {}
    parents: dict[int, int] = {}
    names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 (a Path for each takes long)
    for name in others.to_look_at(names) if others else names:
        try:
            one = _rank_of(f"/proc/{name}")
            if one is None:
                if others:
                    others.is_none(name)
                continue
            state, parent = _read(f"/proc/{name}/stat").decode(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX" and b"dmtcp_commands.py" not in _read(f"/proc/{name}/cmdline"):
                found[int(name)], parents[int(name)] = one, int(parent)
        except OSError:
            continue
    jobs: dict[str, dict[int, int]] = {}
    for pid, (job, rank) in found.items():
        if forks or found.get(parents[pid]) != (job, rank):
            jobs.setdefault(job, {})[pid] = rank
    return jobs


def _rank_of(process: str) -> tuple[str, int] | None:
    """Job and rank of a process in /proc; None: it is no rank."""
    environment = _read(f"{process}/environ")
    if b"EJB_JOB_ID=" in environment and b"EJB_RANK=" in environment:
        given = dict(item.split(b"=", 1) for item in environment.split(b"\0") if b"=" in item)
        if b"EJB_JOB_ID" in given and b"EJB_RANK" in given:
            return given[b"EJB_JOB_ID"].decode(), int(given[b"EJB_RANK"])
    output = _WRITTEN.search(os.readlink(f"{process}/fd/1"))  # noqa: PTH115
    return (output.group(1), int(output.group(2))) if output else None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)


_ESTABLISHED, _LISTEN = "01", "0A"


def _connections(pid: int) -> list[str]:
    """The states of a process's TCP sockets, as its own network namespace has them: a cluster's node may be one."""
    sockets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    states = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in sockets:
                states.append(fields[3])
    return states


def met(ranks: Collection[int]) -> bool:
    """Whether each of these processes is connected to another: then the ranks have found each other, and compute."""
    for pid in ranks:
        try:
            states = _connections(pid)
        except OSError:
            return False
        if _ESTABLISHED not in states or _LISTEN in states:
            return False
    return bool(ranks)


def _is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a process has still to take a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


class Watch:
    """Looks at a job's ranks again and again. Can hold them (SIGSTOP), so that what must come before their end does."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.doubled: list[str] = []
        self.seen: set[int] = set()
        self._wanted = 0
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._others = NoRanks()

    def hold(self, size: int) -> None:
        """Let the ranks stand still as soon as all `size` of them compute."""
        self._wanted = size

    def asked_to_checkpoint(self) -> bool:
        """Whether each held rank has a SIGUSR1 that it will find when it is let go."""
        return bool(self._held) and all(_is_pending(pid, signal.SIGUSR1) for pid in self._held)

    def let_go(self) -> None:
        with self._lock:
            self._wanted = 0
            for pid in self._held:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def look(self) -> None:
        with self._lock:
            ranks = ranks_of_all(others=self._others).get(self.job, {})
            if len(ranks) == self._wanted and not self._held and met(ranks):
                for pid in ranks:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                self._held = set(ranks)
        self.seen.update(ranks.values())
        if len(set(ranks.values())) == len(ranks):
            return
        # Looked at twice: while a scan goes on one rank may end and its successor start.
        again = {pid: rank for pid, rank in ranks_of(self.job).items() if pid in ranks}
        for rank, count in Counter(again.values()).items():
            if count > 1:
                self.doubled.append(f"rank {rank}: processes {[pid for pid, r in again.items() if r == rank]}")


@contextmanager
def one_copy_only(job: str) -> Iterator[Watch]:
    """Watch a job's ranks; AssertionError at the end if one was ever seen twice at a time, or none at all."""
    watch = Watch(job)
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            watch.look()

    watcher = threading.Thread(target=look, name="one-copy-only")
    watcher.start()
    try:
        yield watch
    finally:
        over.set()
        watcher.join()
        watch.let_go()
    assert not watch.doubled, f"two live copies of the application: {watch.doubled[:5]}"
    assert watch.seen, "no rank was ever seen"


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
    until(
        lambda: not any(row.live for row in ours(site, job)), "a batch job is left", 120, lambda: str(ours(site, job))
    )
    until(lambda: not daemon.processes(), "a worker or a rank is left", 120, lambda: str(daemon.processes()))
    assert ranks_of(job, forks=True) == {}


def each_tag_once(daemon: Daemon, site: Site, job: str) -> None:
    """Every subjob that was submitted is one batch job, and there is no batch job that is no subjob's.

    A batch job that has just been made is told of by the batch system before the daemon has its number.
    """

    def agree() -> bool:
        rows = ours(site, job)
        doubled = {name: count for name, count in Counter(row.name for row in rows).items() if count > 1}
        assert not doubled, f"more than one batch job under one tag: {rows}"
        subjobs = {f"ejb-{s['id']}": s["batch_id"] for s in daemon.job(job)["subjobs"] if s["batch_id"] is not None}
        return {row.name: row.id for row in rows} == subjobs

    until(agree, "batch jobs and subjobs are not the same", 120, lambda: f"{ours(site, job)}\n{daemon.job(job)}")


def made_again(daemon: Daemon, folder: Path, *changes: str) -> dict[str, Any]:
    """Export the running daemon's log with `ejb events`, and make its decisions again with `ejb sim replay`."""
    log = folder / "log.jsonl"
    environment = {**os.environ, "EJB_SOCKET": str(daemon.state / "ejbd.sock")}
    for words in (["events", "--export", str(log)], ["sim", "replay", str(log), "--json", *changes]):
        argv = [sys.executable, "-m", "ejbd.cli.main", *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == int(bool(changes and words[0] == "sim")), done.stdout + done.stderr
    return dict(json.loads(done.stdout))
