"""A whole site on one daemon: 2,000 users poll and submit, in front of a Slurm of 5,000 nodes with 20,000 jobs.

    python benchmarks/site_load.py [--seconds 300] [--nodes 5000] [--jobs 20000] [--users 2000] [--idle 4]
        [--polls 60] [--submissions 4] [--clients 16] [--array 8] [--fill-with "..."] [--load-with "..."]

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
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ejbd.api.auth import digest
from ejbd.store.models import Token
from ejbd.store.store import Store
from helper_cost import free_port
from site_poll import FIRST_UID, as_root, process_cpu_s, site, submit
from tests.fakes.daemon import Daemon, until
from tests.fakes.socketunit import PYTHON, SocketUnit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from clusters.processes import daemons
from clusters.programs import run

SERVICE = f"u{FIRST_UID - 1}"
STAGES = ("fill", "load")
TAGGED_S = 300.0  # until Slurm has every job that was answered for
NO_TURN, MOST_TURNS = 75, 20
Answer = tuple[str, float, int]  # what, seconds, status


@dataclass
class Seen:
    """What all clients saw. `jobs`: id -> user, as answered."""

    answers: list[Answer] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    late: int = 0
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


def client(port: int, users: int, kinds: Sequence[tuple[float, str]], begun: float, seen: Seen, number: int) -> None:
    """Its part of the requests, each at its time. One that comes late is made at once, and counted."""
    dice = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    script = "#!/bin/sh\n#SBATCH --ntasks=64\n#SBATCH --time=60\n#SBATCH --output=/dev/null\nsrun true\n"
    body = json.dumps({"cwd": "/", "script": script, "env": {"PATH": os.defpath}})
    for at, kind in kinds:
        wait = begun + at - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        user = f"u{FIRST_UID + dice.randrange(users)}"
        headers = {"Authorization": f"Bearer {token(user)}", "Content-Type": "application/json"}
        method, path, sent = "GET", "/v1/jobs?limit=20", None
        if kind == "submit":
            method, path, sent = "POST", "/v1/jobs", body
        elif kind == "job":
            with seen.lock:
                known = dice.choice(list(seen.jobs.items())) if seen.jobs else None
            if known is not None:
                path, headers["Authorization"] = f"/v1/jobs/{known[0]}", f"Bearer {token(known[1])}"
        asked = time.monotonic()
        connection.request(method, path, sent, headers)
        answer = connection.getresponse()
        text = answer.read()
        took = time.monotonic() - asked
        with seen.lock:
            seen.answers.append((kind, took, answer.status))
            seen.late += wait < -1.0
            if answer.status == 201:
                seen.jobs[str(json.loads(text)["id"])] = user
    connection.close()


def loaded(options: argparse.Namespace, port: int) -> Seen:
    dice, seen = random.Random(7), Seen()
    looks, jobs = int(options.polls * options.seconds), int(options.submissions * options.seconds)
    kinds = [(dice.uniform(0, options.seconds), ("list", "job")[n % 2]) for n in range(looks)]
    kinds = sorted(kinds + [(dice.uniform(0, options.seconds), "submit") for _ in range(jobs)])
    begun = time.monotonic()
    threads = [
        threading.Thread(target=client, args=(port, options.users, kinds[n :: options.clients], begun, seen, n))
        for n in range(options.clients)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return seen


def lost(where: Path, seen: Seen) -> tuple[int, int, int]:
    """Jobs that Slurm does not have, that it has twice, and that are another user's there."""

    def rows() -> list[tuple[str, str]]:
        listing = run(where, "squeue", "--noheader", "--states=all", "--format=%u %k").splitlines()
        found = [(user, words.split()[-1]) for user, _, words in (line.partition(" ") for line in listing) if words]
        return [(user, tag) for user, tag in found if tag.startswith("ejb-") and tag.endswith(".0")]

    until(lambda: len({tag for _, tag in rows()}) >= len(seen.jobs), "not all jobs came to Slurm", TAGGED_S)
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


