"""What runs in the allocation of a pool: a daemon of its user's own, on an embedded cluster of the allocation's nodes.

`python -m ejbd.cli.pool_serving NAME TIME`, by the batch script of `ejb pool start`. It ends with its batch job, in
time before that one's walltime, so that the work of what runs is saved. Where jobs are left, another allocation is
asked for, in which they go on.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ejbd.cli import pool_door
from ejbd.cli.own_daemon import own_daemon
from ejbd.client import pools
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.wire.hostlists import unfold

POLL_S = 1.0  # what the cluster changes it tells by itself
ASK_S = 30.0
LOOK_S = 5.0  # between two looks at what will not end in time
# Of an allocation's time: for the end of the pool itself, and before it the time in which only what ends starts.
CLOSING, MOST_CLOSING_S = 0.1, 60.0
DRAIN, MOST_DRAIN_S = 0.1, 600.0


class Allocation(NamedTuple):
    """What Slurm says of it. `end_s` in epoch seconds: None where it has none. `prefix`: environment of its commands.

    Of nodes that differ each counts with as many `processors` as the smallest.
    """

    job: str
    nodes: list[str]
    processors: int
    begin_s: float
    end_s: float | None
    partition: str | None
    conf: str | None

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Allocation:
        """Raises EjbError outside an allocation."""
        try:
            names = list(unfold(environment["SLURM_JOB_NODELIST"]))
            counts = [int(part) for part in re.findall(r"(?:^|,)([0-9]+)", environment["SLURM_JOB_CPUS_PER_NODE"])]
            job = environment["SLURM_JOB_ID"]
        except KeyError as error:
            raise EjbError(Code.INVALID, f"a pool runs in an allocation of Slurm: {error} is not set") from None
        told_s, now = environment.get("SLURM_JOB_END_TIME"), time.time()
        end_s = float(told_s) if told_s else _asked_end_s(job)
        begin_s = float(environment.get("SLURM_JOB_START_TIME") or now)
        partition, conf = environment.get("SLURM_JOB_PARTITION"), environment.get("SLURM_CONF")
        return cls(job, names, min(counts), begin_s, end_s, partition, conf)

    @property
    def until_s(self) -> float:
        """When what runs in it has to be gone."""
        if self.end_s is None:
            return math.inf
        return self.end_s - min(MOST_CLOSING_S, CLOSING * (self.end_s - self.begin_s))

    @property
    def drain_s(self) -> float:
        """How long before that nothing starts which does not end by then."""
        return 0.0 if self.end_s is None else min(MOST_DRAIN_S, DRAIN * (self.end_s - self.begin_s))

    def step(self) -> str:
        """A script that starts a command on the node that is its first word."""
        words = [shutil.which("srun") or "srun", f"--jobid={self.job}", "--overlap", "-N1", "-n1", "--cpu-bind=none"]
        prefix = ["env", f"SLURM_CONF={self.conf}"] if self.conf else []
        return f'#!/bin/sh\nnode=$1\nshift\nexec {shlex.join([*prefix, *words, "--quiet"])} -w "$node" "$@"\n'


def _asked_end_s(job: str) -> float | None:
    """When Slurm ends a job: older versions do not tell its script."""
    words = [shutil.which("squeue") or "squeue", "--noheader", "--job", job, "--format", "%e"]
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=False, env=environment)
        return datetime.fromisoformat(done.stdout.strip()).timestamp()
    except (OSError, subprocess.TimeoutExpired, ValueError):  # ValueError: without an end
        return None


def settings(found: Allocation, listen: str, step: Path) -> str:
    """The daemon's, for an embedded cluster of the allocation's nodes; `step` is where its script lies.

    The script is another one in each allocation, and jobs of the last one that wait name it by its path.
    """
    until = f"until_s = {found.until_s!r}\ndrain_s = {found.drain_s!r}\n" if found.end_s is not None else ""
    return (
        f'batch = "local"\npoll_s = {POLL_S}\nlisten = "{listen}:0"\n\n'
        f'[queues.default]\npolicy = "fcfs-malleable"\nelasticity = "on"\nmin_processors = 1\n\n'
        f"[local]\npool = true\nprocessors_per_node = {found.processors}\n{until}"
        f"node_names = {json.dumps(found.nodes)}\nstep = {json.dumps(f'{shlex.quote(str(step))} {{node}}')}\n"
    )


def serve(name: str, walltime: str) -> None:
    """Run the pool until its batch job is told to end, or its time is up."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    found = Allocation.read(os.environ)
    folder = pools.folder_of(name)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / pools.LEFT).unlink(missing_ok=True)
    step = folder / "step"
    step.write_text(found.step())
    step.chmod(0o700)
    host, address = socket.gethostname(), _address()
    text = settings(found, address, step)
    text += pool_door.settings(folder, address) if pool_door.certificate(folder, host, address) else ""
    try:
        with own_daemon(folder, text, {}, apart=True) as daemon:
            told = {"socket": daemon.place.socket, "nodes": found.nodes, "processors_per_node": found.processors}
            told |= {"host": host, "batch_job": found.job, "end_s": found.end_s}
            told |= {"url": pool_door.open_door(folder, address, daemon)}
            left = _until_it_ends(folder, told, found, daemon, stopped)
    finally:
        (folder / pools.FILE).unlink(missing_ok=True)
        leave = [sys.executable, "-m", "ejbd.batch.local", "leave", str(folder / "state" / "cluster")]
        subprocess.run(leave, check=False, timeout=60)
    if left:
        _write(folder / pools.LEFT, {"jobs": [job["id"] for job in left]})
    if left and not stopped.is_set():
        _go_on(name, walltime, found, left)


