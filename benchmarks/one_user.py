"""For how much longer others wait because of what one user does: each row of the table in docs/threat-model.md.

    python benchmarks/one_user.py [--only WORDS] [--rounds 3] [--requests 100] [--ended 5000]

A real daemon for many users (`identity = "helper"`) stands in front of a real Slurm, and all processors there are
held. Mallory does one thing as fast as it goes. Meanwhile alice asks for one job of alice's, and submits one for every
five such looks. Each of these requests has a connection of its own, by the unix socket. Looks with mallory and without
take turns in rounds. Told are alice's median, 99th percentile and slowest of all rounds, without and with mallory, and
what was answered to mallory. `--ended`: mallory has so many jobs that have ended. `--only`: rows in which one of these
words stands.

The machine may be busy with other things, and mallory's client is no part of the question. So the daemon and alice's
client have a high priority (`nice`), and all else the ordinary one. Where groups of processes can have shares of the
processors (cgroup v1), the daemon, its helper, Slurm and alice's client are such a group, with far more than all else.
It has to run as root, which may become another user.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import pwd
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from ejbd.api.models import JobSubmission
from ejbd.api.submission import request_of
from ejbd.manager.jobspec import read
from ejbd.store.models import Event, Job, Subjob
from ejbd.store.store import Store
from ejbd.store.transitions import insert_rows
from harness import leave_nothing_behind, machine
from neighbour import BODY_BYTES, LARGE_ROUTES, RAW_BYTES, SCRIPT_BYTES, Unix
from tests.acceptance.test_users_slurm import Site
from tests.integration.slurm_clusters import shared_cluster
from tests.integration.users import as_user, people

LOOKS_A_SUBMISSION = 5
PACE_S = 0.01  # between two requests of alice's
BEGIN_S = 1.5  # that mallory has before alice's first request, and the daemon after mallory's last
PRIORITY = -10
MOST_ROUND_S = 90.0
PLAIN = {"command": ["true"], "cwd": "/", "env": {}, "overrides": {"time": "1", "ntasks": 1, "elastic": "off"}}


@dataclass(frozen=True, slots=True)
class Target:
    """What mallory attacks. `jobs`: one that has ended, and one that has not; `token`: of scope `submit`."""

    socket: str
    url: str
    token: str
    jobs: tuple[str, str]
    home: str
    spool: str


class Client:
    """Requests by raw connections of asyncio, which are opened again as often as they end."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.statuses: Counter[str] = Counter()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.target.socket)

    async def repeat(self, requests: Callable[[], Iterator[bytes]]) -> None:
        """One after the other on one connection, for ever."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                reader, writer = await self.open()
                try:
                    for words in requests():
                        writer.write(words)
                        await writer.drain()
                        self.statuses[await answered(reader)] += 1
                finally:
                    writer.close()
            await asyncio.sleep(0.05)

    async def held(self, words: bytes, later: bytes = b"", every_s: float = 1.0) -> None:
        """A connection that stays open; `later` is sent every so many seconds. For ever."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                reader, writer = await self.open()
                try:
                    writer.write(words)
                    ended = asyncio.create_task(_to_end(reader))
                    while not ended.done():
                        await asyncio.wait({ended}, timeout=every_s)
                        writer.write(later)
                    self.statuses[ended.result()] += 1
                finally:
                    writer.close()
            await asyncio.sleep(0.05)


async def answered(reader: asyncio.StreamReader) -> str:
    """The status of an answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if lengths:
        await reader.readexactly(int(lengths[0].split(b":")[1]))
    return head[9:12].decode()


async def _to_end(reader: asyncio.StreamReader) -> str:
    first = await reader.read(12)
    while await reader.read(65536):
        pass
    return first[9:].decode() or "cut"


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: ejbd\r\n\r\n".encode()


def post(path: str, body: Any, *headers: str, method: str = "POST") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: ejbd", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


def again(*requests: bytes) -> Callable[[], Iterator[bytes]]:
    def each() -> Iterator[bytes]:
        while True:
            yield from requests

    return each


def prioritize(pid: int, nice: int) -> None:
    """A process with its threads, and its whole session, beside which Linux counts no other's processes."""
    for task in psutil.Process(pid).threads():
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, task.id, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


