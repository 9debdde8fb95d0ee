"""A whole site on one daemon: 2,000 users poll and submit, in front of a Slurm of 5,000 nodes with 20,000 jobs.

    python benchmarks/site_load.py [--seconds 300] [--nodes 5000] [--jobs 20000] [--users 2000] [--idle 4]
        [--polls 60] [--submissions 4] [--clients 16] [--array 8] [--most-fill 420] [--out FILE]
        [--fill-with "..."] [--load-with "..."]

As root, in a mount namespace of its own (`site_poll.py`, which has the Slurm too: a real slurmctld, CLOUD nodes that
boot for ever). `ejbd` runs as a service user and acts for each user through `ejb-as`. Each user has a token. `--polls`
looks a second (lists and single jobs by turns) and `--submissions` a second are made by users drawn at random, over
`--clients` connections. Told are: latencies as the clients saw them, the daemon's memory and CPU time, slurmctld's
share of a core, what a submission cost (CPU, sessions of `ejb-as`, batch commands), and what was lost. Nothing may be:
every job that was answered for is one batch job of its user's. `--seconds 60 --jobs 2000` is a short one.

Of the jobs that are there already a fifth runs, each a job of its own. The others wait as arrays of `--array` elements,
since 20,000 calls of sbatch are six minutes of CPU. Slurm lists such an array in one row: told is how many rows there
are. With `--array 1` there are as many as jobs. These jobs are other people's: each comes by its own user's `sbatch`.
Those of the load come by REST, each with its user's token.

All of it is bounded. Filling ends after `--most-fill` seconds with the jobs that are there, and the load `OVER_S` after
its time: requests that were not made by then are counted. `--out` (site_load.json) has all figures every `TOLD_S` of
the load, as far as they are known, so that a run that is cut off has said something.

Both stages, filling and load, are programs of their own. Where several share a machine, `--fill-with` and `--load-with`
name what gives them their turns: a command that takes theirs behind it. Where it ends with 75 there was no turn, and it
is asked again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ejbd.api.auth import digest
from ejbd.store.models import Token
from ejbd.store.store import Store
from harness import machine
from helper_cost import free_port
from site_poll import FIRST_UID, as_root, process_cpu_s, site, submit
from tests.fakes.daemon import Daemon, until
from tests.fakes.socketunit import PYTHON, SocketUnit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from clusters.processes import daemons
from clusters.programs import run

SERVICE = f"u{FIRST_UID - 1}"
STAGES = ("fill", "load")
TAGGED_S = 120.0  # until Slurm has every job that was answered for
OVER_S = 60.0  # of requests that come late
TOLD_S = 10.0
ENDING_S = 60.0  # what a stage has to end in once it is cut off
NO_TURN, MOST_TURNS = 75, 20
Answer = tuple[str, float, int]  # what, seconds, status


@dataclass
class Seen:
    """What all clients saw. `jobs`: id -> user, as answered."""

    answers: list[Answer] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    late: int = 0
    unmade: int = 0  # requests for which there was no time
    lock: threading.Lock = field(default_factory=threading.Lock)


def token(user: str) -> str:
    return f"ejb_of-{user}"


def prepared(where: Path, users: int, port: int) -> tuple[Daemon, SocketUnit]:
    """The daemon's folder with every user's token in its database, and the helper."""
    names = [f"u{uid}" for uid in range(FIRST_UID, FIRST_UID + users)]
    homes = where / "homes"
    homes.mkdir(mode=0o755)
    for number, name in enumerate(names):
        (homes / name).mkdir(mode=0o700)
        os.chown(homes / name, FIRST_UID + number, FIRST_UID + number)
    conf = {"SLURM_CONF": str(where / "slurm.conf")}
    (where / "helper").mkdir(mode=0o755)
    programs = {"path": os.environ["PATH"], "environment": conf}
    unit = SocketUnit(where / "helper", SERVICE, f"{homes}/%u/.ejb", **programs)
    own = where / "daemon"
    own.mkdir(mode=0o711)
    toml = f"""batch = "slurm"
