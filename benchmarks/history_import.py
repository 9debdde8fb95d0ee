"""`ejb history import` of a million jobs as sacct prints them: new ones, and the same file once more.

    python benchmarks/history_import.py [--rows 1000000] [--rounds 2] [--directory DIR]

A real `ejbd` with SQLite takes them in, while it does its polls. Some lines are odd, as they are in real files: torn,
of jobs that run or never ran, or with negative figures. Beside it the same rows go into a table with the same indices
by the sqlite3 module alone: what cannot be less. Aim: under 30 s, and nothing new the second time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil

from harness import ROOT, folder, machine
from tests.fakes.daemon import Daemon

HEADING = "JobIDRaw|User|JobName|Partition|AllocCPUS|AllocNodes|ElapsedRaw|TimelimitRaw|State|Submit|Start|End"
STATES = ["COMPLETED"] * 14 + ["FAILED"] * 3 + ["TIMEOUT", "CANCELLED by 1000", "OUT_OF_MEMORY"]
ODD_EVERY = 1000


def write_jobs(file: Path, rows: int) -> int:
    """A file of so many jobs, and the odd lines between them; how many those are."""
    chance = random.Random(1)
    odd = 0
    with file.open("w") as out:
        out.write(HEADING + "\n")
        for job in range(rows):
            start = 1_700_000_000 + job * 30 + chance.randrange(3600)
            run, limit = chance.randrange(1, 86400), chance.choice((30, 60, 240, 1440, 2880))
            submit, begun, end = (
                time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) for at in (start - 600, start, start + run)
            )
            name = f"run{chance.randrange(40)}_{job}.sh"
            line = (
                f"{job}|user{chance.randrange(300)}|{name}|batch|{2 ** chance.randrange(8)}|{chance.randrange(1, 9)}|"
                f"{run}|{limit}|{chance.choice(STATES)}|{submit}|{begun}|{end}"
            )
            out.write(line + "\n")
            if job % ODD_EVERY == 0:
                out.write(chance.choice((line[:40], line.replace(f"|{run}|", "|-5|"), line + "|x|y")) + "\n")
                odd += 1
    return odd


def plain(where: Path, rows: int) -> tuple[float, float]:
    """Seconds by the clock, and of CPU time, of the same rows and indices by sqlite3 alone, in the same portions."""
    connection = sqlite3.connect(where / "plain.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()
    connection.execute(
        "CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER UNIQUE, user TEXT, application TEXT,"
        " input_class TEXT, processors INTEGER, run_s REAL, requested_s REAL, outcome TEXT, end_s REAL)"
    )
    connection.execute("CREATE INDEX of ON runs (user, application, processors, input_class, end_s)")
    chance = random.Random(1)
    words = "INSERT INTO runs VALUES (NULL, ?, ?, ?, '', ?, ?, 3600.0, 'completed', ?)"
    begun, cpu = time.perf_counter(), time.process_time()
    for first in range(0, rows, 10_000):
        portion = [
            (
                chance.getrandbits(63), f"user{chance.randrange(300)}", f"run{chance.randrange(40)}",
                2 ** chance.randrange(8), float(chance.randrange(1, 86400)), 1.7e9 + at,
            )
            for at in range(first, min(first + 10_000, rows))
        ]  # fmt: skip
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(words, portion)
        connection.execute("COMMIT")
    connection.close()
    return time.perf_counter() - begun, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="imports of the same file")
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to be measured (default: temporary)")
    options = parser.parse_args()
    print(machine())
    with folder(options.directory) as where:
        file = where / "jobs.txt"
        odd = write_jobs(file, options.rows)
        print(f"{options.rows:,} jobs and {odd:,} odd lines, {file.stat().st_size / 1e6:.0f} MB")
        clock, cpu = plain(where, options.rows)
        print(f"{'sqlite3 alone':<16}{clock:>7.1f} s   CPU {cpu:.1f} s")
        daemon = Daemon(where, "poll_s = 5\n")
        daemon.start()
        try:
            assert daemon.process is not None
            of_daemon = psutil.Process(daemon.process.pid)
            ejb = [str(Path(sys.executable).with_name("ejb")), "history", "import", str(file), "--json"]
            environment = {**os.environ, "EJB_SOCKET": str(daemon.state / "ejbd.sock"), "PYTHONPATH": str(ROOT)}
            for number in range(options.rounds):
                before, used = of_daemon.cpu_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
                begun = time.perf_counter()
                told = subprocess.run(ejb, env=environment, check=True, capture_output=True, timeout=1800).stdout
                clock = time.perf_counter() - begun
                after, spent = of_daemon.cpu_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
                ours = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
                theirs = after.user + after.system - before.user - before.system
                found = json.loads(told)
                name = f"import {number + 1}"
                print(
                    f"{name:<16}{clock:>7.1f} s   CPU {ours:.1f} s of ejb, {theirs:.1f} s of ejbd   "
                    f"{found['read']:,} read, {found['new']:,} new; load {os.getloadavg()[0]:.1f}"
                )
        finally:
            daemon.client.close()
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, cwd=ROOT, check=False, capture_output=True, timeout=90)


if __name__ == "__main__":
    main()
