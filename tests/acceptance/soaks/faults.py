"""What is done to EJB, to what it stands on and to its jobs, each by one call. What lasts is undone by itself, or by
:meth:`Faults.undo_all`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from tests.acceptance.journeys import ranks_of
from tests.acceptance.sites import BatchJob, LocalSite, Site, SlurmSite
from tests.acceptance.soaks.sent import HOSTILE, Done, Sent
from tests.fakes.daemon import Daemon, until
from tests.fakes.me import ME
from tests.fakes.pbs.site import PbsSite
from tests.integration.postgres import PostgresServer

LIVES = 3  # so often is a job's worker killed at most: pauses grow with setbacks, and the reckoning waits for all
SILENT_S = 15.0  # `worker_silence_s` of the daemon here

Fault = Callable[[random.Random], None]


class Rig(Protocol):
    """What faults are done to."""

    folder: Path
    daemon: Daemon
    site: Site
    postgres: PostgresServer | None
    url: str
    disks: dict[str, Path]

    def living(self) -> list[Sent]: ...

    def up(self) -> None: ...


class Faults:
    """`known` has them all by name with how often each comes; `kills` counts what was ended with SIGKILL, by kind."""

    def __init__(self, rig: Rig, seconds: float) -> None:
        self.rig = rig
        self.longest_s = 45.0 if seconds >= 60 else 12.0
        self.kills: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self._undo: list[tuple[threading.Timer, Callable[[], None]]] = []
        self.known: dict[str, tuple[float, Fault]] = {
            "kill the daemon": (6, self.kill_daemon),
            "kill the daemon as it starts": (5, self.kill_starting),
            "the daemon is away": (1.2, self.away),
            "stop the daemon": (0.7, self.stop_daemon),
            "kill workers": (5, self.kill_workers),
            "stop a worker": (1, self.stop_worker),
            "kill a rank": (1.5, self.kill_rank),
            "scancel": (1, self.cancel_behind),
        }
        site = rig.site
        if isinstance(site, SlurmSite):
            self.known |= {
                "kill slurmctld": (1.2, self.kill_controller),
                "kill a slurmd": (1.5, self.kill_slurmd),
                "drain a node": (0.7, self.drain),
                "slow Epilogs": (0.7, self.slow_epilogs),
                "a hostile neighbour": (0.7, self.hostile),
            }
        elif isinstance(site, LocalSite):
            self.known["kill the cluster's server"] = (1.5, self.kill_server)
        else:
            self.known["kill the PBS server"] = (1.5, self.kill_pbs)
        if rig.postgres is not None:
            self.known |= {
                "kill PostgreSQL": (1, self.kill_database),
                "stop PostgreSQL": (0.6, self.stop_database),
                "cut the database's connections": (1.5, self.cut_connections),
            }
        for name in rig.disks:
            self.known[f"fill the {name}'s disk"] = (0.6, lambda dice, name=name: self.fill(name, dice))  # type: ignore[misc]

    def any(self, dice: random.Random) -> str:
        """Do one; its name."""
        names = sorted(self.known)
        name = dice.choices(names, weights=[self.known[one][0] for one in names])[0]
        self.known[name][1](dice)
        if "kill" not in name:
            self.others[name] += 1
        return name

    def undo_all(self) -> None:
        """Everything that lasts is over."""
        for timer, undo in self._undo:
            timer.cancel()
            timer.join(60)
            undo()
        self._undo.clear()
        if isinstance(self.rig.site, SlurmSite):
            self._epilog_s(0)
            self._resume()

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        """`undo` may be called twice."""
        timer = threading.Timer(seconds, undo)
        self._undo.append((timer, undo))
        timer.start()

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def _kill_daemon(self) -> None:
        if not self.rig.daemon.ended():
            self.rig.daemon.kill()
            self.kills["the daemon"] += 1

    def kill_daemon(self, dice: random.Random) -> None:
        self._kill_daemon()
        time.sleep(dice.choice((0.0, 0.5, 3.0)))
        self.rig.up()

    def kill_starting(self, dice: random.Random) -> None:
        """Again and again, while it recovers: what it has half done is done again by the next one."""
        self._kill_daemon()
        for _ in range(dice.randint(1, 8)):
            self.rig.daemon.begin()
            time.sleep(0.3 + dice.random() * 2.5)
            self._kill_daemon()
        self.rig.up()

    def away(self, dice: random.Random) -> None:
        """For longer than a J0 takes to start, and than some take to be over; the world goes on meanwhile."""
        self._kill_daemon()
        end = time.monotonic() + self.longest_s * (0.4 + 0.6 * dice.random())
        meanwhile = [self.cancel_behind, self.kill_workers, self.kill_rank]
        if isinstance(self.rig.site, SlurmSite):
            meanwhile += [self.drain, self.slow_epilogs, self.kill_slurmd, self.kill_controller]
        for act in dice.sample(meanwhile, k=2):
            time.sleep(1 + dice.random() * 5)
            act(dice)
            self.others[f"{act.__name__.replace('_', ' ')}, the daemon away"] += 1
        time.sleep(max(0.0, end - time.monotonic()))
        self.rig.up()

    def stop_daemon(self, dice: random.Random) -> None:
        process = self.rig.daemon.process
        if process is None or self.rig.daemon.ended():
            return
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(dice.choice((1.0, 4.0, min(20.0, self.longest_s))))
        os.kill(process.pid, signal.SIGCONT)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _workers(self) -> Iterator[tuple[psutil.Process, Sent]]:
        """Live workers, with their jobs."""
        living = self.rig.living()
        for process in sorted(self.rig.daemon.processes(), key=lambda p: p.pid):
            with suppress(psutil.Error):
                words = process.cmdline()
                if not any("worker" in word for word in words):
                    continue
                said = " ".join([*words, *process.environ().values()])
                for sent in living:
                    if sent.id and f"{sent.id}." in said:
                        yield process, sent

    def kill_workers(self, dice: random.Random) -> None:
        found = [(p, sent) for p, sent in self._workers() if len(sent.suffered("worker killed")) < LIVES]
        for process, sent in dice.sample(found, k=min(len(found), dice.randint(1, 4))):
            sent.done.append(Done("worker killed", str(process.pid)))
            with suppress(psutil.Error):
                process.kill()
                self.kills["a worker"] += 1

    def stop_worker(self, dice: random.Random) -> None:
        """For less than what it may be silent, and for more."""
        found = list(self._workers())
        if not found:
            return
        process, sent = dice.choice(found)
        sent.done.append(Done("worker stopped", str(process.pid)))
        with suppress(psutil.Error):
            process.suspend()

        def on() -> None:
            with suppress(psutil.Error):
                process.resume()

        self._later(dice.choice((3.0, 8.0, min(SILENT_S + 8, self.longest_s))), on)

    def kill_rank(self, dice: random.Random) -> None:
        """The application's own end, as a program's crash is."""
        once = [s for s in self.rig.living() if s.id and not s.passed_through and not s.suffered("rank killed")]
        for sent in dice.sample(once, k=len(once)):
            ranks = sorted(ranks_of(sent.id))
            if ranks:
                sent.done.append(Done("rank killed", str(ranks[0])))
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(ranks), signal.SIGKILL)
                    self.kills["a rank"] += 1
                return

    def cancel_behind(self, dice: random.Random) -> None:
        """One batch job, by whoever."""
        with suppress(AssertionError):
            live = sorted(job.name for job in self.rig.site.jobs() if job.live and job.name.startswith("ejb-"))
            owned = [(tag, sent) for tag in live for sent in self.rig.living() if _is_of(tag, sent)]
            if not owned:
                return
            tag, sent = dice.choice(owned)
            sent.done.append(Done("scancel", tag))
            self._cancel([job for job in self.rig.site.jobs() if job.name == tag and job.live])

    def _cancel(self, jobs: list[BatchJob]) -> None:
        site, ids = self.rig.site, [job.id for job in jobs]
        if not ids:
            return
        if isinstance(site, SlurmSite):
            site.cluster.run("scancel", *ids, check=False)
        elif isinstance(site, LocalSite):
            asyncio.run(site.batch.cancel(ME, ids))
        else:
            self._pbs().run("qdel", *ids)

    # -- the batch system ---------------------------------------------------------------------------------------------

    def _slurm(self) -> SlurmSite:
        assert isinstance(self.rig.site, SlurmSite)
        return self.rig.site

    def _pbs(self) -> PbsSite:
        site: PbsSite = self.rig.site.site  # type: ignore[attr-defined]
        return site

    def _everybody(self, what: str) -> None:
        for sent in self.rig.living():
            sent.done.append(Done(what, ""))

    def kill_controller(self, dice: random.Random) -> None:
        cluster = self._slurm().cluster
        self._everybody("controller killed")
        pid = cluster.pids().get("slurmctld")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.kills["slurmctld"] += 1
            until(lambda: "slurmctld" not in cluster.pids(), "slurmctld lives", 30)
        time.sleep(dice.choice((0.0, 2.0)))
        cluster.up_again("--profile=fail")

    def kill_slurmd(self, dice: random.Random) -> None:
        """NODE_FAIL for its jobs, where it is away for longer than SlurmdTimeout (2 s)."""
        cluster = self._slurm().cluster
        nodes = {name: pid for name, pid in cluster.pids().items() if name[1:].isdecimal()}
        if not nodes:
            return
        self._everybody("node lost")
        os.kill(nodes[dice.choice(sorted(nodes))], signal.SIGKILL)
        self.kills["a slurmd"] += 1
        time.sleep(dice.choice((0.0, 1.0, 8.0)))
        cluster.up_again("--profile=fail")

    def drain(self, dice: random.Random) -> None:
        """For a while; what runs there runs on."""
        cluster = self._slurm().cluster
        node = f"n{dice.randint(1, cluster.nodes)}"
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=soak", check=False)
        self._later(5 + dice.random() * 15, lambda: self._resume(node))

    def _resume(self, *nodes: str) -> None:
        """As an operator would, also after a "Duplicate jobid"."""
        cluster = self._slurm().cluster
        for node in nodes or [f"n{i + 1}" for i in range(cluster.nodes)]:
            cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)

    def slow_epilogs(self, dice: random.Random) -> None:
        self._epilog_s(dice.randint(8, 12))
        self._later(min(25.0, self.longest_s), lambda: self._epilog_s(0))

    def _epilog_s(self, seconds: int) -> None:
        self._slurm().cluster.epilog_takes(seconds)

    def hostile(self, dice: random.Random) -> None:
        """Somebody's jobs under names that mean no good, one with a tag of ours in its comment."""
        cluster, living = self._slurm().cluster, [sent.id for sent in self.rig.living() if sent.id]
        forged = f"--comment=x ejb-{dice.choice(living)}.9x" if living else "--comment=ejb-.0"
        for name in dice.sample(HOSTILE, k=3):
            with suppress(AssertionError):
                cluster.sbatch(f"--job-name={name}", forged, "--ntasks=1", "--time=1", script="sleep 2")

    def kill_server(self, dice: random.Random) -> None:
        assert isinstance(self.rig.site, LocalSite)
        self._everybody("controller killed")
        self.rig.site.kill_server()
        self.kills["the cluster's server"] += 1

    def kill_pbs(self, dice: random.Random) -> None:
        self._everybody("controller killed")
        self._pbs().kill()
        self.kills["the PBS server"] += 1
        time.sleep(dice.choice((0.0, 2.0)))
        self._pbs().start()

    # -- the database and the disks -----------------------------------------------------------------------------------

    def stop_database(self, dice: random.Random) -> None:
        assert self.rig.postgres is not None
        self.rig.postgres.halt()
        time.sleep(dice.choice((0.0, 1.0, 4.0)))
        with suppress(RuntimeError):  # on a disk that is full it cannot start: `up` tries on until there is room
            self.rig.postgres.start()

    def kill_database(self, dice: random.Random) -> None:
        """One of its processes: the server recovers by its log, as from a crash."""
        assert self.rig.postgres is not None
        backends = self.rig.postgres.backends()
        if backends:
            self.kills["PostgreSQL"] += 1
            with suppress(psutil.Error):
                dice.choice(backends).kill()

    def cut_connections(self, dice: random.Random) -> None:
        """Statements fail wherever the daemon happens to be, some times in a row."""
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid != "
        engine = create_engine(self.rig.url)
        try:
            for _ in range(dice.randint(1, 8)):
                with suppress(SQLAlchemyError), engine.connect() as connection:
                    connection.execute(text(cut + "pg_backend_pid()"))
                time.sleep(dice.random() * 0.3)
        finally:
            engine.dispose()

    def fill(self, name: str, dice: random.Random) -> None:
        """To its last byte, for some seconds."""
        disk = self.rig.disks[name]
        ballast = disk / "ballast"
        with suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(b"\0" * 2**16):
                pass

        def free() -> None:
            ballast.unlink(missing_ok=True)

        self._later(2 + dice.random() * 6, free)


def _is_of(tag: str, sent: Sent) -> bool:
    return bool(sent.id) and tag.startswith(f"ejb-{sent.id}.")