identity = "helper"
poll_s = 10
listen = "127.0.0.1:{port}"
worker_python = "{PYTHON}"
[tls]
by_proxy = true
[helper]
socket = "{unit.path}"
spool = "{homes}/%u/.ejb"
[queues.default]
elasticity = "on"
"""
    daemon = Daemon(own, toml, conf, user=SERVICE)
    daemon.state.mkdir()
    store = Store(f"sqlite:///{daemon.state / 'ejbd.sqlite'}")
    store.upgrade()
    now = time.time()
    row = {"label": "", "created_s": now, "expires_s": now + 86400, "scope": "submit"}
    store.write_sync(lambda s: s.add_all(Token(digest=digest(token(name)), user=name, **row) for name in names))
    store.close()
    for path in (own, daemon.config, daemon.state, *daemon.state.iterdir()):
        os.chown(path, FIRST_UID - 1, FIRST_UID - 1)
    return daemon, unit


def client(
    options: argparse.Namespace, port: int, kinds: Sequence[tuple[float, str]], begun: float, seen: Seen, number: int
) -> None:
    """Its part of the requests, each at its time. One that comes late is made at once, and counted. One that is not
    answered counts with status 0."""
    dice = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=OVER_S)
    script = "#!/bin/sh\n#SBATCH --ntasks=64\n#SBATCH --time=60\n#SBATCH --output=/dev/null\nsrun true\n"
    body = json.dumps({"cwd": "/", "script": script, "env": {"PATH": os.defpath}})
    for at, kind in kinds:
        wait = begun + at - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        if time.monotonic() > begun + options.seconds + OVER_S:
            with seen.lock:
                seen.unmade += 1
            continue
        user = f"u{FIRST_UID + dice.randrange(options.users)}"
        headers = {"Authorization": f"Bearer {token(user)}", "Content-Type": "application/json"}
        method, path, sent = "GET", "/v1/jobs?limit=20", None
        if kind == "submit":
            method, path, sent = "POST", "/v1/jobs", body
        elif kind == "job":
            with seen.lock:
                known = dice.choice(list(seen.jobs.items())) if seen.jobs else None
            if known is not None:
                path, headers["Authorization"] = f"/v1/jobs/{known[0]}", f"Bearer {token(known[1])}"
        asked, status, text = time.monotonic(), 0, b""
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request opens it again
        took = time.monotonic() - asked
        with seen.lock:
            seen.answers.append((kind, took, status))
            seen.late += wait < -1.0
            if status == 201:
                seen.jobs[str(json.loads(text)["id"])] = user
    connection.close()


def loaded(options: argparse.Namespace, port: int, seen: Seen, tell: Callable[[], None]) -> None:
    """All requests; `tell` is called now and then meanwhile."""
    dice = random.Random(7)
    looks, jobs = int(options.polls * options.seconds), int(options.submissions * options.seconds)
    kinds = [(dice.uniform(0, options.seconds), ("list", "job")[n % 2]) for n in range(looks)]
    kinds = sorted(kinds + [(dice.uniform(0, options.seconds), "submit") for _ in range(jobs)])
    begun = time.monotonic()
    threads = [
        threading.Thread(target=client, args=(options, port, kinds[n :: options.clients], begun, seen, n), daemon=True)
        for n in range(options.clients)
    ]
    for one in threads:
        one.start()
    while any(one.is_alive() for one in threads):
        next(one for one in threads if one.is_alive()).join(TOLD_S)
        tell()


def lost(where: Path, seen: Seen) -> tuple[int, int, int]:
    """Jobs that Slurm does not have, that it has twice, and that are another user's there."""

    def rows() -> list[tuple[str, str]]:
        listing = run(where, "squeue", "--noheader", "--states=all", "--format=%u %k").splitlines()
        found = [(user, words.split()[-1]) for user, _, words in (line.partition(" ") for line in listing) if words]
        return [(user, tag) for user, tag in found if tag.startswith("ejb-") and tag.endswith(".0")]

    deadline, found = time.monotonic() + TAGGED_S, rows()
    while len({tag for _, tag in found}) < len(seen.jobs) and time.monotonic() < deadline:
        time.sleep(1.0)
        found = rows()
    counts = Counter(tag for _, tag in found)
    owners = {tag.removeprefix("ejb-").removesuffix(".0"): user for user, tag in found}
    missing = sum(f"ejb-{job}.0" not in counts for job in seen.jobs)
    wrong = sum(owners.get(job, user) != user for job, user in seen.jobs.items())
    return missing, sum(count > 1 for count in counts.values()), wrong


