"""REST submissions a second that are durable when they are answered, beside an application that stores nothing.

    python benchmarks/rest_rate.py [--seconds 3] [--rounds 3] [--clients 1 8 32] [--rigid] [--postgresql]

A real `ejbd` with an embedded cluster that is full, so that every job waits and the executor submits each one's J0 to
it while requests go on; `--rigid` submits ordinary jobs. The other side is a bare FastAPI application on the same
server, with the same models, that answers and forgets. Clients are processes of their own, with one kept connection
each, over loopback TCP with a bearer token or over the unix socket; each request carries an Idempotency-Key, as those
of `ejb submit` do. The two sides take turns, and the median of the rounds is told. Clients and server share this
machine's cores. Between the rounds a plain loop of one INSERT and one commit (`store_commits.py`) says what the disk
gives at that time: others use it too. Aim: 300 a second on SQLite (WAL, synchronous=FULL).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import uvicorn
from fastapi import FastAPI
from sqlalchemy import create_engine, func, select

from ejbd.api.models import JobCreated, JobSubmission
from ejbd.store.models import Job, Subjob
from harness import ROOT, daemon_on_full_cluster, folder, machine, spread
from store_commits import plain
from tests.fakes.daemon import until

SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=16\n#SBATCH --time=10\n#SBATCH --job-name=heat\nsrun ./heat --steps 1000\n"
START_S = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: the unix socket, or host and port with a token."""

    path: str | None
    host: str = ""
    port: int = 0
    token: str = ""

    def connect(self) -> socket.socket:
        if self.path is not None:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self.path)
        else:
            sock = socket.create_connection((self.host, self.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(30)
        return sock


def request(target: Target, body: bytes, key: str) -> bytes:
    lines = ["POST /v1/jobs HTTP/1.1", "Host: ejbd", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines.append(f"Idempotency-Key: {key}")
    if target.token:
        lines.append(f"Authorization: Bearer {target.token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(sock: socket.socket) -> bytes:
    """Head and body of one answer. Raises RuntimeError unless it is 201."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    head, _, rest = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(rest) < length:
        rest += _some(sock)
    if b" 201 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(f"refused: {rest[:300].decode(errors='replace')}")
    return rest


def _some(sock: socket.socket) -> bytes:
    chunk = sock.recv(65536)
    if not chunk:
        raise RuntimeError("the connection ended")
    return chunk


Results = multiprocessing.Queue  # of seconds that each request took, or of what went wrong


def client(
    target: Target, body: bytes, begin: float, end: float, results: Results[list[float] | str], every_s: float = 0.0
) -> None:
    """Submit from `begin` to `end` (monotonic seconds) over one connection, at most one `every_s` seconds; hand back
    how long each took."""
    try:
        results.put(submissions(target, body, begin, end, every_s))
    except (OSError, RuntimeError) as error:
        results.put(f"a client failed: {error!r}")


def submissions(target: Target, body: bytes, begin: float, end: float, every_s: float) -> list[float]:
    sock = target.connect()
    mark = uuid.uuid4().hex
    time.sleep(max(0.0, begin - time.monotonic()))
    taken: list[float] = []
    while (sent := time.monotonic()) < end:
        sock.sendall(request(target, body, f"{mark}-{len(taken)}"))
        answer(sock)
        taken.append(time.monotonic() - sent)
        time.sleep(max(0.0, min(sent + every_s, end) - time.monotonic()))
    return taken


@dataclass(frozen=True, slots=True)
class Load:
    """What one round gave: answers a second, seconds that one took, CPU milliseconds of the server for one."""

    rate: float
    p50_s: float
    p99_s: float
    longest_s: float
    cpu_ms: float


def load(
    target: Target, body: bytes, clients: int, seconds: float, server: psutil.Process, a_second: float = 0.0
) -> Load:
    """`a_second` submissions of all clients, 0: as many as go. Raises RuntimeError where a client fails."""
    every_s = clients / a_second if a_second else 0.0
    context = multiprocessing.get_context("fork")
    results: Results[list[float] | str] = context.Queue()
    begin = time.monotonic() + 0.2 + 0.01 * clients
    end = begin + seconds
    args = (target, body, begin, end, results, every_s)
    processes = [context.Process(target=client, args=args) for _ in range(clients)]
    for process in processes:
        process.start()
    time.sleep(max(0.0, begin - time.monotonic()))
    cpu = sum(server.cpu_times()[:2])
    found = [results.get(timeout=seconds + 60) for _ in processes]
    cpu = sum(server.cpu_times()[:2]) - cpu
    taken = []
    for one in found:
        if isinstance(one, str):
            raise RuntimeError(one)
        taken += one
    taken.sort()
    for process in processes:
        process.join()
    p99_s = taken[int(len(taken) * 0.99)]
    return Load(len(taken) / seconds, statistics.median(taken), p99_s, taken[-1], cpu * 1000 / len(taken))


def bare(path: str, tcp: socket.socket) -> None:
    """The other side, until it is terminated: same server, same models, nothing read and nothing stored."""
    app = FastAPI()

    @app.post("/v1/jobs", status_code=201)
    async def submit(body: JobSubmission) -> JobCreated:
        return JobCreated(id=uuid.uuid4().hex[:8], name="heat", created=True, elastic=True, why="", notes=[])

    unix = socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen(1024)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="none", lifespan="off", http="httptools", loop="asyncio"
    )
    asyncio.run(uvicorn.Server(config).serve(sockets=[unix, tcp]))


@contextmanager
def bare_server(where: Path) -> Iterator[tuple[dict[str, Target], psutil.Process]]:
    tcp = socket.socket()
    tcp.bind(("127.0.0.1", 0))
    tcp.listen(1024)
    port = tcp.getsockname()[1]
    path = str(where / "bare.sock")
    process = subprocess.Popen(
        [sys.executable, __file__, "--bare", path, str(tcp.fileno())], pass_fds=[tcp.fileno()], cwd=ROOT
    )
    tcp.close()
    targets = {"tcp": Target(None, "127.0.0.1", port), "unix": Target(path)}
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                targets["unix"].connect().close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield targets, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def run(url: str | None, options: argparse.Namespace) -> None:
    name = "PostgreSQL" if url else "SQLite"
    toml = f'database_url = "{url}"\n' if url else ""
    overrides = {"elastic": "off"} if options.rigid else {}
    body = json.dumps(
        {
            "cwd": "/tmp",
            "script": SCRIPT,
            "script_name": "heat.sh",
            "env": {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"},
            "overrides": overrides,
        }
    ).encode()
    with (
        folder(options.directory) as where,
        bare_server(where) as (others, other),
        daemon_on_full_cluster(where, toml) as daemon,
    ):
        assert daemon.process is not None
        server = psutil.Process(daemon.process.pid)
        published = daemon.state / "spool" / "manager.json"
        until(published.exists, "the daemon did not publish its address", 60)
        address = urlsplit(json.loads(published.read_text())["url"])
        token = daemon.client.post("/v1/tokens", json={"label": "benchmark"}).json()["token"]
        ours = {
            "tcp": Target(None, address.hostname or "", address.port or 0, token),
            "unix": Target(str(daemon.state / "ejbd.sock")),
        }
        disk: list[float] = []
        for way in ("tcp", "unix"):
            for clients in options.clients:
                rounds = [
                    (
                        load(ours[way], body, clients, options.seconds, server),
                        load(others[way], body, clients, options.seconds / 2, other),
                    )
                    for _ in range(options.rounds)
                ]
                with folder(options.directory) as scratch:
                    disk.append(plain(scratch, 0.5))
                tell(f"{name}, {way}", clients, [one for one, _ in rounds], [one for _, one in rounds])
        database = url or f"sqlite:///{daemon.state / 'ejbd.sqlite'}"
        print(f"  a plain loop of commits, between: {spread(disk, '/s')}")
        print(f"  meanwhile: {meanwhile(daemon.client, database)}")


def meanwhile(api: httpx.Client, database: str) -> str:
    """How far the executor and the polls came while requests went on."""
    with create_engine(database).connect() as connection:
        jobs = connection.scalar(select(func.count()).select_from(Job))
        taken = connection.scalar(select(func.count()).where(Subjob.batch_id.is_not(None)))
    health = api.get("/v1/health").json()
    return f"{taken} of {jobs} jobs reached the batch system; {health['polls']} polls, {health['failed_polls']} failed"


def tell(what: str, clients: int, ours: list[Load], others: list[Load]) -> None:
    def median(loads: list[Load], field: str) -> float:
        return float(statistics.median(getattr(one, field) for one in loads))

    rate, bare_rate = median(ours, "rate"), median(others, "rate")
    print(
        f"{what:<17}{clients:>3} clients {rate:>7.0f}/s  p50 {median(ours, 'p50_s') * 1000:>6.1f} ms"
        f"  p99 {median(ours, 'p99_s') * 1000:>6.1f} ms  CPU {median(ours, 'cpu_ms'):>5.2f} ms"
        f" | storing nothing {bare_rate:>6.0f}/s  CPU {median(others, 'cpu_ms'):>5.2f} ms"
        f" | ratio {rate / bare_rate:.2f}",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["--bare"]:
        bare(sys.argv[2], socket.socket(fileno=int(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one round of the daemon's side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rigid", action="store_true", help="ordinary jobs instead of elastic ones")
    parser.add_argument("--postgresql", action="store_true", help="also a private PostgreSQL, fsync on")
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(machine())
    run(None, options)
    if options.postgresql:
        from tests.integration.postgres import PostgresServer, why_not

        if (reason := why_not()) is not None:
            print(f"PostgreSQL skipped: {reason}")
            return
        postgres = PostgresServer(fsync=True)
        try:
            run(postgres.new_database(), options)
        finally:
            postgres.stop()


if __name__ == "__main__":
    main()
