"""What acting as each user costs: `identity = "helper"` beside `identity = "self"`, by turns on one Slurm.

    python benchmarks/helper_cost.py [--runs 10] [--burst 100] [--sessions 40]

As root, with users of its own. One daemon runs as root and submits as root. The other one runs as a service user and
submits as alice, through `ejb-as` behind a socket of root's. Both are in front of one real Slurm of 8 x 4 with every
processor held by another job, so that each job of theirs is one J0 in the queue. Told are: a whole `ejb submit` (the
same client, by a token over loopback, to both), and a burst by one connection, from its first request until Slurm has
its last J0, with the CPU time of the daemon with its commands, and of `ejb-as` with its own. Jobs are cancelled between
rounds. `submits_per_s` is 1,000, so that it bounds neither.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from harness import ELASTIC, ROOT, by_turns, folder, machine, spread
from submit import timed
from tests.acceptance.test_users_slurm import _ASK
from tests.fakes.daemon import Daemon, until
from tests.fakes.socketunit import PYTHON, SocketUnit
from tests.integration.batch_counts import occupy
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster
from tests.integration.users import People, as_user, missing_users, people

SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=16\n#SBATCH --time=10\n#SBATCH --output=/dev/null\nsrun hostname\n"
_SESSIONS = """
import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX) as end, end.makefile("rb") as answers:
        end.connect(sys.argv[1])
        end.sendall(sys.argv[3].encode())
        print(answers.readline(), answers.readline())