def acts(unit: SocketUnit) -> list[str]:
    """The verbs that `ejb-as` has carried out, where its lines are in the log (there is no syslog)."""
    lines = unit.log.read_text(errors="replace").splitlines()
    return [found[1] for line in lines if (found := re.search(r"ejb-as\[\d+\]: for \S+: (\w+)", line))]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass
class Watched:
    """The daemon and slurmctld while the load lasts, from now on."""

    process: psutil.Process
    controller: int
    begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._cpu, self._theirs = sum(self.process.cpu_times()[:4]), process_cpu_s(self.controller)
        self.most_bytes = 0

    def told(self) -> dict[str, float]:
        passed = time.monotonic() - self.begun
        self.most_bytes = max(self.most_bytes, int(self.process.memory_info().rss))
        return {
            "seconds": passed,
            "daemon_MiB": self.most_bytes / 2**20,
            "daemon_cores": (sum(self.process.cpu_times()[:4]) - self._cpu) / passed,
            "slurmctld_cores": (process_cpu_s(self.controller) - self._theirs) / passed,
        }


def requests(seen: Seen) -> dict[str, Any]:
    """What was asked so far, and how long it took (milliseconds)."""
    with seen.lock:
        answers, late, unmade, jobs = list(seen.answers), seen.late, seen.unmade, len(seen.jobs)
    took: dict[str, Any] = {}
    for kind in ("list", "job", "submit"):
        ms = [s * 1e3 for what, s, _ in answers if what == kind]
        if ms:
            took[kind] = {"count": len(ms), "p50": quantile(ms, 0.5), "p99": quantile(ms, 0.99), "longest": max(ms)}
    statuses = {str(status): count for status, count in Counter(status for _, _, status in answers).items()}
    return {"requests": len(answers), "by_status": statuses, "late": late, "unmade": unmade, "jobs": jobs, "ms": took}