def _until_it_ends(
    folder: Path, told: dict[str, Any], found: Allocation, daemon: Client, stopped: threading.Event
) -> list[dict[str, Any]]:
    """Say in the pool's folder what is to be known of it; the jobs that are left in the end."""
    said: dict[str, Any] = {}
    left: list[dict[str, Any]] = []
    while True:
        try:
            left = [dict(job) for job in daemon.jobs(alive=True)]
        except EjbError as error:
            print(f"ejb pool: {error.sentence()}", file=sys.stderr)
        now = time.time()
        new = told | {"stay": sorted(not_in_time(left, found.until_s, now))}
        if new != said:
            _write(folder / pools.FILE, said := new)
        if stopped.wait(min(LOOK_S, max(0.0, found.until_s - now))) or time.time() >= found.until_s:
            return left


def not_in_time(jobs: Iterable[Mapping[str, Any]], until_s: float, now: float) -> list[str]:
    """Those that wait and ask for more time than the pool has left."""
    return [job["id"] for job in jobs if job["start_s"] is None and now + job["walltime_s"] > until_s]


def _go_on(name: str, walltime: str, found: Allocation, left: list[dict[str, Any]]) -> None:
    """Ask for another allocation, no wider than what is left has use for."""
    wanted = math.ceil(sum(job["processes"] for job in left) / found.processors)
    nodes = max(1, min(len(found.nodes), wanted))
    try:
        Client().start_pool(name, nodes=nodes, time=walltime, partition=found.partition)
    except EjbError as error:
        print(f"ejb pool: {error.sentence()}; `ejb pool start {name}` goes on with what is left", file=sys.stderr)


def _write(path: Path, told: Mapping[str, Any]) -> None:
    new = path.with_name(f"{path.name}.tmp")
    new.write_text(json.dumps(told))
    new.rename(path)


def _address() -> str:
    """By which the other nodes find this one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def main() -> int:
    os.umask(0o077)
    try:
        serve(sys.argv[1], sys.argv[2])
    except EjbError as error:
        print(f"ejb pool: {error.sentence()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