"""
FAST = "\n[limits]\nsubmits_per_s = 1000\nuser_requests_per_s = 10000\n"
HELPED, OWN = 'identity = "helper"', 'identity = "self"'


@dataclass
class Way:
    """A daemon, and the user that submits to it. `unit`: the helper, where there is one."""

    daemon: Daemon
    user: str
    token: str
    port: int
    where: Path
    unit: SocketUnit | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def cpu_s(self) -> float:
        """Of the daemon, and of every command that has ended."""
        assert self.daemon.process is not None
        return _cpu_s(self.daemon.process.pid)

    def helpers_cpu_s(self) -> dict[int, float]:
        """By session. One lives for 15 s without work, and so to the end of a burst in which it had some."""
        return {} if self.unit is None else {one.pid: _cpu_s(one.pid) for one in self.unit.sessions()}

    def cancel_all(self, cluster: SlurmCluster) -> None:
        self.daemon.client.post("/v1/jobs/cancel", json={"select": "all"})
        cluster.run("scancel", f"--user={self.user}", "--state=PENDING")
        until(lambda: in_queue(cluster, self.user) == 0, "the queue is not empty", 120)


def _cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def in_queue(cluster: SlurmCluster, user: str) -> int:
    argv = ("squeue", "--noheader", f"--user={user}", "--states=PENDING", "--format=%i")
    return len(cluster.run(*argv).splitlines())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def ways(cluster: SlurmCluster, users: People, where: Path) -> Iterator[dict[str, Way]]:
    conf = {"SLURM_CONF": str(cluster.conf)}
    programs = {"path": os.environ["PATH"], "environment": conf}
    with ExitStack() as stack:
        unit = SocketUnit(users.folder, users.service, users.spool, **programs)
        stack.callback(unit.close)
        found = {}
        for name in (OWN, HELPED):
            port = free_port()
            toml = f'batch = "slurm"\npoll_s = 5\nlisten = "127.0.0.1:{port}"\n{name}\nworker_python = "{PYTHON}"\n'
            toml += "[tls]\nby_proxy = true\n"  # as a port that is held: tokens are taken
            toml += ELASTIC + FAST
            if name == OWN:
                (where / "own").mkdir()
                daemon, user = Daemon(where / "own", toml, conf), "root"
            else:
                toml += f'[helper]\nsocket = "{unit.path}"\nspool = "{users.spool}"\n'
                home = users.home(users.service)
                daemon, user = Daemon(home, toml, conf, user=users.service), users.alice
                home.chmod(0o711)
            daemon.start()
            stack.callback(daemon.stop)
            stack.callback(daemon.client.close)
            found[name] = Way(daemon, user, token_of(daemon, user), port, where, None if name == OWN else unit)
        yield found


def token_of(daemon: Daemon, user: str) -> str:
    """Made by that user over the socket."""
    if user == "root":
        return str(daemon.client.post("/v1/tokens", json={}).json()["token"])
    argv = [PYTHON, "-IS", "-c", _ASK, str(daemon.state / "ejbd.sock"), "POST", "/v1/tokens", "{}"]
    return str(json.loads(as_user(user, argv).stdout.partition("\n")[2])["token"])


def one_submission(way: Way) -> float:
    """Milliseconds of a whole `ejb submit`."""
    script = way.where / "job.sh"
    script.write_text(SCRIPT)
    ejb = str(Path(sys.executable).with_name("ejb"))
    surroundings = {**os.environ, "EJB_URL": f"http://127.0.0.1:{way.port}", "EJB_TOKEN": way.token}
    return timed([ejb, "submit", str(script)], {**surroundings, "PYTHONPATH": str(ROOT)}, Path("/"))[0]


@dataclass(frozen=True, slots=True)
class Burst:
    """Seconds until all was answered, until Slurm had all, and of CPU time of daemon and helper."""

    answered: float
    queued: float
    daemon: float
    helper: float


def burst(way: Way, cluster: SlurmCluster, jobs: int) -> Burst:
    way.cancel_all(cluster)
    before, helpers = way.cpu_s(), way.helpers_cpu_s()
    begun = time.monotonic()
    body = {"cwd": "/", "script": SCRIPT, "env": {"PATH": os.defpath}}
    with httpx.Client(base_url=f"http://127.0.0.1:{way.port}", headers=way.headers, timeout=60) as client:
        for _ in range(jobs):
            client.post("/v1/jobs", json=body).raise_for_status()
    answered = time.monotonic() - begun
    until(lambda: in_queue(cluster, way.user) >= jobs, "Slurm has not all of them", 180)
    queued = time.monotonic() - begun
    used = sum(max(0.0, now - helpers.get(pid, 0.0)) for pid, now in way.helpers_cpu_s().items())
    return Burst(answered, queued, way.cpu_s() - before, used)


def session_ms(unit: SocketUnit, users: People, sessions: int) -> dict[str, float]:
    """Milliseconds of CPU that a session costs which prepares a spool: forked by what stays, and started alone."""
    lines = f'{{"user": "{users.alice}"}}\n{{"verb": "prepare"}}\n'.encode()

    def forked(count: int) -> float:
        before = _cpu_s(unit.server.pid)
        argv = [PYTHON, "-IS", "-c", _SESSIONS, str(unit.path), str(count), lines.decode()]
        assert as_user(users.service, argv).stdout.count('"ok": true') == 2 * count
        # Those that have ended are waited for, and so counted, when there is another connection.
        return _cpu_s(unit.server.pid) - before

    def started(count: int) -> float:
        before = _children_s()
        plain = {"PATH": os.defpath, "SUDO_UID": str(unit.service.pw_uid)}
        for _ in range(count):
            done = subprocess.run(unit.argv(), input=lines, capture_output=True, timeout=60, check=True, env=plain)
            assert done.stdout.count(b'"ok": true') == 2, done.stdout
        return _children_s() - before

    forked(1)
    return {"forked": forked(sessions) / sessions * 1e3, "started": started(sessions) / sessions * 1e3}


def _children_s() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of `ejb submit`; a third of them of the burst")
    parser.add_argument("--burst", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=40, help="of ejb-as, forked and started")
    options = parser.parse_args()
    print(machine())
    if reason := missing_slurm() or missing_users():
        print(f"skipped: {reason}")
        return
    with people() as users, slurm_cluster(8, 4, "--profile=multiuser") as cluster, folder() as where:
        where.chmod(0o755)
        occupy(cluster)
        with ways(cluster, users, where) as found:
            unit = found[HELPED].unit
            assert unit is not None
            sessions = session_ms(unit, users, options.sessions)
            ones = by_turns(found, options.runs, lambda _, way: one_submission(way))
            bursts = by_turns(found, max(2, options.runs // 3), lambda _, way: burst(way, cluster, options.burst))
    told = ", ".join(f"{name} {figure:.1f} ms" for name, figure in sessions.items())
    print(f"CPU of a session of ejb-as that prepares a spool: {told}")
    for name in found:
        print(f"{name:<22}ejb submit {spread(ones[name], ' ms')}")
        for what in Burst.__slots__:
            figures = [getattr(one, what) for one in bursts[name]]
            print(f"{'':<22}burst of {options.burst}, {what:<9}{spread(figures, ' s')}")
    print(f"{HELPED} for one of {OWN}:")
    print(f"  ejb submit {statistics.median(ones[HELPED]) / statistics.median(ones[OWN]):.2f}")
    for what in ("answered", "queued"):
        here, there = (statistics.median(getattr(one, what) for one in bursts[name]) for name in (HELPED, OWN))
        print(f"  burst, {what} {here / there:.2f}")
    here, there = (statistics.median(one.daemon + one.helper for one in bursts[name]) for name in (HELPED, OWN))
    print(f"  burst, CPU time of daemon and helper {here / there:.2f}")


if __name__ == "__main__":
    main()