def keep(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    text = json.dumps(figures, indent=1)
    options.out.with_suffix(".new").write_text(text + "\n")
    options.out.with_suffix(".new").replace(options.out)


def measure(where: Path, options: argparse.Namespace) -> int:
    port = free_port()
    daemon, unit = prepared(where, options.users, port)
    seen = Seen()
    shape = {name: getattr(options, name) for name in ("nodes", "jobs", "users", "seconds", "polls", "submissions")}
    figures: dict[str, Any] = {"machine": machine(), "asked": shape, "whole": False}
    try:
        daemon.start()
        assert daemon.process is not None and not daemon.ended(), daemon.log.read_text()[-3000:]
        until(lambda: int(daemon.client.get("/v1/health").json()["polls"]) > 0, "no poll", 120)
        daemon.client.get("/v1/jobs?limit=1").raise_for_status()  # the first query waits for what the daemon reads once
        helper = unit.cpu_s()
        watched = Watched(psutil.Process(daemon.process.pid), daemons(where)["slurmctld"])

        def tell() -> None:
            figures.update(watched.told(), **requests(seen))
            keep(options, figures)

        loaded(options, port, seen, tell)
        tell()
        figures |= dict(zip(("lost", "twice", "as_another"), lost(where, seen), strict=True))
        each = max(1, len(seen.jobs))
        figures["helper_ms"] = (unit.cpu_s() - helper) / each * 1e3
        figures["helper_sessions"] = unit.sessions_begun() / each
        figures["helper_acts"] = {verb: count / each for verb, count in Counter(acts(unit)).most_common()}
        figures["rows"] = len(run(where, "squeue", "--noheader", "--format=%i").splitlines())
        figures["health"] = daemon.client.get("/v1/health").json()
        figures["whole"] = True
    finally:
        keep(options, figures)
        tell_all(figures)
        daemon.client.close()
        daemon.stop()
        unit.close()
    wrong = figures["lost"] or figures["twice"] or figures["as_another"] or figures["unmade"]
    return int(bool(wrong) or not set(figures["by_status"]) <= {"200", "201"})


def tell_all(figures: dict[str, Any]) -> None:
    """In words; of a run that was cut off, what is known."""
    if not figures["whole"]:
        print("cut off: these are the figures of a part")
    if "requests" not in figures:
        return
    print(
        f"{figures['requests']} requests in {figures['seconds']:.0f} s, by status {figures['by_status']}, "
        f"{figures['late']} over 1 s late, {figures['unmade']} not made"
    )
    for kind, ms in figures["ms"].items():
        told = f"p50 {ms['p50']:.1f} ms, p99 {ms['p99']:.0f} ms, longest {ms['longest']:.0f} ms"
        print(f"{kind:<8}{ms['count']:>6}  {told}")
    print(
        f"daemon  {figures['daemon_MiB']:.0f} MiB at most, {figures['daemon_cores']:.2f} of a core with its commands; "
        f"slurmctld {figures['slurmctld_cores']:.2f} of a core"
    )
    if not figures["whole"]:
        return
    print(
        f"jobs    {figures['jobs']} answered for: {figures['lost']} lost, {figures['twice']} twice, "
        f"{figures['as_another']} as another user"
    )
    calls = ", ".join(f"{count:.2f} {verb}" for verb, count in figures["helper_acts"].items())
    print(
        f"one     {figures['helper_ms']:.0f} ms of CPU of ejb-as with its commands, "
        f"{figures['helper_sessions']:.2f} sessions: {calls}"
    )
    print(f"queue   {figures['rows']} rows of squeue")
    print(f"health  {figures['health']}", flush=True)


def staged(stage: str, turn: str, where: Path) -> int:
    """How a stage ended, as a program of its own in this mount namespace. Cut off, it has `ENDING_S` to say so."""
    argv = [*shlex.split(turn), sys.executable, *sys.argv, "--unshared", "--stage", stage, "--at", str(where)]
    for _ in range(MOST_TURNS):
        begun = time.monotonic()
        with subprocess.Popen(argv) as program:
            try:
                code = program.wait()
            except BaseException:
                program.terminate()
                try:
                    program.wait(ENDING_S)
                except subprocess.TimeoutExpired:
                    program.kill()
                raise
        if code != NO_TURN:
            print(f"{stage:<8}{time.monotonic() - begun:.0f} s with its turn", flush=True)
            break
    return code


def cut_off(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    counts = {"nodes": 5000, "jobs": 20_000, "users": 2000, "idle": 4, "clients": 16, "array": 8}
    for name, count in counts.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    for name, figure in {"seconds": 300.0, "polls": 60.0, "submissions": 4.0, "most-fill": 420.0}.items():
        parser.add_argument(f"--{name}", type=float, default=figure)
    parser.add_argument("--out", type=Path, default=Path("site_load.json"), help="where the figures go, as JSON")
    for stage in STAGES:
        parser.add_argument(f"--{stage}-with", default="", help=f"the command that gives the {stage} its turn")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    options = as_root(parser)
    if options is None:
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, cut_off)
    if options.stage == "fill":
        submit(options.at, options, options.most_fill)
        return 0
    if options.stage == "load":
        return measure(options.at, options)
    with site(options, first=FIRST_UID - 1) as where:
        return staged("fill", options.fill_with, where) or staged("load", options.load_with, where)


if __name__ == "__main__":
    sys.exit(main())