GROUPS, SHARES = Path("/sys/fs/cgroup/cpu"), 1 << 17  # a process by itself, or its session, has 1,024


class Group:
    """Processes that share the processors with all else as one, and what they fork."""

    def __init__(self) -> None:
        self._folder: Path | None = GROUPS / f"one-user-{os.getpid()}"
        try:
            self._folder.mkdir()
            (self._folder / "cpu.shares").write_text(str(SHARES))
        except OSError:
            self._folder = None  # there are none, or of another kind

    def take(self, *pids: int) -> None:
        for pid in pids if self._folder is not None else ():
            (self._folder / "cgroup.procs").write_text(str(pid))  # type: ignore[operator]

    def close(self) -> None:
        """Give its processes back."""
        if self._folder is None:
            return
        for _ in range(100):
            for pid in (self._folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (GROUPS / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)


Attack = Callable[[Client], Awaitable[object]]


def many(connections: int, *requests: Callable[[Target], bytes]) -> Attack:
    """The same requests again and again, on so many connections."""

    def attack(client: Client) -> Awaitable[object]:
        words = [one(client.target) for one in requests]
        return asyncio.gather(*(client.repeat(again(*words)) for _ in range(connections)))

    return attack


def streams(connections: int, path: Callable[[Target], str]) -> Attack:
    def attack(client: Client) -> Awaitable[object]:
        words = get(path(client.target))
        return asyncio.gather(*(client.held(words) for _ in range(connections)))

    return attack


def slow_bodies(client: Client) -> Awaitable[object]:
    head = post("/v1/jobs", b"x" * 100_000)[:-100_000]
    return asyncio.gather(*(client.held(head + b"{", b" ") for _ in range(300)))


def nameless(client: Client) -> Awaitable[object]:
    """TCP connections, each from an address of its own, that say nothing; then such as ask for the daemon's health."""
    host, _, port = client.target.url.rpartition("/")[2].partition(":")

    async def one(number: int) -> None:
        while True:
            local = (f"127.{number // 250 % 250}.{number % 250}.{random.randrange(2, 250)}", 0)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=local)
                if number % 2:
                    writer.write(get("/v1/health"))
                client.statuses[await _to_end(reader)] += 1
                writer.close()
            await asyncio.sleep(0.05)

    return asyncio.gather(*(one(number) for number in range(1000)))


def burst(client: Client) -> Awaitable[object]:
    """500 submissions at once on the connections that a user has, and again once there may be so many."""
    words = post("/v1/jobs", PLAIN)

    async def volleys() -> None:
        while True:
            await asyncio.gather(*(asyncio.wait_for(one(), 20.0) for _ in range(120)), return_exceptions=True)
            await asyncio.sleep(11.0)

    async def one() -> None:
        reader, writer = await client.open()
        writer.write(words * 4)
        for _ in range(4):
            client.statuses[await answered(reader)] += 1
        writer.close()

    return volleys()


