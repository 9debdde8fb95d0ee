"""Kills at random instants, by a seed, and what must hold afterwards: nothing lost, doubled, orphaned or told wrong.

    python -m tests.acceptance.soak [--seed N] [--minutes M] [--local]

A real `ejbd` on a real Slurm and a real PostgreSQL (with `--local`, or where they are not installed, on the embedded
cluster and SQLite) gets elastic and ordinary jobs, while the daemon, slurmctld, workers, the database's server and its
connections are killed, and batch jobs cancelled behind the back. Then everything is brought up again, and every job is
held against what it has done. A round is half a minute of faults; the rounds of a long soak go on with seed + 1, ...
The seed fixes what is done and the pauses in between, not what the machine makes of it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from tests.acceptance.journeys import Watch, ranks_of, undisturbed
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.fakes.me import ME
from tests.integration.postgres import PostgresServer
from tests.integration.postgres import why_not as no_postgres
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

FINAL = frozenset({"completed", "failed", "timeout", "cancelled", "unknown"})
OPEN = frozenset({"planned", "pending", "running"})
ROUND_S = 30.0
SETTLE_S = 240.0
STEPS = 60
READ_OFTEN = {"EJBD_READ_ANEW_S": "3"}  # what the daemon keeps in memory, to be held against the database
RANKS = 4


@dataclass
class Sent:
    """One submission, and what has been done to it."""

    key: str
    kind: str  # elastic | rigid | failing
    id: str = ""
    cancelled_behind: set[str] = field(default_factory=set)  # tags of its batch jobs
    controller_killed: bool = False  # while it was there: Slurm may have lost or repeated a batch job
    watch: Watch | None = None


class Soak:
    """One daemon with its site; `round` as often as one likes."""

    def __init__(self, folder: Path, site: SlurmSite | LocalSite, postgres: PostgresServer | None) -> None:
        self.folder = folder
        self.site = site
        self.postgres = postgres
        self.url = postgres.new_database() if postgres is not None else ""
        # Workers are killed far oftener than programs fail: nobody is given up for it.
        limits = {"EJBD_LIMITS__MAX_SETBACKS": "1000", "EJBD_LIMITS__MISSING_GRACE_S": "5"}
        top = f'database_url = "{self.url}"\n' if self.url else ""
        self.daemon = Daemon(folder, top + site.toml, {**site.environment, **limits, **READ_OFTEN})
        self.sent: list[Sent] = []
        self.told: list[str] = []
        self.expected = undisturbed(folder, STEPS, RANKS)
        self._over = threading.Event()

    # -- faults -------------------------------------------------------------------------------------------------------

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        found: dict[str, Callable[[random.Random], None]] = {
            "kill the daemon": self.kill_daemon,
            "kill a worker": self.kill_worker,
            "scancel": self.cancel_behind,
        }
        if isinstance(self.site, SlurmSite):
            found["kill slurmctld"] = self.kill_controller
        else:
            found["kill the cluster's server"] = lambda dice: self.site.kill_server()  # type: ignore[union-attr]
        if self.postgres is not None:
            found["stop PostgreSQL"] = self.stop_database
            found["cut the database's connections"] = self.cut_connections
        return found

    def kill_daemon(self, dice: random.Random) -> None:
        if not self.daemon.ended():
            self.daemon.kill()
        time.sleep(dice.choice((0.0, 0.5, 3.0)))
        self.up()

    def kill_worker(self, dice: random.Random) -> None:
        workers = [p for p in self.daemon.processes() if "worker" in " ".join(_command(p))]
        if workers:
            with suppress(psutil.NoSuchProcess):
                dice.choice(sorted(workers, key=lambda p: p.pid)).kill()

    def cancel_behind(self, dice: random.Random) -> None:
        live = sorted(job.name for job in self.site.jobs() if job.live and job.name.startswith("ejb-"))
        if not live:
            return
        tag = dice.choice(live)
        for sent in self.sent:
            if sent.id and tag.startswith(f"ejb-{sent.id}."):
                sent.cancelled_behind.add(tag)
        if isinstance(self.site, SlurmSite):
            self.site.cluster.run("scancel", f"--name={tag}", check=False)
        else:
            import asyncio

            ids = [job.id for job in self.site.jobs() if job.name == tag and job.live]
            asyncio.run(self.site.batch.cancel(ME, ids))

    def kill_controller(self, dice: random.Random) -> None:
        assert isinstance(self.site, SlurmSite)
        for sent in self.sent:
            if not self._is_over(sent):
                sent.controller_killed = True
        pid = self.site.cluster.pids().get("slurmctld")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: "slurmctld" not in self.site.cluster.pids(), "slurmctld lives", 30)  # type: ignore[union-attr]
        time.sleep(dice.choice((0.0, 2.0)))
        self.site.cluster.up_again("--profile=fail")

    def stop_database(self, dice: random.Random) -> None:
        assert self.postgres is not None
        self.postgres.halt()
        time.sleep(dice.choice((0.0, 1.0, 4.0)))
        self.postgres.start()

    def cut_connections(self, dice: random.Random) -> None:
        """Statements fail wherever the daemon happens to be, some times in a row."""
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid != "
        engine = create_engine(self.url)
        try:
            for _ in range(dice.randint(1, 8)):
                with suppress(SQLAlchemyError), engine.connect() as connection:
                    connection.execute(text(cut + "pg_backend_pid()"))
                time.sleep(dice.random() * 0.3)
        finally:
            engine.dispose()

    # -- life ---------------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """A daemon that answers, and a database for it; bounded."""
        deadline = time.monotonic() + 90
        while self.daemon.ended():
            assert time.monotonic() < deadline, f"the daemon does not stay up\n{self._log()}"
            self.daemon.start()
            if self.daemon.ended():
                time.sleep(0.5)

    def submit(self, sent: Sent) -> None:
        """As a careful client does: the same key and body until it is answered. Nobody else is told the id."""
        runs = self.folder / f"{sent.key}.runs"
        script = f"#!/bin/sh\necho run >> '{runs}'\nsleep 3\nexit {7 if sent.kind == 'failing' else 0}\n"
        deadline = time.monotonic() + 120
        while not sent.id:
            try:
                if sent.kind == "elastic":
                    command = self.daemon.heat(STEPS, self.folder / f"{sent.key}.result")
                    overrides = dict(self.site.layout)
                    answer = self.daemon.post_job(*command, ranks=RANKS, time="5:00", overrides=overrides, key=sent.key)
                else:
                    off = {"elastic": "off", "engine": "none"}
                    answer = self.daemon.post_job(ranks=1, time="5:00", script=script, overrides=off, key=sent.key)
                sent.id = str(answer["id"])
            except (httpx.HTTPError, AssertionError) as error:
                assert time.monotonic() < deadline, f"no answer to a submission: {error}\n{self._log()}"
                time.sleep(0.2)
        if sent.kind == "elastic":
            sent.watch = Watch(sent.id)

    def _submit_all(self, plan: list[tuple[float, Sent]]) -> None:
        for pause, sent in plan:
            if self._over.wait(pause):
                return
            self.sent.append(sent)
            try:
                self.submit(sent)
            except AssertionError as error:
                self.told.append(str(error))
                return

    def _watch_all(self) -> None:
        while not self._over.wait(0.4):
            for sent in list(self.sent):
                if sent.watch is not None and not self._is_over(sent):
                    sent.watch.look()

    def _is_over(self, sent: Sent) -> bool:
        return (self.folder / f"{sent.key}.over").exists()

    def round(self, seed: int, seconds: float = ROUND_S) -> None:
        """Faults for so long, then peace, then the reckoning. AssertionError says what does not hold, and the seed."""
        dice = random.Random(seed)
        print(f"soak: seed {seed}, {seconds:g} s of faults", flush=True)
        kinds = ["elastic", "elastic", "rigid", "failing", *dice.choices(("elastic", "rigid"), k=2)]
        plan = [(dice.random() * seconds / len(kinds), Sent(f"soak-{seed}-{i}", kind)) for i, kind in enumerate(kinds)]
        self.sent, self.told = [], []
        self._over.clear()
        faults = self.faults()
        threads = [
            threading.Thread(target=self._submit_all, args=(plan,), name="soak-submits"),
            threading.Thread(target=self._watch_all, name="soak-watches"),
        ]
        for thread in threads:
            thread.start()
        done: list[str] = []
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(dice.random() * 4)
                done.append(dice.choice(sorted(faults)))
                faults[done[-1]](dice)
                self.up()
            threads[0].join(150)
            self.up()
            self.finish_all()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {done}: {error}") from error
        finally:
            self._over.set()
            for thread in threads:
                thread.join(150)
        wrong = [*self.told, *self.reckon()]
        assert not wrong, f"seed {seed}, after {done}:\n" + "\n".join(wrong)
        print(f"soak: seed {seed} held after {len(done)} faults: {', '.join(done)}", flush=True)

    def finish_all(self) -> None:
        """All jobs come to their end; what is left of them goes."""

        def over(sent: Sent) -> bool:
            if not self._is_over(sent) and self.daemon.job(sent.id)["state"] in FINAL:
                (self.folder / f"{sent.key}.over").touch()
            return self._is_over(sent)

        def states() -> str:
            return "\n".join(str(self.daemon.explain(s.id).get("now")) for s in self.sent) + self._log()

        def quiet(ready: Callable[[], bool]) -> Callable[[], bool]:
            def asked() -> bool:
                with suppress(httpx.HTTPError, AssertionError):
                    return ready()
                return False

            return asked

        until(quiet(lambda: all(over(s) for s in self.sent)), "jobs do not end", SETTLE_S, states)
        until(quiet(lambda: not self._left()), "something is left", 90, lambda: f"{self._left()}\n{self._log()}")

    def _left(self) -> list[str]:
        """What is still there of jobs that are over."""
        found = [f"batch job {job.name} {job.state}" for job in self.site.jobs() if job.live]
        found += [f"process {' '.join(_command(p))[:200]}" for p in self.daemon.processes()]
        for sent in self.sent:
            found += [f"rank {pid} of {sent.id}" for pid in ranks_of(sent.id, forks=True)]
            subjobs = self.daemon.job(sent.id)["subjobs"]
            found += [
                f"subjob {s['id']} {s['state']}" for s in subjobs if s["state"] in ("planned", "pending", "running")
            ]
        figures = self.daemon.client.get("/metrics").text.splitlines()
        found += [line for line in figures if line.startswith("ejb_intents{") and not line.endswith(" 0.0")]
        return found

    # -- the reckoning ------------------------------------------------------------------------------------------------

    def reckon(self) -> list[str]:
        """Everything that does not hold, a sentence each."""
        wrong = [
            line for line in self.daemon.log.read_text(errors="replace").splitlines() if "working-set-differs" in line
        ]
        listed = [job["id"] for job in self.daemon.client.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]]
        for sent in self.sent:
            if listed.count(sent.id) != 1:
                wrong.append(f"{sent.key} ({sent.id}) is {listed.count(sent.id)} jobs")
                continue
            job = self.daemon.job(sent.id)
            wrong += [f"{sent.key} ({sent.id}, {sent.kind}): {what}" for what in self._check(sent, job)]
            if "job.fault" in self.daemon.kinds(sent.id):
                wrong.append(f"{sent.key} ({sent.id}): a fault of EJB: {self.daemon.trace(sent.id)()}")
        for sent in self.sent:
            if len({other.id for other in self.sent}) != len(self.sent):
                wrong.append(f"{sent.key}: two submissions are one job")
        return wrong

    def _check(self, sent: Sent, job: dict[str, object]) -> Iterator[str]:
        state, code = job["state"], job["exit_code"]
        told = f"told as {state} ({code}): {job.get('reason')}; batch jobs cancelled: {sorted(sent.cancelled_behind)}"
        if sent.kind == "elastic":
            result = self.folder / f"{sent.key}.result"
            if state == "completed":
                if code != 0 or not result.exists() or result.read_bytes() != self.expected:
                    yield f"its result is wrong or missing, {told}"
            elif not (state == "cancelled" and f"ejb-{sent.id}." in "".join(sent.cancelled_behind)):
                yield f"{told}\n{self.daemon.trace(sent.id)()}"
            if sent.watch is not None and sent.watch.doubled:
                yield f"two live copies: {sent.watch.doubled[:3]}"
            return
        runs = len((self.folder / f"{sent.key}.runs").read_text().split()) if self._ran(sent) else 0
        right = ("completed", 0) if sent.kind == "rigid" else ("failed", 7)
        if sent.cancelled_behind and state == "cancelled" and runs <= 1:
            return
        if sent.controller_killed:  # Slurm itself may have lost it, or begun it again
            if state == "completed" and not runs:
                yield f"never run, and {told}"
        elif (state, code) != right or runs != 1:
            yield f"run {runs} times, {told}\n{self.daemon.trace(sent.id)()}"

    def _ran(self, sent: Sent) -> bool:
        return (self.folder / f"{sent.key}.runs").exists()

    def _log(self) -> str:
        return "\n" + self.daemon.log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self.daemon.stop()
        self.daemon.client.close()
        self.site.close()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def soak_on(folder: Path, local: bool = False) -> Iterator[Soak]:
    """A soak that is up, on Slurm and PostgreSQL where they are installed; says where they are not."""
    with ExitStack() as stack:
        site: SlurmSite | LocalSite = LocalSite(folder)
        postgres = None
        reason = "asked for" if local else missing_slurm()
        if reason:
            print(f"soak: on the embedded cluster ({reason})", flush=True)
        else:
            cluster: SlurmCluster = stack.enter_context(slurm_cluster(4, 2, "--profile=fail"))
            site = SlurmSite(cluster, folder)
        reason = "asked for" if local else no_postgres() or ""
        if reason:
            print(f"soak: on SQLite ({reason})", flush=True)
        else:
            postgres = PostgresServer()
            stack.callback(postgres.stop)
        soak = Soak(folder, site, postgres)
        stack.callback(soak.close)
        soak.up()
        yield soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: any")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--local", action="store_true", help="the embedded cluster and SQLite")
    options = parser.parse_args()
    end, seed = time.monotonic() + options.minutes * 60, options.seed
    failed = 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="ejb-soak-", ignore_cleanup_errors=True) as name:
            try:
                with soak_on(Path(name), options.local) as soak:
                    while time.monotonic() < end:
                        soak.round(seed)
                        seed += 1
            except AssertionError as error:
                print(f"soak: seed {seed} FAILED: {error}", flush=True)
                failed, seed = failed + 1, seed + 1
    print(f"soak: seeds {options.seed} to {seed - 1}, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
