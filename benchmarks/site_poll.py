"""What one whole poll of a large Slurm site costs: 5,000 nodes in 6 partitions, 20,000 jobs of 2,000 users.

    python benchmarks/site_poll.py [--nodes 5000] [--jobs 20000] [--users 2000] [--idle 40]
        [--elastic 200] [--array 1]

As root, in a mount namespace that it makes: the users are put into an /etc/passwd that nothing else sees. The
controller is a real slurmctld. Its nodes are State=CLOUD and boot for ever, with the fifth of the jobs that has begun;
`--idle` of them have a real slurmd and nothing to do, and the other jobs wait, each for more than that. `--elastic`
jobs of a real store wait among them. For each poll is told: the CPU time of the commands, of the reading and of the
tick (this process), and slurmctld's own while it was asked, beside what it uses in 2 s by itself. Aim: commands,
reading and tick together under 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import pwd
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ejbd.batch.slurm import SlurmBatch
from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.manager import Manager
from ejbd.manager.poll.tick import Tick
from ejbd.manager.world import World
from ejbd.store.store import Store
from harness import ROOT, folder, machine, spread
from planning import QUEUE
from tests.fakes.batch import Clock, MemoryBatch
from tick import fill, listed

sys.path.insert(0, str(ROOT / "scripts"))

from clusters import configuration
from clusters.processes import daemons, end_processes
from clusters.programs import environment, run, start, until

PARTITIONS = (QUEUE, "long", "short", "debug", "guest", "low")  # elastic jobs go to the first
PROCESSORS, FIRST_UID = 32, 30_000
SETTINGS = {
    "SlurmdTimeout": "0",  # no node is pinged
    "SchedulerParameters": "bf_interval=30,bf_max_job_test=500,max_rpc_cnt=150",
    "MessageTimeout": "60",
    "MaxJobCount": "100000",
}
# While the jobs come in nothing is planned for those that wait: they would be, anew, with every few that come.
FILLING = "defer,sched_interval=2,default_queue_depth=100000,bf_interval=3600,max_rpc_cnt=0"


def configure(where: Path, nodes: int, idle: int) -> None:
    """A slurm.conf of the repository's kind, with a site's nodes instead of virtual ones."""
    shape = {"nodes": idle, "cpus": PROCESSORS, "profile": "fast", "exclusive": False}
    configuration.prepare(where, shape | {"base_port": configuration.free_base_port(idle, str(where))})
    plain = SETTINGS | {"SchedulerParameters": FILLING}
    lines = [f"{name}={value}" for name, value in plain.items()]
    for line in (where / "slurm.conf").read_text().splitlines():
        if line.partition("=")[0] not in {"PartitionName", *plain}:  # the nodes n[1-idle] stay
            lines.append(line)
    clouds = f"c[1-{nodes - idle}]"
    lines += [
        "PrivateData=cloud",
        *("SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTime=60000", "ResumeTimeout=60000"),
        f"SuspendExcNodes=n[1-{idle}]",
        f"NodeName={clouds} NodeAddr=127.0.0.1 CPUs={PROCESSORS} Boards=1 SocketsPerBoard=1 "
        f"CoresPerSocket={PROCESSORS} ThreadsPerCore=1 RealMemory=128000 Feature=cloud State=CLOUD",
    ]
    for number, name in enumerate(PARTITIONS):
        words = f"Nodes=n[1-{idle}],{clouds} Default={'NO' if number else 'YES'} MaxTime=INFINITE DefaultTime=10"
        lines.append(f"PartitionName={name} {words} State=UP PriorityTier={1 + number % 3}")
    (where / "slurm.conf").write_text("\n".join(lines) + "\n")


def add_users(where: Path, users: int, first: int = FIRST_UID) -> None:
    """In a copy of /etc: a mount over the one file goes where a `useradd` elsewhere puts another in its place."""
    etc = where / "etc"
    subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
    names = "".join(f"u{uid}:x:{uid}:{uid}::/:/bin/sh\n" for uid in range(first, FIRST_UID + users))
    with (etc / "passwd").open("a") as passwd:
        passwd.write(names)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", str(etc), "/etc"], check=True)


def bring_up(where: Path, idle: int) -> None:
    munge = where / "munge"
    files = [f"--{name}-file={munge}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    start(where, "munged", "--force", f"--socket={munge}/munge.socket", *files)
    start(where, "slurmctld", "-i", "-f", str(where / "slurm.conf"))
    for number in range(1, idle + 1):
        start(where, "slurmd", "-N", f"n{number}", "-f", str(where / "slurm.conf"))
    ready = ("sinfo", "--noheader", f"--partition={QUEUE}", "--states=idle", f"--nodes=n[1-{idle}]", "--format=%D %T")
    until(
        "the idle nodes did not come up",
        lambda: run(where, *ready).split() == [str(idle), "idle"],
        60,
        where,
        "slurmctld",
    )


def as_user(where: Path, uid: int, argv: Sequence[str], script: str = "") -> None:
    done = subprocess.run(
        argv, env=environment(where), input=script, text=True, user=uid, group=uid, cwd="/", capture_output=True,
        timeout=300, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: {done.stderr.strip()}")


def submit(where: Path, options: argparse.Namespace, most_s: float = math.inf) -> None:
    """A fifth of the jobs has all nodes but the idle ones; the others ask for more than those, as elements of arrays of
    `options.array` (1: each is a job). Each comes by its own user's sbatch. What is there already does not come again.
    After `most_s` no further one comes.
    """
    begun, omitted = time.monotonic(), 0
    there = set(run(where, "squeue", "--noheader", "--format=%j").split())
    dice = random.Random(1)
    running, idle = options.jobs // 5, options.idle * PROCESSORS
    each, more = divmod((options.nodes - options.idle) * PROCESSORS, running)

    def one(number: int) -> None:
        nonlocal omitted
        if f"job-{number}" in there:
            return
        if time.monotonic() > begun + most_s:
            omitted += 1
            return
        at = number if number < running else running + (number - running) // options.array
        words = [f"--partition={PARTITIONS[at % len(PARTITIONS)]}", f"--job-name=job-{number}"]
        words.append(f"--time={dice.randint(600, 6000)}")
        if number < running:
            words += ["--constraint=cloud", f"--ntasks={each + (number < more)}"]
        else:
            words += [f"--ntasks={idle + dice.randint(1, idle)}"]
            if options.array > 1:
                words += [f"--array=1-{min(options.array, options.jobs - number)}"]
        argv = ["sbatch", "--quiet", "--output=/dev/null", *words]
        as_user(where, FIRST_UID + at % options.users, argv, "#!/bin/sh\n")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(running)))
        came = running - omitted
        until(
            "the first jobs did not begin",
            lambda: len(run(where, "squeue", "--noheader", "--states=CF", "--format=%i").split()) == came,
            300, where, "slurmctld",
        )  # fmt: skip
        list(pool.map(one, range(running, options.jobs, options.array)))
    conf = where / "slurm.conf"
    conf.write_text(conf.read_text().replace(FILLING, SETTINGS["SchedulerParameters"]))
    run(where, "scontrol", "reconfigure")
    there = set(run(where, "squeue", "--noheader", "--array", "--format=%i").split())
    print(f"{len(there)} of {options.jobs} jobs are there after {time.monotonic() - begun:.0f} s", flush=True)


def cpu_s(which: int) -> float:
    use = resource.getrusage(which)
    return use.ru_utime + use.ru_stime


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Poll:
    """CPU seconds of a poll's parts, `controller` being slurmctld's, and its seconds by the clock."""

    commands: float
    reading: float
    tick: float
    controller: float
    wall: float

    @property
    def ours(self) -> float:
        return self.commands + self.reading + self.tick


async def poll(manager: Manager, batch: SlurmBatch, controller: int) -> Poll:
    begun, here, there, theirs = time.monotonic(), time.process_time(), cpu_s(resource.RUSAGE_CHILDREN), 0.0
    theirs = process_cpu_s(controller)
    view = await batch.observe()
    read, commands = time.process_time() - here, cpu_s(resource.RUSAGE_CHILDREN) - there
    theirs = process_cpu_s(controller) - theirs
    observed_s = time.monotonic() - begun
    view = listed(manager, view)
    here, begun = time.process_time(), time.monotonic()
    roster = await manager.poller.open.now()
    roster.unlisted(view)
    tick = Tick(view, roster, {}, {}, manager.poller.specs)
    while manager.store.write_sync(lambda session: tick.step(manager.world.context(session))):
        pass
    return Poll(commands, read, time.process_time() - here, theirs, observed_s + time.monotonic() - begun)


async def idling(controller: int, seconds: float) -> float:
    """CPU seconds that slurmctld uses by itself in this time."""
    before = process_cpu_s(controller)
    await asyncio.sleep(seconds)
    return process_cpu_s(controller) - before


async def measure(where: Path, elastic: int, polls: int) -> list[Poll]:
    controller = daemons(where)["slurmctld"]
    batch = SlurmBatch(conf=where / "slurm.conf")
    view = await batch.observe()
    free = sum(node.free for node in view.nodes)
    planned = sum(job.planned_start_s is not None for job in view.jobs)
    print(
        f"{len(view.nodes)} nodes, {free} processors idle, {len(view.queues)} partitions, {len(view.jobs)} jobs of "
        f"{len({job.user for job in view.jobs})} users ({planned} with a planned start), {view.unparsed} unreadable"
    )
    queues = {"default": QueueSettings(elasticity=Elasticity.ON)}
    settings = Settings(state_dir=where / "state-of-ejb", batch="slurm", poll_s=3600, queues=queues)
    settings.state_dir.mkdir()
    store = Store(settings.url_of_database)
    found = []
    try:
        store.acquire_single_writer()
        store.upgrade()
        clock = Clock(view.time_s)
        manager = Manager(World(settings, store, MemoryBatch(clock), SteadyClock(clock, clock)))
        fill(manager, view, elastic, random.Random(2))
        for number in range(polls + 1):
            alone = await idling(controller, 2.0)
            one = await poll(manager, batch, controller)
            if number:  # the first one learns the site's settings
                found.append(one)
                print(
                    f"commands {one.commands:.3f} s, reading {one.reading:.3f} s, tick {one.tick:.3f} s of CPU: "
                    f"{one.ours:.3f} s; slurmctld {one.controller:.3f} s ({alone:.2f} in 2 s by itself); "
                    f"{one.wall:.2f} s by the clock",
                    flush=True,
                )
    finally:
        store.close()
    return found


def as_root(parser: argparse.ArgumentParser) -> argparse.Namespace | None:
    """The options, in a mount namespace of its own; None, and why is printed, where that cannot be."""
    parser.add_argument("--unshared", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.getuid() != 0:
        print("skipped: it needs root, for users of its own")
        return None
    if not options.unshared:
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv, "--unshared"])
    print(machine())
    return options


@contextmanager
def site(options: argparse.Namespace, first: int = FIRST_UID) -> Iterator[Path]:
    """A site with its users (the first of them has the number `first`), and no jobs yet; its folder."""
    with folder() as where:
        where.chmod(0o755)
        add_users(where, options.users, first=first)
        assert pwd.getpwuid(FIRST_UID).pw_name == f"u{FIRST_UID}"
        configure(where, options.nodes, options.idle)
        try:
            bring_up(where, options.idle)
            yield where
        finally:
            end_processes(where)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in {"nodes": 5000, "jobs": 20_000, "users": 2000, "idle": 40, "elastic": 200, "polls": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--array", type=int, default=1, help="elements of arrays that waiting jobs are")
    options = as_root(parser)
    if options is None:
        return 0
    with site(options) as where:
        submit(where, options)
        time.sleep(60)  # two passes of backfilling
        found = asyncio.run(measure(where, options.elastic, options.polls))
    ours = [one.ours for one in found]
    print(f"a poll: {spread(ours)} s of CPU; under 1 s: {'yes' if max(ours) < 1 else 'NO'}")
    return 0 if max(ours) < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