def measure(where: Path, options: argparse.Namespace) -> int:
    port = free_port()
    daemon, unit = prepared(where, options.users, port)
    daemon.start()
    try:
        assert daemon.process is not None and not daemon.ended(), daemon.log.read_text()[-3000:]
        process, controller = psutil.Process(daemon.process.pid), daemons(where)["slurmctld"]
        until(lambda: int(daemon.client.get("/v1/health").json()["polls"]) > 0, "no poll", 120)
        daemon.client.get("/v1/jobs?limit=1").raise_for_status()  # the first query waits for what the daemon reads once
        daemon.client.get("/v1/jobs?limit=1").raise_for_status()  # the first query waits for what the daemon reads once
        helper = unit.cpu_s()
        cpu, theirs, begun = sum(process.cpu_times()[:4]), process_cpu_s(controller), time.monotonic()
        seen = loaded(options, port)
        passed = time.monotonic() - begun
        theirs = (process_cpu_s(controller) - theirs) / passed
        ours, memory = (sum(process.cpu_times()[:4]) - cpu) / passed, process.memory_info().rss / 2**20
        missing, double, wrong = lost(where, seen)
        rows = len(run(where, "squeue", "--noheader", "--format=%i").splitlines())
        acted, helper, said = Counter(acts(unit)), unit.cpu_s() - helper, unit.sessions_begun()
        known = daemon.client.get("/v1/health").json()
    finally:
        daemon.client.close()
        daemon.stop()
        unit.close()
    statuses = Counter(status for _, _, status in seen.answers)
    print(f"{len(seen.answers)} requests in {passed:.0f} s, by status {dict(statuses)}, {seen.late} over 1 s late")
    for kind in ("list", "job", "submit"):
        took = [s * 1e3 for what, s, _ in seen.answers if what == kind]
        figures = f"p50 {quantile(took, 0.5):.1f} ms, p99 {quantile(took, 0.99):.0f} ms, longest {max(took):.0f} ms"
        print(f"{kind:<8}{len(took):>6}  {figures}")
    print(f"daemon  {memory:.0f} MiB, {ours:.2f} of a core with its commands; slurmctld {theirs:.2f} of a core")
    print(f"jobs    {len(seen.jobs)} answered for: {missing} lost, {double} twice, {wrong} as another user")
    each = max(1, len(seen.jobs))
    calls = ", ".join(f"{count / each:.2f} {verb}" for verb, count in acted.most_common())
    print(
        f"one     {helper / each * 1e3:.0f} ms of CPU of ejb-as with its commands, {said / each:.2f} sessions: {calls}"
    )
    print(f"queue   {rows} rows of squeue")
    print(f"health  {known.get('status', known)}")
    return int(bool(missing or double or wrong) or set(statuses) - {200, 201} != set())


def staged(stage: str, turn: str, where: Path) -> int:
    """How a stage ended, as a program of its own in this mount namespace."""
    argv = [*shlex.split(turn), sys.executable, *sys.argv, "--unshared", "--stage", stage, "--at", str(where)]
    for _ in range(MOST_TURNS):
        begun = time.monotonic()
        code = subprocess.run(argv, check=False).returncode
        if code != NO_TURN:
            print(f"{stage:<8}{time.monotonic() - begun:.0f} s with its turn", flush=True)
            break
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    counts = {"nodes": 5000, "jobs": 20_000, "users": 2000, "idle": 4, "clients": 16, "array": 8}
    for name, count in counts.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    for name, figure in {"seconds": 300.0, "polls": 60.0, "submissions": 4.0}.items():
        parser.add_argument(f"--{name}", type=float, default=figure)
    for stage in STAGES:
        parser.add_argument(f"--{stage}-with", default="", help=f"the command that gives the {stage} its turn")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    options = as_root(parser)
    if options is None:
        return 0
    if options.stage == "fill":
        submit(options.at, options)
        return 0
    if options.stage == "load":
        return measure(options.at, options)
    with site(options, first=FIRST_UID - 1) as where:
        return staged("fill", options.fill_with, where) or staged("load", options.load_with, where)


if __name__ == "__main__":
    sys.exit(main())