def large_bodies(client: Client) -> Awaitable[object]:
    """8 MB of each class of bytes to each address that takes large bodies."""
    head = b'{"cwd": "/", "script": '
    found: list[Callable[[], bytes]] = []
    for path in LARGE_ROUTES:
        for unit in RAW_BYTES:
            data = unit.encode()
            found.append(lambda p=path, d=data: post(p, head + d * (BODY_BYTES // len(d))))  # type: ignore[misc]
        for unit in SCRIPT_BYTES.values():
            data = json.dumps(unit)[1:-1].encode()
            script = head + b'"#!/bin/bash\\n#SBATCH -n 2 -t 5\\n'
            found.append(lambda p=path, d=data, s=script: post(p, s + d * (BODY_BYTES // len(d)) + b'"}'))  # type: ignore[misc]

    def each(dice: random.Random) -> Iterator[bytes]:
        while True:
            yield dice.choice(found)()

    return asyncio.gather(*(client.repeat(lambda n=n: each(random.Random(n))) for n in range(4)))  # type: ignore[misc]


def long_scripts(client: Client) -> Awaitable[object]:
    lines = "#!/bin/bash\n#SBATCH -n 2 -t 5\n" + 'echo "step of \\"run\\"" >> "$LOG"\n' * 110_000
    return many(16, lambda _: post("/v1/jobs/plan", {"cwd": "/", "env": {}, "script": lines}))(client)


async def stopped_sessions(client: Client) -> None:
    """32 streams of output, and submissions, behind the own sessions, which are stopped as often as they begin."""
    target = client.target

    async def stop() -> None:
        while True:
            for process in psutil.process_iter(["uids", "cmdline"]):
                if process.info["uids"].real == os.getuid() and target.spool in (process.info["cmdline"] or [""])[-1]:
                    with contextlib.suppress(psutil.Error):
                        process.suspend()
            await asyncio.sleep(0.2)

    words = get(f"/v1/jobs/{target.jobs[1]}/logs?follow=true")
    submit = client.repeat(again(post("/v1/jobs", PLAIN)))
    await asyncio.gather(stop(), submit, *(client.held(words) for _ in range(32)))


def workflows(client: Client) -> Awaitable[object]:
    stage = "{command: 'true', tasks: 1, walltime: 1, inputs: ['t/*/*/*/*/*/*/nomatch'], elastic: false}"
    plan = f"workflow: {{stages: {{a: {stage}}}}}"
    return many(8, lambda target: post("/v1/workflows", {"plan": plan, "cwd": target.home, "env": {}}))(client)


def tokens(client: Client) -> Awaitable[object]:
    return many(16, lambda _: post("/v1/tokens", {"scope": "read", "expires_in_s": 60}))(client)


def pools(client: Client) -> Awaitable[object]:
    names = [f"p{number}" for number in range(1000)]
    words = [post("/v1/pools", {"name": name, "cwd": client.target.home}) for name in names]
    return asyncio.gather(*(client.repeat(again(*words[n::16])) for n in range(16)))


ATTACKS: dict[str, Attack] = {
    "nothing": many(0),
    "looks at one job, 128 connections": many(128, lambda t: get(f"/v1/jobs/{t.jobs[0]}")),
    "submissions, one token, 64 connections": many(
        64, lambda t: post("/v1/jobs", PLAIN, f"Authorization: Bearer {t.token}")
    ),
    "480 submissions at once": burst,
    "1,000 event streams": streams(1000, lambda t: "/v1/events/stream"),
    "300 bodies at one byte a second": slow_bodies,
    "8 MB of each class of bytes to each address": large_bodies,
    "plans of scripts of 4 MB": long_scripts,
    "output and submissions behind stopped sessions": stopped_sessions,
    "1,000 connections without a name": nameless,
    "lists of 1,000 jobs": many(16, lambda t: get("/v1/jobs?limit=1000")),
    "10,000 events": many(16, lambda t: get("/v1/events?limit=10000")),
    "/v1/savings": many(16, lambda t: get("/v1/savings?by=day,user&since_s=0")),
    "pages": many(16, lambda t: get("/web/jobs?which=all"), lambda t: get("/web/savings"), lambda t: get("/")),
    "workflows with patterns": workflows,
    "pools": pools,
    "tokens": tokens,
}


def as_mallory(user: str, work: Callable[[], None]) -> BaseProcess:
    """In a process of that user's, in a session of its own."""

    def run() -> None:
        found = pwd.getpwnam(user)
        os.setsid()
        prioritize(os.getpid(), 0)
        os.setgroups([])
        os.setgid(found.pw_gid)
        os.setuid(found.pw_uid)
        os.chdir("/")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        work()

    child = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    child.start()
    return child


def attack_on(target: Target, name: str, told: Connection) -> None:
    """Until it is told to end by whatever comes over `told`; sends back what was answered."""

    async def run() -> dict[str, int]:
        client = Client(target)
        work = asyncio.ensure_future(ATTACKS[name](client))
        while not told.poll() and not work.done():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if work.done():
            await work
        return dict(client.statuses)

    loop = asyncio.new_event_loop()
    told.send(loop.run_until_complete(run()))
    os._exit(0)


def ask_as_alice(socket_path: str, job: str, orders: Connection) -> None:
    """For each number that comes, so many looks and the submissions between them; sends back the seconds of each."""
    path, body = f"/v1/jobs/{job}", json.dumps(PLAIN)
    with contextlib.suppress(EOFError):
        while True:
            count, took = orders.recv(), {"look": [], "submission": []}  # type: ignore[var-annotated]
            for number in range(count):
                took["look"].append(_timed(socket_path, "GET", path, None))
                if number % LOOKS_A_SUBMISSION == 0:
                    took["submission"].append(_timed(socket_path, "POST", "/v1/jobs", body))
            orders.send(took)


def _timed(socket_path: str, method: str, path: str, body: str | None) -> float:
    """On a connection of its own, as each `ejb` has it; one that is refused is tried again."""
    begun = time.monotonic()
    while True:
        connection = Unix(socket_path)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            answer.read()
            break
        except OSError:
            time.sleep(PACE_S)
        finally:
            connection.close()
    took = time.monotonic() - begun
    if answer.status not in (200, 201):
        raise RuntimeError(f"alice was answered {answer.status}")
    time.sleep(PACE_S)
    return took


@dataclass
class Waits:
    """Seconds of alice's requests."""

    look: list[float] = field(default_factory=list)
    submission: list[float] = field(default_factory=list)

    def add(self, took: dict[str, list[float]]) -> None:
        self.look += took["look"]
        self.submission += took["submission"]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(values: Sequence[float]) -> str:
    return " ".join(f"{1e3 * one:5.0f}" for one in (quantile(values, 0.5), quantile(values, 0.99), max(values)))


def fill(site: Site, ended: int) -> None:
    """Mallory's jobs that have ended, each with two subjobs and four events."""
    state, user = site.daemon.state, site.users.mallory
    state.mkdir(exist_ok=True)
    store = Store(f"sqlite:///{state / 'ejbd.sqlite'}")
    store.upgrade()
    script = "#!/bin/bash\n#SBATCH -n 4 -t 10\nsrun ./heat\n"
    spec = read(request_of(JobSubmission(cwd="/", script=script, env={}))).spec.to_json()
    now = time.time()
    jobs, subjobs, events = [], [], []
    for number in range(ended):
        id, end_s = f"m{number:07d}", now - 20 * 86400 * (number + 1) / (ended + 1)
        same = {"user": user, "queue": "default", "kind": "script", "engine": "application", "elastic": True}
        jobs.append(
            {"id": id, "name": f"job-{number}", "state": "completed", "processes": 4, "walltime_s": 600.0, "spec": spec,
             "submit_s": end_s - 900, "start_s": end_s - 600, "end_s": end_s, "exit_code": 0, "work_s": 600.0,
             "work_as_of_s": end_s, "rigid_start_s": end_s - 500, "account": "", "qos": "", "application": "heat",
             "members": [], **same}
        )  # fmt: skip
        for ordinal in range(2):
            subjobs.append(
                {"id": f"{id}.{ordinal}", "job_id": id, "ordinal": ordinal, "role": "placeholder", "state": "completed",
                 "tag": f"ejb-{id}.{ordinal}", "batch_id": None, "processors": 2, "walltime_s": 600.0,
                 "usable_s": 600.0, "created_s": end_s - 900, "start_s": end_s - 600, "end_s": end_s, "nodes": ["n1"]}
            )  # fmt: skip
        events += [{"at_s": end_s, "job_id": id, "kind": "job.received", "data": {"queue": "default"}}] * 4

    def add(session: Any) -> None:
        for model, rows in ((Job, jobs), (Subjob, subjobs), (Event, events)):
            insert_rows(session, model, rows)

    store.write_sync(add)
    store.close()
    service = pwd.getpwnam(site.users.service)
    for path in (state, *state.iterdir()):
        os.chown(path, service.pw_uid, service.pw_gid)


def settle(site: Site) -> None:
    """No job of mallory's or alice's waits any more, and no session is stopped."""
    for process in site.unit.sessions():
        with contextlib.suppress(psutil.Error):
            process.resume()
    end_s = time.monotonic() + MOST_ROUND_S
    while (jobs := site.daemon.client.get("/v1/jobs?state=waiting&state=received").json()["jobs"]) and (
        time.monotonic() < end_s
    ):
        for job in jobs:
            site.daemon.client.post(f"/v1/jobs/{job['id']}/cancel")


def measure(site: Site, target: Target, name: str, alice: Connection, options: argparse.Namespace) -> None:
    without, with_it, statuses = Waits(), Waits(), Counter[str]()
    for _ in range(options.rounds):
        alice.send(options.requests)
        without.add(alice.recv())
        ours, theirs = multiprocessing.Pipe()
        child = as_mallory(site.users.mallory, lambda end=theirs: attack_on(target, name, end))  # type: ignore[misc]
        time.sleep(BEGIN_S)
        alice.send(options.requests)
        with_it.add(alice.recv())
        ours.send("end")
        if ours.poll(MOST_ROUND_S):
            statuses.update(ours.recv())
        child.kill()
        child.join()
        time.sleep(BEGIN_S)
    assert site.daemon.process is not None
    memory = int(psutil.Process(site.daemon.process.pid).memory_info().rss / 2**20)
    for what in ("look", "submission"):
        before, after = getattr(without, what), getattr(with_it, what)
        more = [quantile(after, share) - quantile(before, share) for share in (0.5, 0.99)] + [max(after) - max(before)]
        line = f"{name if what == 'look' else '':46} {what:10} {told(before)} | {told(after)} | "
        line += " ".join(f"{1e3 * one:+6.0f}" for one in more)
        print(line + (f"   {memory} MB, {dict(statuses)}" if what == "look" else ""), flush=True)
    if name != "nothing":
        settle(site)


@contextlib.contextmanager
def begun(options: argparse.Namespace) -> Iterator[tuple[Site, Target, Connection]]:
    with (
        people() as users,
        shared_cluster(4, 2, "--profile=multiuser") as cluster,
        contextlib.closing(Group()) as group,
    ):
        site = Site(cluster, users)
        toml = site.daemon.config.read_text().replace("poll_s = 1.0", "poll_s = 5.0")
        site.daemon.config.write_text(toml)
        fill(site, options.ended)
        block = cluster.sbatch("--ntasks=8", "--time=60", script="sleep 3600")
        cluster.until(lambda: cluster.states().get(block) == "RUNNING", "the background did not start", 60)
        site.daemon.start()
        try:
            assert site.daemon.process is not None
            prioritize(site.daemon.process.pid, PRIORITY)
            group.take(site.daemon.process.pid, site.unit.server.pid, *cluster.pids().values())
            home = str(users.home(users.mallory))
            as_user(
                users.mallory, ["sh", "-c", f"cd {home} && mkdir -p t && for n in $(seq 40); do ln -s . t/$n; done"]
            )
            token = site.ask(users.mallory, "POST", "/v1/tokens", {"scope": "submit"})[1]["token"]
            own = [site.submit(user, "sleep", "60", ntasks=1, elastic="off") for user in (users.alice, users.mallory)]
            url = str(site.daemon.client.get("/v1/health").json().get("url", ""))
            ends = (f"m{0:07d}", own[1])
            target = Target(site.socket, url or _url(site), token, ends, home, str(site.unit.config))
            ours, theirs = multiprocessing.Pipe()
            child = os.fork()
            if not child:
                prioritize(os.getpid(), PRIORITY)
                group.take(os.getpid())
                found = pwd.getpwnam(users.alice)
                os.setgroups([])
                os.setgid(found.pw_gid)
                os.setuid(found.pw_uid)
                try:
                    ours.close()
                    ask_as_alice(site.socket, own[0], theirs)
                finally:
                    os._exit(0)
            theirs.close()
            try:
                yield site, target, ours
            finally:
                ours.close()
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        finally:
            settle(site)
            site.daemon.stop()
            site.unit.close()
            cluster.empty()


def _url(site: Site) -> str:
    words = next(line for line in site.daemon.log.read_text().splitlines() if "http://" in line)
    return "http://" + words.partition("http://")[2].split()[0].strip("\"'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100, help="looks in each half of a round")
    parser.add_argument("--ended", type=int, default=5000)
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("one_user.py: only root can be several users; run it with sudo")
    leave_nothing_behind()
    print(machine())
    print("milliseconds: median, 99th percentile, slowest without mallory | with mallory | the difference", flush=True)
    with begun(options) as (site, target, alice):
        for name in ATTACKS:
            if not options.only or any(word in name for word in options.only):
                measure(site, target, name, alice, options)
    print(machine())


if __name__ == "__main__":
    main()
